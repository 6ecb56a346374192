"""Checks that an address leads to a Kafka cluster, and finds clusters at other chroots: a chroot is easily forgotten.

Commands and the start of a controller call it before they use a ZooKeeper. An address without ``/cluster/id`` is an
error that names the chroots where clusters are. The search is bounded in depth and in znodes, and it only reads.
"""

from __future__ import annotations

from migrator.errors import OperatorError
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id

DEPTH_MAX = 3
"""The most names in a chroot that is searched."""
ZNODES_MAX = 1_000
"""The most znodes that are searched: other software may have any number."""
_NO_CHROOTS = frozenset({"zookeeper"})
"""The top znodes of ZooKeeper itself, which are no chroots."""


class NoClusterError(OperatorError):
    """There is no ``/cluster/id`` at an address.

    :param hosts: the address, as in ``zookeeper.connect``.
    :param chroots: those of other clusters on the same servers; "" is the root.
    """

    def __init__(self, hosts: str, chroots: tuple[str, ...]) -> None:
        super().__init__(
            f"no Kafka cluster is here: {paths.CLUSTER_ID} is missing", where=hosts, remedy=_remedy(hosts, chroots)
        )
        self.chroots = chroots

    def __reduce__(self) -> tuple[type[NoClusterError], tuple[str, tuple[str, ...]]]:
        return type(self), (self.where, self.chroots)


def read_cluster_id(session: ZooKeeperSession) -> str:
    """The id of the cluster at the address of a session.

    :raises NoClusterError: there is none.
    :raises OperatorError: ZooKeeper cannot be read, or the znode does not decode.
    """
    (znode,) = BulkReader(session).read([paths.CLUSTER_ID])
    if znode is None:
        raise no_cluster(session)
    return decode_cluster_id(znode.path, znode.data)


def no_cluster(session: ZooKeeperSession) -> NoClusterError:
    """The error for a session without ``/cluster/id``, with the clusters found at other chroots. Errors as
    `read_cluster_id`."""
    return NoClusterError(session.options.hosts, chroots_of_clusters(session))


def chroots_of_clusters(session: ZooKeeperSession) -> tuple[str, ...]:
    """The chroots of the clusters on the servers of a session, the shortest first; "" is the root. A znode that this
    session may not read counts as missing. Errors as `read_cluster_id`."""
    reader = BulkReader(session, chroot="", on_refused=lambda _: None)
    found: list[str] = []
    level, left = [""], ZNODES_MAX
    for depth in range(DEPTH_MAX + 1):
        ids = reader.read(f"{chroot}{paths.CLUSTER_ID}" for chroot in level)
        empty = [chroot for chroot, znode in zip(level, list(ids), strict=True) if znode is None]
        found += [chroot for chroot in level if chroot not in set(empty)]
        if depth == DEPTH_MAX:
            break
        listed = zip(empty, reader.children(chroot or "/" for chroot in empty), strict=True)
        below = [f"{chroot}/{name}" for chroot, names in listed for name in sorted({*(names or ())} - _NO_CHROOTS)]
        level, left = below[:left], left - len(below[:left])
    return tuple(found)


def _remedy(hosts: str, chroots: tuple[str, ...]) -> str:
    servers = hosts.partition("/")[0]
    match chroots:
        case ():
            return (
                f"No cluster was found at another chroot of {servers} either. Give the zookeeper.connect of the "
                "brokers, chroot included"
            )
        case ("",):
            return f"Did you mean {servers}, without a chroot? A Kafka cluster is there"
        case (chroot,):
            return f"Did you mean {chroot}? A Kafka cluster is there: write {servers}{chroot}"
    named = [chroot or "/ (without a chroot)" for chroot in chroots[:5]]
    more = f" and {len(chroots) - 5:,} more" if len(chroots) > 5 else ""
    return f"Did you mean one of {', '.join(named)}{more}? Kafka clusters are there: write {servers}/CHROOT"
