"""Partition states that ZooKeeper has lost: the brokers' knowledge of them, and the states to write. Pure.

A state that is gone, or does not decode, cannot be invented: with a leader epoch of 0 it would be older than the
brokers' own, and they ignore an older one (``ReplicaManager.becomeLeaderOrFollower``). The brokers still know the
leader, its epoch and the in-sync replicas. They do not tell the partition epoch, which is the data version of the
znode, and ignore an older one of this, too (``Partition.makeLeader``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from migrator.records.metadata import NO_LEADER
from migrator.values import value
from migrator.zookeeper.ops import Create, Op, SetData
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.partition_state import PartitionState, encode_partition_state

UNDER_WAY = b"migrator is restoring this state"
"""The content of a znode until its last write. It is no JSON, so a ZooKeeper controller does not take it for a
state."""

SETS_AHEAD = 10_000
"""No broker reports the partition epoch of a state whose znode is gone. So the new znode is set again and again, until
its version is this much above that of the most often written partition state of the cluster. This takes some tenths of
a second."""

Partition = tuple[str, int]
"""Topic and partition number."""


@value
class Lost:
    """A state that is missing (``version`` None), or does not decode (``version``: its data version)."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    version: int | None = None

    @property
    def key(self) -> Partition:
        return self.topic, self.partition

    @property
    def path(self) -> str:
        return paths.partition_state(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@value
class Reported:
    """A partition as one broker knows it, from its Metadata response."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


@value
class Restored:
    """The new value of a lost state. ``version``: the least data version that its znode has to reach."""

    lost: Lost
    reported: Reported
    state: PartitionState
    version: int


def newest(reports: Iterable[Reported]) -> Reported | None:
    """The report with the highest leader epoch; None when no broker knows the partition."""
    return max(reports, key=lambda report: report.leader_epoch, default=None)


def restore(
    lost: Sequence[Lost],
    reports: Mapping[Partition, Sequence[Reported]],
    *,
    controller_epoch: int,
    least_version: int,
) -> tuple[list[Restored], list[tuple[Lost, str]]]:
    """The states to write, and those that cannot be restored, with the reason.

    The leader epoch is one above the reported one: brokers then take the state as a new one, and follow its partition
    epoch from there. A new znode has to reach a version that no broker has seen of the old one.

    :param controller_epoch: ZooKeeper's; a state with a higher one would be refused (KAFKA-20488).
    :param least_version: the data version that a new znode has to reach, see `SETS_AHEAD`.
    """
    found: list[Restored] = []
    left: list[tuple[Lost, str]] = []
    for each in lost:
        report = newest(reports.get(each.key, ()))
        if report is None or report.leader_epoch < 0:
            left.append((each, "no broker knows its leader epoch"))
            continue
        isr = tuple(replica for replica in report.isr if replica in each.replicas)
        if not isr:
            left.append((each, f"none of the in-sync replicas that brokers report, {list(report.isr)}, is assigned"))
            continue
        epoch = report.leader_epoch + 1
        leader = report.leader if report.leader in isr else NO_LEADER
        state = PartitionState(leader, epoch, controller_epoch, isr)
        known = each.version is not None and each.version >= report.leader_epoch
        found.append(Restored(each, report, state, 0 if known else max(least_version, epoch)))
    return found, left


def writes(restored: Restored, existing: frozenset[str]) -> Iterator[Op]:
    """The operations, in order, each conditional on the one before. Until the last one the znode does not decode, so
    that an interrupted repair still shows a lost state.

    :param existing: those of the parents that exist.
    """
    path, version = restored.lost.path, restored.lost.version
    if version is None:
        parents = (
            paths.partitions(restored.lost.topic),
            paths.partition(restored.lost.topic, restored.lost.partition),
        )
        for parent in parents:
            if parent not in existing:
                yield Create(parent, None)
        yield Create(path, UNDER_WAY)
        version = 0
    while version + 1 < restored.version:
        yield SetData(path, UNDER_WAY, version)
        version += 1
    yield SetData(path, encode_partition_state(restored.state), version)
