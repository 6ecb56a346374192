"""Requests of brokers and controllers: registration, heartbeats, ISR changes, log directories, producer ids (APIs 62,
63, 64, 70, 56, 73, 67).

`registry` lists each function with its API; the active controller calls it with the image at the log's end. A function
turns kio's message into a request of `migrator.controller`, and the decision into kio's response. It decides nothing
itself, but refuses values that Kafka does not have. The right of the caller (`registry`) was checked before.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.call import Call
from migrator.apis.fields import uuid_in
from migrator.controller.alter_partition import (
    ANY_EPOCH,
    AlteredPartition,
    AlterPartitionRequest,
    IsrMember,
    WantedPartition,
    alter_partition,
)
from migrator.controller.brokers import RegistrationRequest, register_broker, unregister_broker
from migrator.controller.context import Context
from migrator.controller.controllers import register_controller
from migrator.controller.decision import ApiError, Decision, RefusedError
from migrator.controller.heartbeats import HeartbeatRequest, heartbeat
from migrator.controller.producer_ids import ProducerIdsRequest, allocate_producer_ids
from migrator.controller.replica_directories import AssignDirectoriesRequest, ReplicaDirectory, assign_directories
from migrator.image.model import ControllerRegistration, MetadataImage
from migrator.records.metadata import Endpoint, FeatureRange, LeaderRecoveryState
from migrator.records.uuid import Uuid

_BEFORE_TOPIC_IDS: Final = {
    ErrorCode.unknown_topic_id: ErrorCode.unknown_topic_or_partition,
    ErrorCode.ineligible_replica: ErrorCode.operation_not_attempted,
    ErrorCode.new_leader_elected: ErrorCode.fenced_leader_epoch,
}
"""The error codes that AlterPartition versions 0 and 1 have instead."""
_RECOVERY_STATES: Final = frozenset(
    int(state) for state in (LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING)
)


def broker_registration(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """BrokerRegistration 0-4."""
    body = call.body
    request = RegistrationRequest(
        broker_id=body.broker_id,
        cluster_id=body.cluster_id,
        incarnation_id=uuid_in(body.incarnation_id),
        listeners=_endpoints(body),
        features=_features(body),
        rack=body.rack,
        is_migrating_zk_broker=getattr(body, "is_migrating_zk_broker", False),
        log_dirs=tuple(uuid_in(directory) for directory in getattr(body, "log_dirs", ())),
    )
    decision = register_broker(image, request, context)
    return decision.answering(call.respond(broker_epoch=decision.response.broker_epoch))


def broker_heartbeat(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """BrokerHeartbeat 0-1."""
    body = call.body
    request = HeartbeatRequest(
        broker_id=body.broker_id,
        broker_epoch=body.broker_epoch,
        metadata_offset=body.current_metadata_offset,
        want_fence=body.want_fence,
        want_shut_down=body.want_shut_down,
        offline_log_dirs=tuple(uuid_in(directory) for directory in getattr(body, "offline_log_dirs", ())),
    )
    decision = heartbeat(image, request, context)
    answer = decision.response
    return decision.answering(
        call.respond(
            is_caught_up=answer.is_caught_up, is_fenced=answer.is_fenced, should_shut_down=answer.should_shut_down
        )
    )


def broker_removal(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """UnregisterBroker 0."""
    return unregister_broker(image, call.body.broker_id, context).answering(call.respond())


def refuse_broker_removal(call: Call, error: ApiError) -> Any:
    """UnregisterBroker refused: without a message, as in Kafka."""
    return call.respond(error_code=error.code)


def controller_registration(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """ControllerRegistration 0."""
    body = call.body
    request = ControllerRegistration(
        body.controller_id, uuid_in(body.incarnation_id), body.zk_migration_ready, _endpoints(body), _features(body)
    )
    return register_controller(image, request, context).answering(call.respond())


def producer_ids(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """AllocateProducerIds 0."""
    request = ProducerIdsRequest(call.body.broker_id, call.body.broker_epoch)
    decision = allocate_producer_ids(image, request, context)
    block = decision.response
    return decision.answering(call.respond(producer_id_start=block.first_id, producer_id_len=block.size))


def isr_change(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """AlterPartition 0-3. Versions below 2 name topics, below 3 ISR members have no epochs."""
    body = call.body
    if not body.topics:
        return Decision(call.respond())
    _check_recovery_states(body)
    topics = [(topic, _topic_id(topic, image)) for topic in body.topics]
    wanted = tuple(
        WantedPartition(
            topic_id=topic_id,
            partition=partition.partition_index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=_isr(partition),
            recovering=getattr(partition, "leader_recovery_state", 0) == LeaderRecoveryState.RECOVERING,
        )
        for topic, topic_id in topics
        for partition in topic.partitions
    )
    decision = alter_partition(image, AlterPartitionRequest(body.broker_id, body.broker_epoch, wanted), context)
    results = iter(decision.response)
    answered = tuple(
        {
            "topic_name": getattr(topic, "topic_name", ""),
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": tuple(
                _partition_result(call.version, partition.partition_index, next(results))
                for partition in topic.partitions
            ),
        }
        for topic, _ in topics
    )
    return decision.answering(call.respond(topics=answered))


def directory_assignment(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """AssignReplicasToDirs 0."""
    body = call.body
    replicas = tuple(
        ReplicaDirectory(uuid_in(directory.id_), uuid_in(topic.topic_id), partition.partition_index)
        for directory in body.directories
        for topic in directory.topics
        for partition in topic.partitions
    )
    decision = assign_directories(image, AssignDirectoriesRequest(body.broker_id, body.broker_epoch, replicas), context)
    results = iter(decision.response)
    directories = tuple(
        {
            "id_": directory.id_,
            "topics": tuple(
                {
                    "topic_id": topic.topic_id,
                    "partitions": tuple(
                        {"partition_index": partition.partition_index, "error_code": next(results)}
                        for partition in topic.partitions
                    ),
                }
                for topic in directory.topics
            ),
        }
        for directory in body.directories
    )
    return decision.answering(call.respond(directories=directories))


def _check_recovery_states(body: Any) -> None:
    rows = (partition for topic in body.topics for partition in topic.partitions)
    if any(getattr(row, "leader_recovery_state", 0) not in _RECOVERY_STATES for row in rows):
        raise RefusedError(ErrorCode.invalid_request, "There is no such leader recovery state.")


def _topic_id(topic: Any, image: MetadataImage) -> Uuid | None:
    if hasattr(topic, "topic_id"):
        return None if topic.topic_id is None else uuid_in(topic.topic_id)
    return image.topics.ids.get(topic.topic_name)


def _isr(partition: Any) -> tuple[IsrMember, ...]:
    if hasattr(partition, "new_isr_with_epochs"):
        return tuple(IsrMember(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs)
    return tuple(IsrMember(broker_id, ANY_EPOCH) for broker_id in partition.new_isr)


def _partition_result(version: int, number: int, result: ErrorCode | AlteredPartition) -> dict[str, Any]:
    if isinstance(result, AlteredPartition):
        return {
            "partition_index": number,
            "leader_id": result.leader,
            "leader_epoch": result.leader_epoch,
            "isr": result.isr,
            "leader_recovery_state": int(result.recovering),
            "partition_epoch": result.partition_epoch,
        }
    return {"partition_index": number, "error_code": _BEFORE_TOPIC_IDS.get(result, result) if version < 2 else result}


def _endpoints(body: Any) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(listener.name, listener.host, listener.port, listener.security_protocol) for listener in body.listeners
    )


def _features(body: Any) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(feature.name, feature.min_supported_version, feature.max_supported_version)
        for feature in body.features
    )
