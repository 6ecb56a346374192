"""AlterPartition: a partition's leader changes the ISR, or reports that it has recovered.

Error codes are those of request versions 2 and up; `migrator.apis` translates them for older versions. Source: Kafka's
``ReplicationControlManager.alterPartition``.
"""

from __future__ import annotations

from collections.abc import Collection

from kio.schema.errors import ErrorCode

from migrator.controller.brokers_view import check_broker_epoch
from migrator.controller.context import Context
from migrator.controller.decision import Decision
from migrator.controller.effective import UncleanElections
from migrator.controller.partition_change import ChangeRules, Election, PartitionTarget
from migrator.image.model import MetadataImage, PartitionRegistration, TopicImage
from migrator.records.metadata import (
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
)
from migrator.records.uuid import Uuid
from migrator.values import value

ANY_EPOCH = -1


@value
class IsrMember:
    """``epoch``: that of the broker, as the leader knows it; -1 if the request version has no such field."""

    broker_id: int
    epoch: int = ANY_EPOCH


@value
class WantedPartition:
    topic_id: Uuid | None
    """None when there is no topic of the requested name or id."""
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    recovering: bool = False


@value
class AlterPartitionRequest:
    broker_id: int
    broker_epoch: int
    partitions: tuple[WantedPartition, ...]


@value
class AlteredPartition:
    """The partition as it is after the decision."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovering: bool
    partition_epoch: int


AlterPartitionResponse = tuple[ErrorCode | AlteredPartition, ...]
"""One result for each partition, in the order of the request."""


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, context: Context
) -> Decision[AlterPartitionResponse]:
    """Decide on each partition on its own.

    :raises RefusedError: STALE_BROKER_EPOCH.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    rules = ChangeRules(image, context)
    unclean, being_fenced = UncleanElections(image, context), context.sessions.being_fenced
    results: list[ErrorCode | AlteredPartition] = []
    records: list[MetadataRecord] = []
    for wanted in request.partitions:
        topic = None if wanted.topic_id is None else image.topics.by_id.get(wanted.topic_id)
        if topic is None:
            results.append(ErrorCode.unknown_topic_id)
            continue
        partition = topic.partitions.get(wanted.partition)
        if partition is None:
            results.append(ErrorCode.unknown_topic_or_partition)
            continue
        error = _fault(image, being_fenced, request.broker_id, partition, wanted)
        if error is not None:
            results.append(error)
            continue
        record = _change(rules, unclean, topic, partition, wanted)
        if record is not None:
            records.append(record)
        results.append(_answer(request.broker_id, partition, record))
    return Decision(tuple(results), records, atomic=False)


def _change(
    rules: ChangeRules,
    unclean: UncleanElections,
    topic: TopicImage,
    partition: PartitionRegistration,
    wanted: WantedPartition,
) -> PartitionChangeRecord | None:
    target = PartitionTarget(
        isr=tuple(member.broker_id for member in wanted.isr),
        recovering=wanted.recovering,
        election=Election.UNCLEAN if unclean.enabled(topic.name) else Election.ONLINE,
    )
    return rules.change((topic.topic_id, wanted.partition), partition, target)


def _answer(
    broker_id: int, before: PartitionRegistration, record: PartitionChangeRecord | None
) -> ErrorCode | AlteredPartition:
    """The answer to the leader. When its change has ended a reassignment, another replica may lead now. Then the answer
    is an error that says so, although the change was made."""
    if record is None:
        return AlteredPartition(
            before.leader, before.leader_epoch, before.isr, before.recovering, before.partition_epoch
        )
    elects = record.leader != NO_LEADER_CHANGE
    if elects and record.leader != broker_id:
        return ErrorCode.new_leader_elected
    recovery = record.leader_recovery_state
    return AlteredPartition(
        leader=record.leader if elects else before.leader,
        leader_epoch=before.leader_epoch + elects,
        isr=before.isr if record.isr is None else record.isr,
        recovering=before.recovering if recovery == NO_RECOVERY_CHANGE else recovery == LeaderRecoveryState.RECOVERING,
        partition_epoch=before.partition_epoch + 1,
    )


def _fault(
    image: MetadataImage,
    being_fenced: Collection[int],
    broker_id: int,
    partition: PartitionRegistration,
    wanted: WantedPartition,
) -> ErrorCode | None:
    """The error of the first failing check, in Kafka's order (``validateAlterPartitionData``). Epochs above this node's
    show that it no longer leads."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        return ErrorCode.not_controller
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if broker_id != partition.leader:
        return ErrorCode.invalid_request
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    isr = [member.broker_id for member in wanted.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.invalid_request
    if wanted.recovering and (len(isr) > 1 or not partition.recovering):
        return ErrorCode.invalid_request
    if not all(_is_eligible(image, being_fenced, member) for member in wanted.isr):
        return ErrorCode.ineligible_replica
    return None


def _is_eligible(image: MetadataImage, being_fenced: Collection[int], member: IsrMember) -> bool:
    registration = image.cluster.brokers.get(member.broker_id)
    return (
        registration is not None
        and not registration.fenced
        and member.broker_id not in being_fenced
        and not registration.in_controlled_shutdown
        and member.epoch in (ANY_EPOCH, registration.epoch)
    )
