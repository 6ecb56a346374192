"""AlterPartitionReassignments and ListPartitionReassignments.

While a reassignment runs, ``replicas`` has the target followed by the replicas to remove. It ends when every target
replica is in sync (`partition_change`). Source: Kafka's ``ReplicationControlManager``,
``PartitionReassignmentReplicas``, ``PartitionReassignmentRevert``.
"""

from __future__ import annotations

from collections.abc import Iterator

from kio.schema.errors import ErrorCode

from migrator.controller.assignments import check_assignment
from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError, decided
from migrator.controller.effective import UncleanElections
from migrator.controller.index import ControllerIndex, is_reassigning
from migrator.controller.partition_change import ChangeRules, Election, PartitionTarget
from migrator.image.model import MetadataImage, PartitionRegistration
from migrator.records.metadata import MetadataRecord
from migrator.records.uuid import Uuid
from migrator.values import value


@value
class WantedAssignment:
    """``replicas`` None cancels the partition's running reassignment."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@value
class ReassignmentResult:
    topic: str
    partition: int
    error: ApiError


@value
class RunningReassignment:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def alter_reassignments(
    image: MetadataImage, request: tuple[WantedAssignment, ...], context: Context
) -> Decision[tuple[ReassignmentResult, ...]]:
    """Begin, change and cancel reassignments. Each partition is decided separately.

    :raises RefusedError: POLICY_VIOLATION.
    """
    rules = ChangeRules(image, context)
    unclean = UncleanElections(image, context)
    results: list[ReassignmentResult] = []
    records: list[MetadataRecord] = []
    for wanted in request:
        try:
            topic_id, partition = _find(image, wanted)
            if wanted.replicas is None:
                target = _original(wanted, partition, allow_unclean=unclean.enabled(wanted.topic))
            else:
                check_assignment(image, wanted.replicas)
                target = _target(partition, wanted.replicas)
        except RefusedError as refusal:
            results.append(ReassignmentResult(wanted.topic, wanted.partition, refusal.error))
            continue
        record = rules.change((topic_id, wanted.partition), partition, target)
        if record is not None:
            records.append(record)
        results.append(ReassignmentResult(wanted.topic, wanted.partition, NO_ERROR))
    return decided(tuple(results), records)


def list_reassignments(
    image: MetadataImage, index: ControllerIndex, topics: tuple[tuple[str, tuple[int, ...]], ...] | None
) -> Iterator[RunningReassignment]:
    """Running reassignments, of all partitions when ``topics`` is None; unknown ones are left out."""
    if topics is None:
        for topic_id, number in index.reassigning:  # the index is at the log's end, the image may be an earlier one
            topic = image.topics.by_id.get(topic_id)
            partition = None if topic is None else topic.partitions.get(number)
            if topic is not None and partition is not None and is_reassigning(partition):
                yield _running(topic.name, number, partition)
        return
    for name, numbers in topics:
        found = image.topics.by_name(name)
        for number in numbers if found is not None else ():
            partition = found.partitions.get(number) if found is not None else None
            if partition is not None and is_reassigning(partition):
                yield _running(name, number, partition)


def _running(topic: str, number: int, partition: PartitionRegistration) -> RunningReassignment:
    return RunningReassignment(
        topic, number, partition.replicas, partition.adding_replicas, partition.removing_replicas
    )


def _find(image: MetadataImage, wanted: WantedAssignment) -> tuple[Uuid, PartitionRegistration]:
    topic = image.topics.by_name(wanted.topic)
    partition = None if topic is None else topic.partitions.get(wanted.partition)
    if topic is None or partition is None:
        missing = f"a topic named {wanted.topic}" if topic is None else f"partition {wanted.topic}:{wanted.partition}"
        raise RefusedError(ErrorCode.unknown_topic_or_partition, f"Unable to find {missing}.")
    return topic.topic_id, partition


def _target(partition: PartitionRegistration, replicas: tuple[int, ...]) -> PartitionTarget:
    # Kafka sorts both sets. The replicas to remove come last, and stay until the others are in sync
    # (``PartitionReassignmentReplicas``).
    removing = tuple(sorted(set(partition.replicas) - set(replicas)))
    adding = tuple(sorted(set(replicas) - set(partition.replicas)))
    return PartitionTarget(replicas=replicas + removing, removing=removing or None, adding=adding or None)


def _original(wanted: WantedAssignment, partition: PartitionRegistration, *, allow_unclean: bool) -> PartitionTarget:
    """The assignment before the reassignment. If only new replicas are in sync, going back would lose data."""
    if not is_reassigning(partition):
        raise RefusedError(ErrorCode.no_reassignment_in_progress)
    adding = partition.adding_replicas
    replicas = tuple(broker_id for broker_id in partition.replicas if broker_id not in adding)
    isr = tuple(broker_id for broker_id in partition.isr if broker_id not in adding)
    if not isr:
        if not replicas:
            raise RefusedError(ErrorCode.invalid_replica_assignment, "No replica would remain.")
        if not allow_unclean:
            raise RefusedError(
                ErrorCode.invalid_replica_assignment,
                f"Unable to revert partition assignment for {wanted.topic}:{wanted.partition} because it would require "
                "an unclean leader election.",
            )
        isr = replicas[:1]
    return PartitionTarget(
        isr=isr,
        replicas=replicas,
        removing=(),
        adding=(),
        election=Election.UNCLEAN if allow_unclean else Election.ONLINE,
    )
