from __future__ import annotations

import io
import uuid
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.leader_and_isr.v7 import request as lisr
from kio.schema.stop_replica.v4 import request as stop
from kio.schema.update_metadata.v8 import request as umr
from kio.serial import entity_reader, entity_writer

from migrator.image.model import BrokerRegistration, PartitionRegistration, TopicImage
from migrator.records.metadata import Endpoint
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.turns import TURN_RECORDS
from migrator.wire.legacy.encode import RequestEncoder
from migrator.wire.legacy.messages import (
    LeaderAndIsr,
    LiveLeader,
    SendingController,
    StoppedPartition,
    StoppedTopic,
    StopReplica,
    TopicPartitions,
    UpdateMetadata,
    UpdateType,
)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
replicas = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 5), max_size=4, unique=True).map(tuple)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("x" * 249)
controllers = st.builds(SendingController, int32s, int32s, int32s)
states = st.builds(PartitionRegistration, replicas, replicas, replicas, replicas, int32s, st.booleans(), int32s, int32s)
topic_ids = st.binary(min_size=16, max_size=16).map(Uuid)
topic_images = st.builds(TopicImage, names, topic_ids, st.dictionaries(int32s, states, max_size=4))


@st.composite
def topic_partitions(draw: st.DrawFn) -> TopicPartitions:
    topic = draw(topic_images)
    if draw(st.booleans()):
        return TopicPartitions(topic)
    return TopicPartitions(topic, tuple(number for number in topic.partitions if draw(st.booleans())))


topics = st.lists(topic_partitions(), max_size=4).map(tuple)
endpoints = st.builds(Endpoint, names, names, st.integers(0, 65535), st.integers(0, 3))
brokers = st.builds(
    lambda broker_id, listeners, rack: BrokerRegistration(
        broker_id, 5, ZERO_UUID, True, listeners, (), rack, False, False, ()
    ),
    st.integers(0, 5),
    st.lists(endpoints, max_size=3).map(tuple),
    st.none() | names,
)


def kio_bytes(message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def kio_id(topic_id: Uuid) -> uuid.UUID | None:
    return None if topic_id == ZERO_UUID else uuid.UUID(bytes=bytes(topic_id))


@given(
    controllers,
    int64s,
    st.builds(UpdateMetadata, st.sampled_from(UpdateType), topics, st.lists(brokers, max_size=3).map(tuple)),
)
def test_update_metadata_is_what_kio_writes(
    controller: SendingController, broker_epoch: int, request: UpdateMetadata
) -> None:
    registered = {broker.broker_id for broker in request.brokers}
    expected = umr.UpdateMetadataRequest(
        controller_id=controller.controller_id,
        is_k_raft_controller=True,
        type_=int(request.type),
        controller_epoch=controller.controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=tuple(
            umr.UpdateMetadataTopicState(
                topic_name=part.topic.name,
                topic_id=kio_id(part.topic.topic_id),
                partition_states=tuple(
                    umr.UpdateMetadataPartitionState(
                        partition_index=number,
                        controller_epoch=controller.kraft_epoch,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=state.isr,
                        zk_version=state.partition_epoch,
                        replicas=state.replicas,
                        offline_replicas=tuple(replica for replica in state.replicas if replica not in registered),
                    )
                    for number, state in part.states()
                ),
            )
            for part in request.topics
        ),
        live_brokers=tuple(
            umr.UpdateMetadataBroker(
                id_=broker.broker_id,
                endpoints=tuple(
                    umr.UpdateMetadataEndpoint(
                        port=end.port, host=end.host, listener=end.name, security_protocol=end.security_protocol
                    )
                    for end in broker.listeners
                ),
                rack=broker.rack,
            )
            for broker in request.brokers
        ),
    )
    encoder = RequestEncoder(controller)
    for _ in range(2):  # the second time from what the encoder remembers
        written = encoder.header(broker_epoch) + b"".join(encoder.update_metadata_body(request))
        assert written == kio_bytes(expected)
    assert entity_reader(umr.UpdateMetadataRequest)(written, 0) == (expected, len(written))


@given(
    controllers,
    int64s,
    st.builds(
        LeaderAndIsr,
        st.sampled_from(UpdateType),
        topics,
        st.lists(st.builds(LiveLeader, int32s, names, int32s), max_size=3).map(tuple),
    ),
)
def test_leader_and_isr_is_what_kio_writes(
    controller: SendingController, broker_epoch: int, request: LeaderAndIsr
) -> None:
    expected = lisr.LeaderAndIsrRequest(
        controller_id=controller.controller_id,
        is_k_raft_controller=True,
        controller_epoch=controller.controller_epoch,
        broker_epoch=broker_epoch,
        type_=int(request.type),
        topic_states=tuple(
            lisr.LeaderAndIsrTopicState(
                topic_name=part.topic.name,
                topic_id=kio_id(part.topic.topic_id),
                partition_states=tuple(
                    lisr.LeaderAndIsrPartitionState(
                        partition_index=number,
                        controller_epoch=controller.kraft_epoch,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=state.isr,
                        partition_epoch=state.partition_epoch,
                        replicas=state.replicas,
                        adding_replicas=state.adding_replicas,
                        removing_replicas=state.removing_replicas,
                        is_new=True,
                        leader_recovery_state=int(state.recovering),
                    )
                    for number, state in part.states()
                ),
            )
            for part in request.topics
        ),
        live_leaders=tuple(
            lisr.LeaderAndIsrLiveLeader(broker_id=leader.broker_id, host_name=leader.host, port=leader.port)
            for leader in request.live_leaders
        ),
    )
    encoder = RequestEncoder(controller)
    for _ in range(2):
        written = b"".join(encoder.leader_and_isr(request, broker_epoch))
        assert written == kio_bytes(expected)


stopped_partitions = st.builds(StoppedPartition, int32s, int32s, st.booleans())
stopped_topics = st.builds(StoppedTopic, names, st.lists(stopped_partitions, max_size=4).map(tuple))


@given(controllers, int64s, st.builds(StopReplica, st.lists(stopped_topics, max_size=4).map(tuple)))
def test_stop_replica_is_what_kio_writes(
    controller: SendingController, broker_epoch: int, request: StopReplica
) -> None:
    expected = stop.StopReplicaRequest(
        controller_id=controller.controller_id,
        is_k_raft_controller=True,
        controller_epoch=controller.controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=tuple(
            stop.StopReplicaTopicState(
                topic_name=topic.name,
                partition_states=tuple(
                    stop.StopReplicaPartitionState(
                        partition_index=partition.number,
                        leader_epoch=partition.leader_epoch,
                        delete_partition=partition.delete,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
    assert b"".join(RequestEncoder(controller).stop_replica(request, broker_epoch)) == kio_bytes(expected)


def test_big_requests_come_in_slices_of_bounded_size() -> None:
    state = PartitionRegistration((1, 2, 3), (1, 2, 3), (), (), 1, False, 0, 0)
    huge = TopicImage("huge", Uuid(bytes(15) + b"h"), dict.fromkeys(range(10000), state))
    small = [TopicImage(f"t{n}", Uuid(n.to_bytes(16, "big")), {0: state}) for n in range(1, 5_000)]
    request = UpdateMetadata(UpdateType.UNKNOWN, tuple(map(TopicPartitions, [*small, huge, *small])), ())
    chunks = list(RequestEncoder(SendingController(1, 1, 1)).update_metadata_body(request))
    assert len(chunks) > 20_000 // TURN_RECORDS
    assert max(map(len, chunks)) < 2 * TURN_RECORDS * 100
    closing = UpdateMetadata(UpdateType.FULL, tuple(TopicPartitions(topic, ()) for topic in small), ())
    assert (
        len(list(RequestEncoder(SendingController(1, 1, 1)).update_metadata_body(closing))) > len(small) // TURN_RECORDS
    )
