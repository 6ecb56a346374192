"""CreatePartitions: adds partitions to existing topics. Pure.

`migrator.apis.topics` calls it. Each topic is decided separately: a refused topic gets no records, the others do. The
number of partitions never falls, and new replicas are placed by `assignments` unless the request names them. Source:
Kafka's ``ReplicationControlManager.createPartitions``.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.controller.assignments import NO_ACTIVE_BROKER, NewPartitions, check_assignment, no_active_broker
from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError, check_size, decided
from migrator.controller.mutation_quotas import UNLIMITED, MutationQuota
from migrator.controller.placement import Assignment, place
from migrator.image.model import MetadataImage
from migrator.records.metadata import MetadataRecord, PartitionRecord
from migrator.values import value


@value
class MorePartitions:
    """``count``: the number of partitions afterwards; ``assignments`` None lets the controller place the replicas."""

    topic: str
    count: int
    assignments: tuple[Assignment, ...] | None = None


@value
class CreatePartitionsRequest:
    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, context: Context, quota: MutationQuota = UNLIMITED
) -> Decision[tuple[tuple[str, ApiError], ...]]:
    """Add partitions to topics. Each topic is decided separately.

    :raises RefusedError: POLICY_VIOLATION when the request needs too many records.
    """
    results: list[tuple[str, ApiError]] = []
    records: list[MetadataRecord] = []
    for topic in request.topics:
        try:
            added = _grow(image, topic, context, quota, room_taken=len(records))
        except RefusedError as refusal:
            if refusal.error.code is ErrorCode.policy_violation:
                raise
            results.append((topic.topic, refusal.error))
        else:
            records.extend(added)
            results.append((topic.topic, NO_ERROR))
    return decided(tuple(results), [] if request.validate_only else records)


def _grow(
    image: MetadataImage, wanted: MorePartitions, context: Context, quota: MutationQuota, *, room_taken: int
) -> list[PartitionRecord]:
    topic = image.topics.by_name(wanted.topic)
    if topic is None:
        raise RefusedError(ErrorCode.unknown_topic_or_partition)
    present = len(topic.partitions)
    additional = wanted.count - present
    if additional <= 0:
        message = f"Topic already has {present} partition(s)."
        if additional:
            has = f"The topic {wanted.topic} currently has {present} partition(s)"
            message = f"{has}; {wanted.count} would not be an increase."
        raise RefusedError(ErrorCode.invalid_partitions, message)
    check_size(room_taken + additional)
    factor = len(next(iter(topic.partitions.values())).replicas) if topic.partitions else 0
    given = wanted.assignments
    if given is not None and len(given) != additional:
        raise RefusedError(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {additional} additional partition(s), but only {len(given)} assignment(s) were "
            "specified.",
        )
    quota.charge(additional)
    if given is None:
        assignments = place(image, additional, factor, context.random)
        no_isr = ErrorCode.invalid_replication_factor
    else:
        assignments, no_isr = list(given), ErrorCode.invalid_replica_assignment
    records: list[PartitionRecord] = []
    new = NewPartitions(image)
    for number, replicas in enumerate(assignments, present):
        if wanted.assignments is not None:
            check_assignment(image, replicas, factor)
        if not new.isr(replicas):
            unable = f"Unable to replicate the partition {factor} time(s): {NO_ACTIVE_BROKER}"
            raise RefusedError(no_isr, unable if given is None else no_active_broker(number))
        records.append(new.record(topic.topic_id, number, replicas))
    return records
