"""Orders for a ZooKeeper controller that lie in ZooKeeper, and that this quorum did not give or has not carried out.

A ZooKeeper controller carries out what it finds when it is elected: it deletes topics (``/admin/delete_topics``), moves
replicas (``/admin/reassign_partitions``) and elects preferred leaders (``/admin/preferred_replica_election``). While
a quorum controls the cluster, nobody looks there, so such an order is old, or of a tool that knows ZooKeeper only.
Source: Kafka's ``KafkaController.onControllerFailover``.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.migration.translate.source import names_below, subtrees
from migrator.observe.printable import quoted
from migrator.values import value
from migrator.zookeeper.ops import Create, Delete, Op, ZkSource
from migrator.zookeeper.znodes import paths

EXAMPLES = 5
SHOWN_CHARS = 200


@value
class OldOrders:
    """``removals``: deletes the orders to delete topics, each at the version that was read, and what lies below any
    order. ``last``: the operations for the release of the claim, which delete the others; they fail when an order was
    changed or added since. ``told``: what is removed, a line for each kind; nothing without any order."""

    removals: tuple[Op, ...] = ()
    last: tuple[Op, ...] = ()
    told: tuple[str, ...] = ()


NO_ORDERS = OldOrders()


def read_old_orders(reader: ZkSource) -> OldOrders:
    """Read the orders as they are now.

    :raises MigratorError: ZooKeeper cannot be read.
    """
    admin, parent, *single = reader.read([paths.ADMIN, paths.DELETE_TOPICS, *paths.OLD_ORDERS])
    if admin is None:
        return NO_ORDERS
    topics = sorted(names_below(reader, paths.DELETE_TOPICS))
    markers = [znode for znode in reader.read(map(paths.delete_topic, topics)) if znode is not None]
    last: list[Op] = []
    if parent is not None:  # only an empty znode can be deleted
        last = [Delete(parent.path, parent.stat.version), Create(parent.path, parent.data)]
    told = list(_deletions(topics))
    for path, znode in zip(paths.OLD_ORDERS, single, strict=True):
        if znode is None:
            last += [Create(path, None), Delete(path, 0)]
        else:
            last.append(Delete(path, znode.stat.version))
            told.append(f"{path}: {quoted((znode.data or b'').decode(errors='replace'), SHOWN_CHARS)}")
    # A ZooKeeper controller does not look below an order, but an order with znodes below cannot be deleted.
    below = subtrees(reader, [znode.path for znode in (*markers, *single) if znode is not None])
    removals = [op for path in paths.OLD_ORDERS for op in map(Delete, below.get(path, [])[:-1])]
    removals += [
        op
        for marker in markers
        for op in (*map(Delete, below.get(marker.path, [])[:-1]), Delete(marker.path, marker.stat.version))
    ]
    return OldOrders(tuple(removals), tuple(last), tuple(told))


def _deletions(topics: list[str]) -> Iterator[str]:
    if topics:
        more = f" and {len(topics) - EXAMPLES} more" if len(topics) > EXAMPLES else ""
        yield f"{paths.DELETE_TOPICS}: deletion of the topics {', '.join(topics[:EXAMPLES])}{more}"
