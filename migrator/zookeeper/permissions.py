"""Finds the permissions that this client lacks in ZooKeeper, without a change.

ZooKeeper checks the operations of a multi one after the other, each first against the access control list and then for
its other conditions (``PrepRequestProcessor.pRequest2Txn``), and applies all or none. So a multi of the wanted
operation and a `Check` that always fails shows whether the operation is allowed: if not, the first error is NOAUTH, and
otherwise that of the check. No znode changes in either case.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice

from migrator.errors import OperatorError
from migrator.values import value
from migrator.zookeeper.ops import Check, Create, Delete, Failed, MultiOutcome, Op, SetData, Unknown, ZkError
from migrator.zookeeper.session import ZooKeeperSession, ZooKeeperUnavailableError
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths

NO_VERSION = 2**31 - 1
"""A data version that no znode reaches, for the check that always fails."""
IMPOSSIBLE = Check(paths.CONTROLLER_EPOCH, NO_VERSION)
PROBE_NAME = "migrator-preflight"


@value
class WantedPaths:
    """The paths below which a migration creates znodes, and those that it sets and deletes."""

    parents: tuple[str, ...]
    nodes: tuple[str, ...]
    removable: tuple[str, ...]

    def probes(self) -> Iterator[tuple[str, Op]]:
        """Each operation with its description for messages."""
        for path in self.parents:
            yield "create znodes below it", Create(f"{'' if path == '/' else path}/{PROBE_NAME}", None)
        for path in self.nodes:
            yield "set it", SetData(path, b"", NO_VERSION)
        for path in self.removable:
            yield "delete it", Delete(path, NO_VERSION)


def forbidden(session: ZooKeeperSession, wanted: WantedPaths) -> Iterator[tuple[str, str]]:
    """Try every operation without effect. Yields the path and a sentence for each that is refused.

    :raises ZooKeeperUnavailableError: the connection was lost.
    """
    for (what, op), outcome in _outcomes(session, list(wanted.probes())):
        if isinstance(outcome, str):
            yield _subject(op), f"ZooKeeper does not let us {what}: {outcome}"
        elif isinstance(outcome, Failed) and outcome.index == 0 and outcome.error is ZkError.NO_AUTH:
            on = f": that is a right on {paths.parent_of(op.path)}" if isinstance(op, Delete) else ""
            yield _subject(op), f"our identity {outcome.identity} may not {what}{on}"
        elif isinstance(outcome, Unknown):
            raise session.away(f"the connection to ZooKeeper was lost ({outcome.reason})")


def _outcomes(
    session: ZooKeeperSession, probes: Sequence[tuple[str, Op]]
) -> Iterator[tuple[tuple[str, Op], MultiOutcome | str]]:
    """The outcomes of the attempts, with several in flight. A refusal without an error code is a text."""
    writer = ConditionalWriter(session)
    in_flight: deque[tuple[tuple[str, Op], Future[MultiOutcome]]] = deque()
    waiting = iter(probes)
    while True:
        room = session.options.in_flight - len(in_flight)
        in_flight.extend((probe, writer.submit([probe[1], IMPOSSIBLE])) for probe in islice(waiting, room))
        if not in_flight:
            return
        probe, future = in_flight.popleft()
        try:
            yield probe, future.result(timeout=session.options.session_timeout_ms / 1000)
        except TimeoutError as error:
            raise session.away("a write was not answered") from error
        except ZooKeeperUnavailableError:
            raise
        except OperatorError as error:
            yield probe, error.what


def _subject(op: Op) -> str:
    return paths.parent_of(op.path) if isinstance(op, Create) else op.path
