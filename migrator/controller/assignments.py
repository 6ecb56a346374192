"""New partitions: from an assignment, the operator's or the placer's, to the record. Shared by CreateTopics,
CreatePartitions and reassignments. Source: Kafka's ``ReplicationControlManager``."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from migrator.controller.brokers_view import default_directory, is_active
from migrator.controller.context import supports
from migrator.controller.decision import RefusedError
from migrator.controller.placement import Assignment
from migrator.image.model import MetadataImage
from migrator.records.metadata import LeaderRecoveryState, PartitionRecord
from migrator.records.uuid import Uuid
from migrator.records.versions import MinLevel


def check_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None = None) -> None:
    """Check an assignment that an operator gave.

    :param replication_factor: of the topic's other partitions, if it has any.
    :raises RefusedError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not replicas:
        raise RefusedError(ErrorCode.invalid_replica_assignment, "An assignment names no broker.")
    for broker_id in sorted(replicas):
        if broker_id not in image.cluster.brokers:
            raise RefusedError(
                ErrorCode.invalid_replica_assignment,
                f"An assignment names broker {broker_id}, which is not registered.",
            )
        if replicas.count(broker_id) > 1:
            raise RefusedError(
                ErrorCode.invalid_replica_assignment, f"An assignment names broker {broker_id} more than once."
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        raise RefusedError(
            ErrorCode.invalid_replica_assignment,
            f"An assignment has {len(replicas)} replicas; the topic's other partitions have {replication_factor}.",
        )


def active_replicas(image: MetadataImage, replicas: Assignment) -> tuple[int, ...]:
    """The replicas that can be in sync from the start: those on active brokers."""
    brokers = image.cluster.brokers
    return tuple(broker_id for broker_id in replicas if is_active(brokers.get(broker_id)))


def new_partition(
    image: MetadataImage, topic_id: Uuid, number: int, replicas: Assignment, isr: tuple[int, ...]
) -> PartitionRecord:
    """The record of a new partition; the first member of its ISR leads."""
    directories = supports(image, MinLevel.DIRECTORY_ASSIGNMENT)
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        removing_replicas=(),
        adding_replicas=(),
        leader=isr[0],
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(default_directory(image, broker_id) for broker_id in replicas) if directories else (),
    )
