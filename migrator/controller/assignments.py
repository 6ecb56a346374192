"""Makes the records of new partitions from assignments of the operator or of `placement`, and checks assignments.

CreateTopics, CreatePartitions and reassignments use it. Source: Kafka's ``ReplicationControlManager``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.brokers_view import default_directory, is_active
from migrator.controller.context import supports
from migrator.controller.decision import RefusedError
from migrator.controller.placement import Assignment
from migrator.image.model import MetadataImage
from migrator.records.metadata import LeaderRecoveryState, PartitionRecord
from migrator.records.uuid import Uuid
from migrator.records.versions import MinLevel

EXCESSIVE: Final = "Excessively large number of partitions per request."
NO_ACTIVE_BROKER: Final = "All brokers are currently fenced or in controlled shutdown."


def no_active_broker(number: int) -> str:
    """The message for an assignment without an active broker."""
    return (
        f"All brokers specified in the manual partition assignment for partition {number} are fenced or in controlled "
        "shutdown."
    )


def check_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None = None) -> None:
    """Check an operator's assignment.

    :param replication_factor: that of the topic's other partitions, if there are any.
    :raises RefusedError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not replicas:
        raise RefusedError(
            ErrorCode.invalid_replica_assignment, "The manual partition assignment includes an empty replica list."
        )
    for broker_id in sorted(replicas):
        if broker_id not in image.cluster.brokers:
            raise RefusedError(
                ErrorCode.invalid_replica_assignment,
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.",
            )
        if replicas.count(broker_id) > 1:
            raise RefusedError(
                ErrorCode.invalid_replica_assignment,
                f"The manual partition assignment includes the broker {broker_id} more than once.",
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        raise RefusedError(
            ErrorCode.invalid_replica_assignment,
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s).",
        )


class NewPartitions:
    """Makes the records of one request's new partitions. Results that depend only on a list of replicas are cached: a
    request may create thousands of partitions, and a cluster has few different lists."""

    def __init__(self, image: MetadataImage) -> None:
        self._brokers = image.cluster.brokers
        self._image = image
        self._with_directories = supports(image, MinLevel.DIRECTORY_ASSIGNMENT)
        self._isr: dict[Assignment, tuple[int, ...]] = {}
        self._directories: dict[Assignment, tuple[Uuid, ...]] = {}

    def isr(self, replicas: Assignment) -> tuple[int, ...]:
        """The replicas that can be in sync from the start: those on active brokers."""
        found = self._isr.get(replicas)
        if found is None:
            found = tuple(broker_id for broker_id in replicas if is_active(self._brokers.get(broker_id)))
            self._isr[replicas] = found
        return found

    def record(self, topic_id: Uuid, number: int, replicas: Assignment) -> PartitionRecord:
        """The record of a new partition. The first member of its ISR leads; the ISR must not be empty."""
        isr = self.isr(replicas)
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
            directories=self._directories_of(replicas),
        )

    def _directories_of(self, replicas: Assignment) -> tuple[Uuid, ...]:
        if not self._with_directories:
            return ()
        found = self._directories.get(replicas)
        if found is None:
            found = tuple(default_directory(self._image, broker_id) for broker_id in replicas)
            self._directories[replicas] = found
        return found
