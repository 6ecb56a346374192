"""A ZooKeeper that does not follow: what is said about it, and how long a stop waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from migrator.errors import ExitCode, OperatorError
from migrator.migration.coordinator import Coordinator
from migrator.migration.lag import Lag
from migrator.migration.states import State
from migrator.migration.write_messages import SetAside, TakenIn, Unanswered
from migrator.node.quorum import monotonic_ms

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
WAITS_FOR_OPERATOR = frozenset({State.REFUSED, State.HOLDING})
"""States in which nobody but a person makes ZooKeeper follow again: a stop does not wait for that."""
LARGE_WRITE_REMEDY = (
    "ZooKeeper closes the connection at a request above its jute.maxbuffer: compare migrator.zookeeper.jute.maxbuffer "
    "with that of the servers. If the write is small, look at the network and the servers."
)
SET_ASIDE_REMEDY = (
    "Brokers in ZooKeeper mode do not see this change, and a rollback would lose it. Make the entity smaller, or raise "
    "jute.maxbuffer on the ZooKeeper servers and brokers, set migrator.zookeeper.jute.maxbuffer to it, and restart the "
    "controllers."
)


class Note(Protocol):
    """Puts something into the journal."""

    def __call__(self, kind: str, text: str, **details: str) -> None: ...


def tell_of_write(news: Unanswered | SetAside | TakenIn, note: Note) -> None:
    """Into the log of the process, and the journal if it lasts."""
    match news:
        case Unanswered():
            log.warning("ZooKeeper: %s. %s", news, LARGE_WRITE_REMEDY)
        case SetAside(entity, path):
            log.warning("%s. %s", news, SET_ASIDE_REMEDY)
            note("set aside", str(news), entity=entity, path=path)
        case TakenIn(entity, path):
            sentence = f"{path} is not set aside any more"
            log.info("%s", sentence)
            note("taken in", sentence, entity=entity, path=path)


async def drain(coordinator: Coordinator, lag: Callable[[], Lag | None], seconds: float) -> OperatorError | None:
    """Let ZooKeeper catch up before a leader leaves, for so long at most.

    :param lag: None when ZooKeeper need not follow this node (any more).
    :returns: what ZooKeeper lacks in the end; None for nothing. A leader that loses the leadership meanwhile, because
        the other voters were stopped too, gives what was missing then: nobody may be left to write it.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    missing = None
    while lag() is not None and not coordinator.write_behind.drained:
        missing = _not_drained(coordinator)
        if loop.time() >= deadline or coordinator.state in WAITS_FOR_OPERATOR:
            return missing
        await asyncio.sleep(POLL_SECONDS)
    if lag() is None:
        return missing
    return _not_drained(coordinator) if coordinator.write_behind.set_aside else None


def _not_drained(coordinator: Coordinator) -> OperatorError:
    missing = [str(item) for item in coordinator.write_behind.set_aside]
    if not coordinator.write_behind.drained:
        now_ms = monotonic_ms()
        situation = coordinator.status(now_ms).situation
        missing.insert(
            0, f"{coordinator.write_behind.lag(now_ms)}; the migration is {coordinator.state.value}: {situation}"
        )
    return OperatorError(
        "this controller stopped, and ZooKeeper does not hold everything that the metadata log holds: "
        + "; ".join(missing),
        where="write-behind",
        remedy="The next leader writes what is missing. Before a rollback, start the controllers again, and stop them "
        "when 'migrator status' says that nothing is missing",
        exit_code=ExitCode.NOT_DRAINED,
    )
