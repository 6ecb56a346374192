"""What our ZooKeeper identity may do, found out without a change.

ZooKeeper judges the operations of a multi one after the other, each first by the access control list and then by its
other conditions (``PrepRequestProcessor.pRequest2Txn``), and applies all or none. So a multi of the wanted operation
and a `Check` that cannot hold says whether the operation is allowed: NOAUTH for the first operation if not, else the
refusal of the check. No znode changes in either case.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice

from kazoo.exceptions import KazooException
from kazoo.security import ACL

from migrator.errors import OperatorError
from migrator.preflight.evidence import EXAMPLES_MAX, PermissionFacts, Trouble
from migrator.values import value
from migrator.zookeeper.ops import Check, Create, Delete, Failed, MultiOutcome, Op, SetData, Unknown, ZkError
from migrator.zookeeper.session import ZooKeeperSession, ZooKeeperUnavailableError
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths

NO_VERSION = 2**31 - 1
"""No znode has been set that often."""
IMPOSSIBLE = Check(paths.CONTROLLER_EPOCH, NO_VERSION)
PROBE_NAME = "migrator-preflight"
WHO_AM_I = 107
FIRST_WITH_WHO_AM_I = (3, 7, 0)
_REMEDY = "Give the controllers the ZooKeeper identity of the brokers, or correct the access control list"
_INT = struct.Struct(">i")


@value
class Wanted:
    """Paths by what a migration does to them: make children of, set, and delete."""

    parents: tuple[str, ...]
    nodes: tuple[str, ...]
    removable: tuple[str, ...]

    def probes(self) -> Iterator[tuple[str, Op]]:
        """What each is, in words, and the operation."""
        for path in self.parents:
            yield "create znodes below it", Create(f"{'' if path == '/' else path}/{PROBE_NAME}", None)
        for path in self.nodes:
            yield "set it", SetData(path, b"", NO_VERSION)
        for path in self.removable:
            yield "delete it", Delete(path, NO_VERSION)


def look_at_permissions(session: ZooKeeperSession, wanted: Wanted, version: tuple[int, ...] | None) -> PermissionFacts:
    """Try every operation in vain.

    :raises ZooKeeperUnavailableError: the connection went.
    """
    refused: list[Trouble] = []
    probed = 0
    for (what, op), outcome in _outcomes(session, list(wanted.probes())):
        probed += 1
        if isinstance(outcome, str):
            refused.append(Trouble(_subject(op), f"ZooKeeper does not let us {what}: {outcome}", _REMEDY))
        elif isinstance(outcome, Failed) and outcome.index == 0 and outcome.error is ZkError.NO_AUTH:
            refused.append(Trouble(_subject(op), f"our identity may not {what}", _REMEDY))
        elif isinstance(outcome, Unknown):
            raise ZooKeeperUnavailableError(session.options.hosts, f"the connection went ({outcome.reason})")
    lists = dict.fromkeys([*wanted.parents, *(trouble.where for trouble in refused[:EXAMPLES_MAX])])
    return PermissionFacts(
        probed,
        tuple(refused),
        _identity(session, version),
        {path: text for path in lists if (text := _owners(session, path))},
    )


def _outcomes(
    session: ZooKeeperSession, probes: Sequence[tuple[str, Op]]
) -> Iterator[tuple[tuple[str, Op], MultiOutcome | str]]:
    """Several in flight; a refusal without a code of its own is a text."""
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
            raise ZooKeeperUnavailableError(session.options.hosts, "a write was not answered") from error
        except OperatorError as error:
            yield probe, error.what


def _subject(op: Op) -> str:
    return paths.parent_of(op.path) if isinstance(op, Create) else op.path


def _owners(session: ZooKeeperSession, path: str) -> str:
    """A znode's access control list as text, without digests; "" where we may not see it."""
    try:
        listed, _ = session.wait_for(session.client.get_acls_async(path))
    except KazooException:
        return ""
    return ", ".join(map(_acl_text, listed))


def _acl_text(acl: ACL) -> str:
    name = acl.id.id.partition(":")[0] if acl.id.scheme == "digest" else acl.id.id
    return f"{acl.id.scheme}:{name} {'+'.join(acl.acl_list)}"


class _WhoAmI:
    """The request that asks whom the server takes us for (ZOOKEEPER-3969)."""

    type = WHO_AM_I

    def serialize(self) -> bytes:
        return b""

    def deserialize(self, reply: bytes, offset: int) -> list[str]:
        """Scheme and name of each identity, the address left out."""
        (count,) = _INT.unpack_from(reply, offset)
        offset += 4
        found = []
        for _ in range(max(count, 0)):
            scheme, offset = _text(reply, offset)
            name, offset = _text(reply, offset)
            if scheme != "ip":
                found.append(f"{scheme}:{name.partition(':')[0] if scheme == 'digest' else name}")
        return found


def _text(reply: bytes, offset: int) -> tuple[str, int]:
    (length,) = _INT.unpack_from(reply, offset)
    start = offset + 4
    return reply[start : start + max(length, 0)].decode(), start + max(length, 0)


def _identity(session: ZooKeeperSession, version: tuple[int, ...] | None) -> tuple[str, ...]:
    """A server that does not know the request would close the connection."""
    if version is None or version < FIRST_WITH_WHO_AM_I:
        return ()
    try:
        return tuple(session.wait_for(session.call(_WhoAmI())))
    except KazooException:
        return ()
