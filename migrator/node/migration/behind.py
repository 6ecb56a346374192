"""A ZooKeeper that is behind the log: the messages about it, and the wait of a stopping controller for it.

`runtime` reports news of writes here, and `status` calls `drain` before a leader leaves. A node that stops says at its
end which changes ZooKeeper lacks, also when it lost the leadership shortly before (`Debt`), unless another leader
writes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from migrator.clock import monotonic_ms
from migrator.errors import ExitCode, OperatorError
from migrator.migration.coordinator import Coordinator
from migrator.migration.write_behind.lag import Lag
from migrator.migration.write_behind.messages import SetAside, TakenIn, Unanswered

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
LARGE_WRITE_REMEDY = (
    "ZooKeeper closes the connection if a request is larger than its jute.maxbuffer. Compare "
    "migrator.zookeeper.jute.maxbuffer with the jute.maxbuffer of the servers. If the write is small, check the "
    "network and the servers."
)
SET_ASIDE_REMEDY = (
    "Brokers in ZooKeeper mode do not see this change, and a rollback would lose it. Make the "
    "entity smaller; or raise jute.maxbuffer on the ZooKeeper servers and brokers, set "
    "migrator.zookeeper.jute.maxbuffer to the same value, and restart the controllers."
)


class Note(Protocol):
    """A function that writes an event to the journal."""

    def __call__(self, kind: str, text: str, **details: str) -> None: ...


def tell_of_write(news: Unanswered | SetAside | TakenIn, note: Note) -> None:
    """Report news of writes in the log of the process, and in the journal if the fault lasts."""
    match news:
        case Unanswered():
            log.warning("ZooKeeper: %s. %s", news, LARGE_WRITE_REMEDY)
        case SetAside(entity, path):
            log.warning("%s. %s", news, SET_ASIDE_REMEDY)
            note("set aside", str(news), entity=entity, path=path)
        case TakenIn(entity, path):
            sentence = f"{path} is written to ZooKeeper again; it is no longer too large"
            log.info("%s", sentence)
            note("taken in", sentence, entity=entity, path=path)


class Debt:
    """The changes that ZooKeeper lacked when this node lost the leadership. They count until another node leads.

    When a whole quorum is stopped, its leader may lose its majority before it is told to stop itself.
    """

    def __init__(self) -> None:
        self._epoch = -1
        self._missing: OperatorError | None = None

    def led(self, epoch: int, coordinator: Coordinator) -> None:
        """This node has just lost the leadership of an epoch, while ZooKeeper had to follow; the coordinator does not
        know yet."""
        self._epoch, self._missing = epoch, _missing(coordinator)

    def leads_again(self) -> None:
        """Forget the earlier debt: this node leads again, so it knows the changes that ZooKeeper lacks."""
        self._missing = None

    def missing_when_deposed(self, *, other_leads: bool, latest_epoch: int) -> OperatorError | None:
        """The changes that ZooKeeper did not have when this node lost the leadership. None when another node has led
        since then: that node writes them.

        :param other_leads: another node is known to lead.
        :param latest_epoch: the epoch of the last committed record.
        """
        return None if other_leads or latest_epoch > self._epoch else self._missing


async def drain(
    coordinator: Coordinator,
    lag: Callable[[], Lag | None],
    missing_when_deposed: Callable[[], OperatorError | None],
    seconds: float,
) -> OperatorError | None:
    """Wait at most ``seconds`` until ZooKeeper has caught up, before a leader leaves.

    :param lag: None when ZooKeeper need not follow this node (any more).
    :param missing_when_deposed: see `Debt`; used when the leadership was lost before or during the wait.
    :returns: what ZooKeeper lacks at the end; None for nothing.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while lag() is not None and not coordinator.write_behind.drained:
        if loop.time() >= deadline or coordinator.state.properties.waits_for_person:
            break
        await asyncio.sleep(POLL_SECONDS)
    return missing_when_deposed() if lag() is None else _missing(coordinator)


def _missing(coordinator: Coordinator) -> OperatorError | None:
    """The changes that ZooKeeper lacks, on a leader that ZooKeeper has to follow."""
    missing = [str(item) for item in coordinator.write_behind.set_aside]
    if not coordinator.write_behind.drained:
        now_ms = monotonic_ms()
        situation = coordinator.status(now_ms).situation
        missing.insert(
            0, f"{coordinator.write_behind.lag(now_ms)}; the migration is {coordinator.state.value}: {situation}"
        )
    if not missing:
        return None
    return OperatorError(
        "this controller stopped before ZooKeeper held everything that the metadata log holds: " + "; ".join(missing),
        where="write-behind",
        remedy="The next leader writes what is missing. Before a rollback, start the controllers again, wait until "
        "'migrator status' shows that nothing is missing, and stop them",
        exit_code=ExitCode.NOT_DRAINED,
    )
