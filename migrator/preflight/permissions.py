"""The permissions that our ZooKeeper identity lacks, its name, and the access control lists.

The reading of ZooKeeper calls `look_at_permissions`. Each operation is tried in a form that cannot succeed, so nothing
is written: ZooKeeper's error tells whether the permission is there.
"""

from __future__ import annotations

import struct

from kazoo.exceptions import KazooException
from kazoo.security import ACL

from migrator.preflight.evidence import EXAMPLES_MAX, PermissionFacts, Trouble
from migrator.zookeeper.ops import FORBIDDEN_REMEDY
from migrator.zookeeper.permissions import WantedPaths, forbidden
from migrator.zookeeper.session import ZooKeeperSession

WHO_AM_I = 107
FIRST_WITH_WHO_AM_I = (3, 7, 0)
_INT = struct.Struct(">i")


def look_at_permissions(
    session: ZooKeeperSession, wanted: WantedPaths, version: tuple[int, ...] | None
) -> PermissionFacts:
    """Try every operation in a form that cannot succeed.

    :raises ZooKeeperUnavailableError: the connection was lost.
    """
    refused = [Trouble(where, what, FORBIDDEN_REMEDY) for where, what in forbidden(session, wanted)]
    probed = sum(1 for _ in wanted.probes())
    lists = dict.fromkeys([*wanted.parents, *(trouble.where for trouble in refused[:EXAMPLES_MAX])])
    return PermissionFacts(
        probed,
        tuple(refused),
        _identity(session, version),
        {path: text for path in lists if (text := _owners(session, path))},
    )


def _owners(session: ZooKeeperSession, path: str) -> str:
    """A znode's access control list as text, without digests; "" when we may not read it."""
    try:
        listed, _ = session.wait_for(session.client.get_acls_async(path))
    except KazooException:
        return ""
    return ", ".join(map(_acl_text, listed))


def _acl_text(acl: ACL) -> str:
    name = acl.id.id.partition(":")[0] if acl.id.scheme == "digest" else acl.id.id
    return f"{acl.id.scheme}:{name} {'+'.join(acl.acl_list)}"


class _WhoAmI:
    """The request for our identity as the server sees it (ZOOKEEPER-3969)."""

    type = WHO_AM_I

    def serialize(self) -> bytes:
        return b""

    def deserialize(self, reply: bytes, offset: int) -> list[str]:
        """Scheme and name of each identity, without the address."""
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
    """Our identity. A server that does not know the request would close the connection, so only newer ones are
    asked."""
    if version is None or version < FIRST_WITH_WHO_AM_I:
        return ()
    try:
        return tuple(session.wait_for(session.call(_WhoAmI())))
    except KazooException:
        return ()
