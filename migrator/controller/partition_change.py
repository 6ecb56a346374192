"""Makes the record that changes a partition to a target, including the election of a leader.

A record that names a leader raises the leader epoch, even for the same leader. So the leader is named again when a
replica leaves the assignment, or when one leaves the ISR and brokers in ZooKeeper mode (or a metadata.version below
3.6-IV0) need a new leader epoch. Source: Kafka's ``PartitionChangeBuilder`` and ``PartitionReassignmentReplicas``.
Eligible leader replicas (KIP-966) do not exist at the metadata.versions that this program finalizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final

from migrator.controller.brokers_view import default_directory, directory_of, is_active, is_online
from migrator.controller.context import Context, supports, zk_brokers_allowed
from migrator.controller.effective import UncleanElections
from migrator.controller.index import TopicPartition
from migrator.image.model import MetadataImage, PartitionRegistration, TopicImage
from migrator.records.metadata import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    LeaderRecoveryState,
    PartitionChangeRecord,
)
from migrator.records.uuid import DIRECTORY_MIGRATING, Uuid
from migrator.records.versions import MinLevel
from migrator.values import value


class Election(Enum):
    """The replicas that may become leader: the preferred one first, a live member of the ISR, or any live replica."""

    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


@value
class PartitionTarget:
    """The target of a partition; None leaves a part as it is. ``directory``: a broker and its new log directory."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    recovering: bool | None = None
    directory: tuple[int, Uuid] | None = None
    election: Election = Election.ONLINE


_Ids = tuple[int, ...] | None
_Difference = tuple[_Ids, int, _Ids, _Ids, _Ids, int, tuple[Uuid, ...] | None]
_UNCHANGED: Final[_Difference] = (None, NO_LEADER_CHANGE, None, None, None, NO_RECOVERY_CHANGE, None)


@value
class _Assignment:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]


class ChangeRules:
    """The rules for all partitions in one decision.

    :param without: a broker that is about to be fenced or loses a directory, so it cannot become leader.
    :param also: a broker that is about to be unfenced, so it can become leader although the image has it fenced.
    """

    __slots__ = ("_active", "_brokers", "_image", "_recovery", "bumps_on_shrink", "has_directories")

    def __init__(
        self, image: MetadataImage, context: Context, *, without: int | None = None, also: int | None = None
    ) -> None:
        self._image = image
        self._brokers = image.cluster.brokers
        self._active = {b for b, registration in self._brokers.items() if is_active(registration)}
        if also is not None:
            self._active.add(also)
        if without is not None:
            self._active.discard(without)
        self._active.difference_update(context.sessions.being_fenced)
        self._recovery = supports(image, MinLevel.LEADER_RECOVERY)
        self.has_directories = supports(image, MinLevel.DIRECTORY_ASSIGNMENT)
        # Brokers before 3.6 need a new leader epoch when the ISR shrinks (KAFKA-15021), and so do brokers in ZooKeeper
        # mode (``PartitionChangeBuilder.triggerLeaderEpochBumpForIsrShrinkIfNeeded``).
        self.bumps_on_shrink = zk_brokers_allowed(image, context) or not supports(
            image, MinLevel.NO_LEADER_EPOCH_BUMP_ON_ISR_SHRINK
        )

    def can_lead(self, broker_id: int, partition: PartitionRegistration) -> bool:
        """Whether the broker is active and its replica's directory is online."""
        if broker_id not in self._active:
            return False
        if not partition.directories:
            return True
        return broker_id in partition.replicas and is_online(
            directory_of(partition, broker_id), self._brokers[broker_id]
        )

    def change(
        self, where: TopicPartition, partition: PartitionRegistration, target: PartitionTarget
    ) -> PartitionChangeRecord | None:
        """The record that changes the partition to its target; None when nothing changes."""
        changed = self.difference(partition, target)
        return None if changed is None else PartitionChangeRecord(where[1], where[0], *changed)

    def difference(self, partition: PartitionRegistration, target: PartitionTarget) -> _Difference | None:
        """The changed fields of the record of `change`. They do not depend on the partition's epochs."""
        wanted = _finish_reassignment(_wanted(partition, target))
        leader, unclean = self._elect(partition, wanted, target.election)
        named = leader if unclean or leader != partition.leader else NO_LEADER_CHANGE
        isr: tuple[int, ...] | None = None
        if unclean:
            isr = (leader,)
        elif wanted.isr and wanted.isr != partition.isr:  # never an empty ISR: the last member keeps the data
            isr = wanted.isr
        if named == NO_LEADER_CHANGE and (
            _loses(partition.replicas, wanted.replicas)
            or (self.bumps_on_shrink and isr is not None and _loses(partition.isr, isr))
        ):
            named = partition.leader  # a record that names the same leader raises the leader epoch
        changed = (
            isr,
            named,
            _if_changed(wanted.replicas, partition.replicas),
            _if_changed(wanted.removing, partition.removing_replicas),
            _if_changed(wanted.adding, partition.adding_replicas),
            self._recovery_change(partition, target, unclean=unclean),
            self._directories(partition, wanted.replicas, target.directory),
        )
        return None if changed == _UNCHANGED else changed

    def _elect(self, partition: PartitionRegistration, wanted: _Assignment, election: Election) -> tuple[int, bool]:
        """The leader, and whether its election is unclean."""
        candidates = wanted.replicas
        if election is Election.PREFERRED:
            # Without the preferred replica the present leader stays (``PartitionChangeBuilder.electPreferredLeader``).
            candidates = (*wanted.replicas[:1], partition.leader, *wanted.replicas[1:])
        elif partition.leader in wanted.isr and self.can_lead(partition.leader, partition):
            return partition.leader, False
        for candidate in candidates:  # in the order of the assignment, as in Kafka: the first is preferred
            if candidate in wanted.isr and self.can_lead(candidate, partition):
                return candidate, False
        if election is Election.UNCLEAN:
            for candidate in wanted.replicas:
                if self.can_lead(candidate, partition):
                    return candidate, True
        return NO_LEADER, False

    def _recovery_change(self, partition: PartitionRegistration, target: PartitionTarget, *, unclean: bool) -> int:
        # The new leader of an unclean election tells it is done with AlterPartition (KIP-704).
        if target.recovering is not None and target.recovering != partition.recovering:
            return int(target.recovering)
        if unclean and not partition.recovering and self._recovery:
            return int(LeaderRecoveryState.RECOVERING)
        return NO_RECOVERY_CHANGE

    def _directories(
        self, partition: PartitionRegistration, replicas: tuple[int, ...], moved: tuple[int, Uuid] | None
    ) -> tuple[Uuid, ...] | None:
        if not self.has_directories or not replicas or (moved is None and replicas == partition.replicas):
            return None
        current = partition.directories or (DIRECTORY_MIGRATING,) * len(partition.replicas)
        known = dict(zip(partition.replicas, current, strict=True))
        if moved is not None:
            known[moved[0]] = moved[1]
        wanted = tuple(known[b] if b in known else default_directory(self._image, b) for b in replicas)
        return _if_changed(wanted, current)


def present(
    image: MetadataImage, partitions: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, TopicImage, PartitionRegistration]]:
    """The partitions that still exist: some may have been deleted since the caller made its list."""
    for where in partitions:
        topic = image.topics.by_id.get(where[0])
        partition = None if topic is None else topic.partitions.get(where[1])
        if topic is not None and partition is not None:
            yield where, topic, partition


def leader_and_isr_changes(
    image: MetadataImage,
    context: Context,
    partitions: Iterable[TopicPartition],
    *,
    without: int | None = None,
    also: int | None = None,
) -> Iterator[PartitionChangeRecord]:
    """The records for partitions of a broker that leaves or arrives (see `ChangeRules`). A leaving broker is removed
    from the ISR. As its last member it stays in the ISR, and the partition has no leader."""
    rules = ChangeRules(image, context, without=without, also=also)
    unclean = UncleanElections(image, context)
    topic_id, election = None, Election.ONLINE
    differences: dict[tuple[Any, ...], _Difference | None] = {}  # a cluster has few different assignments
    for where, topic, partition in present(image, partitions):
        if topic.topic_id != topic_id:
            topic_id = topic.topic_id
            election = Election.UNCLEAN if unclean.enabled(topic.name) else Election.ONLINE
        like = (
            partition.replicas,
            partition.isr,
            partition.leader,
            partition.directories,
            partition.adding_replicas,
            partition.removing_replicas,
            partition.recovering,
            election is Election.UNCLEAN,
        )
        difference = differences.get(like, _UNCHANGED)
        if difference is _UNCHANGED:
            isr = tuple(b for b in partition.isr if b != without)
            difference = differences[like] = rules.difference(partition, PartitionTarget(isr=isr, election=election))
        if difference is not None:
            yield PartitionChangeRecord(where[1], where[0], *difference)


def _wanted(partition: PartitionRegistration, target: PartitionTarget) -> _Assignment:
    return _Assignment(
        partition.replicas if target.replicas is None else target.replicas,
        partition.isr if target.isr is None else target.isr,
        partition.removing_replicas if target.removing is None else target.removing,
        partition.adding_replicas if target.adding is None else target.adding,
    )


def _finish_reassignment(wanted: _Assignment) -> _Assignment:
    """The assignment after its reassignment, once every replica that stays is in sync."""
    if not wanted.removing and not wanted.adding:
        return wanted
    isr = tuple(b for b in wanted.isr if b not in wanted.removing)
    replicas = tuple(b for b in wanted.replicas if b not in wanted.removing)
    if not isr or not replicas or _loses(replicas, isr):
        return wanted
    return _Assignment(replicas, isr, (), ())


def _loses(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    return before is not after and any(member not in after for member in before)


def _if_changed(wanted: tuple[Uuid, ...] | tuple[int, ...], current: object) -> tuple[Any, ...] | None:
    return None if wanted == current else wanted
