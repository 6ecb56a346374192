"""AssignReplicasToDirs (KIP-858): a broker reports the log directory of each of its replicas. Pure.

`migrator.apis.brokers` calls it. The answer has an error or none for each replica. A replica in a directory that is not
online leaves its ISR. Source: Kafka's ``ReplicationControlManager.handleAssignReplicasToDirs``.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.controller.brokers_view import check_broker_epoch, is_online
from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.index import TopicPartition
from migrator.controller.partition_change import ChangeRules, PartitionTarget, leader_and_isr_changes
from migrator.image.model import MetadataImage
from migrator.records.metadata import MetadataRecord
from migrator.records.uuid import Uuid
from migrator.records.versions import MinLevel
from migrator.values import value


@value
class ReplicaDirectory:
    directory: Uuid
    topic_id: Uuid
    partition: int


@value
class AssignDirectoriesRequest:
    broker_id: int
    broker_epoch: int
    replicas: tuple[ReplicaDirectory, ...]


def assign_directories(
    image: MetadataImage, request: AssignDirectoriesRequest, context: Context
) -> Decision[tuple[ErrorCode, ...]]:
    """Record the directories. Replicas in a directory that is not online leave their ISR. The answer has an error code,
    or none, for each replica in the order of the request.

    :raises RefusedError: UNSUPPORTED_VERSION below metadata.version 3.7-IV2; STALE_BROKER_EPOCH.
    """
    if not supports(image, MinLevel.DIRECTORY_ASSIGNMENT):
        raise RefusedError(
            ErrorCode.unsupported_version, "Log directories can be assigned from metadata.version 3.7-IV2 on."
        )
    broker_id = request.broker_id
    registration = check_broker_epoch(image, broker_id, request.broker_epoch)
    rules = ChangeRules(image, context)
    results: list[ErrorCode] = []
    records: list[MetadataRecord] = []
    offline: dict[TopicPartition, None] = {}
    for replica in request.replicas:
        topic = image.topics.by_id.get(replica.topic_id)
        partition = None if topic is None else topic.partitions.get(replica.partition)
        if topic is None or partition is None:
            unknown = ErrorCode.unknown_topic_id if topic is None else ErrorCode.unknown_topic_or_partition
            results.append(unknown)
            continue
        if broker_id not in partition.replicas:
            results.append(ErrorCode.not_leader_or_follower)
            continue
        where = (replica.topic_id, replica.partition)
        record = rules.change(where, partition, PartitionTarget(directory=(broker_id, replica.directory)))
        if record is not None:
            records.append(record)
        if not is_online(replica.directory, registration):
            offline[where] = None
        results.append(ErrorCode.none)
    records.extend(leader_and_isr_changes(image, context, offline, without=broker_id))
    return Decision(tuple(results), records, atomic=False)
