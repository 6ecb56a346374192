"""CreateTopics, DeleteTopics, CreatePartitions and the placing of replicas.

Cases of Kafka's ReplicationControlManagerTest and StripedReplicaPlacerTest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.effective import ConfigSource
from migrator.controller.partitions import CreatePartitionsRequest, MorePartitions, create_partitions
from migrator.controller.placement import place
from migrator.controller.topics import CreateTopicsRequest, NewTopic, TopicResult, create_topics, delete_topics
from migrator.image.model import EMPTY_IMAGE, BrokerRegistration, ClusterImage, ConfigResource, MetadataImage
from migrator.records.metadata import (
    ConfigRecord,
    ConfigResourceType,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from migrator.records.uuid import DIRECTORY_UNASSIGNED, ZERO_UUID
from tests.controller.support.leading_controller import LeadingController, some_uuid


def create(controller: LeadingController, *topics: NewTopic, **options: Any) -> tuple[TopicResult, ...]:
    return controller.decide(create_topics, CreateTopicsRequest(topics, **options))


def code(controller: LeadingController, topic: NewTopic) -> ErrorCode:
    written = controller.next_offset
    (result,) = create(controller, topic)
    assert controller.next_offset == written, "a refused topic leaves nothing behind"
    return result.error.code


@pytest.fixture
def controller() -> LeadingController:
    controller = LeadingController()
    controller.start([0, 1, 2])
    return controller


def test_create_topic_with_assignment(controller: LeadingController) -> None:
    (result,) = create(
        controller, NewTopic("foo", assignments=((0, (1, 2, 0)), (1, (2, 0, 1))), configs=(("retention.ms", "5"),))
    )
    assert not result.error.is_failure
    topic, config, first, second = controller.history[-4:]
    assert topic == TopicRecord("foo", result.topic_id)
    assert config == ConfigRecord(ConfigResourceType.TOPIC, "foo", "retention.ms", "5")
    assert isinstance(first, PartitionRecord)
    assert (first.replicas, first.isr, first.leader, first.leader_epoch, first.partition_epoch) == (
        (1, 2, 0), (1, 2, 0), 1, 0, 0,
    )  # fmt: skip
    assert first.directories == tuple(some_uuid(10_000 + b) for b in (1, 2, 0))
    assert isinstance(second, PartitionRecord)


def test_new_partitions_keep_fenced_brokers_out_of_the_isr(controller: LeadingController) -> None:
    controller.beat(1, want_fence=True)
    create(controller, NewTopic("foo", assignments=((0, (1, 2)),)))
    assert (controller.partition("foo").isr, controller.partition("foo").leader) == ((2,), 2)


def test_brokers_with_several_directories_choose_themselves(controller: LeadingController) -> None:
    controller.start([5], log_dirs=(some_uuid(1), some_uuid(2)))
    create(controller, NewTopic("foo", assignments=((0, (5, 1)),)))
    assert controller.partition("foo").directories == (DIRECTORY_UNASSIGNED, some_uuid(10_001))


def test_no_directories_below_their_level() -> None:
    controller = LeadingController(level=16)
    controller.start([1])
    create(controller, NewTopic("foo"))
    record = controller.history[-1]
    assert isinstance(record, PartitionRecord)
    assert record.directories == ()


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "a b", "ä"])
def test_invalid_names(controller: LeadingController, name: str) -> None:
    assert code(controller, NewTopic(name)) is ErrorCode.invalid_topic_exception


def test_topic_with_collision_chars(controller: LeadingController) -> None:
    create(controller, NewTopic("a.b"))
    assert code(controller, NewTopic("a_b")) is ErrorCode.invalid_topic_exception
    assert code(controller, NewTopic("a.b")) is ErrorCode.topic_already_exists
    controller.decide(delete_topics, (controller.image.topics.ids["a.b"],))
    assert not create(controller, NewTopic("a_b"))[0].error.is_failure


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NewTopic("t", replication_factor=0), ErrorCode.invalid_replication_factor),
        (NewTopic("t", replication_factor=-2), ErrorCode.invalid_replication_factor),
        (NewTopic("t", replication_factor=4), ErrorCode.invalid_replication_factor),
        (NewTopic("t", partitions=0), ErrorCode.invalid_partitions),
        (NewTopic("t", partitions=-2), ErrorCode.invalid_partitions),
        (NewTopic("t", partitions=1, assignments=((0, (1,)),)), ErrorCode.invalid_request),
        (NewTopic("t", replication_factor=1, assignments=((0, (1,)),)), ErrorCode.invalid_request),
        (NewTopic("t", assignments=((0, (1,)), (0, (1,)))), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", assignments=((0, (1,)), (2, (1,)))), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", assignments=((1, (1,)),)), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", assignments=((0, ()),)), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", assignments=((0, (1, 1)),)), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", assignments=((0, (1, 9)),)), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", assignments=((0, (1, 2)), (1, (1,)))), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", configs=(("retention.ms", None),)), ErrorCode.invalid_config),
        (NewTopic("t", configs=(("no.such.key", "1"),)), ErrorCode.invalid_config),
        (NewTopic("t", configs=(("retention.ms", "x"),)), ErrorCode.invalid_config),
    ],
)  # fmt: skip
def test_refusals(controller: LeadingController, topic: NewTopic, expected: ErrorCode) -> None:
    assert code(controller, topic) is expected


def test_create_topics_with_all_brokers_fenced() -> None:
    controller = LeadingController()
    controller.register(1)
    assert code(controller, NewTopic("t")) is ErrorCode.invalid_replication_factor
    assert code(controller, NewTopic("t", assignments=((0, (1,)),))) is ErrorCode.invalid_replica_assignment


def test_defaults_come_from_the_settings() -> None:
    controller = LeadingController(num_partitions=4, default_replication_factor=2)
    controller.start([0, 1, 2])
    create(controller, NewTopic("t"))
    topic = controller.image.topics.by_name("t")
    assert topic is not None
    assert len(topic.partitions) == 4
    assert all(len(partition.replicas) == 2 for partition in topic.partitions.values())


def test_validate_only_answers_and_writes_nothing(controller: LeadingController) -> None:
    written = controller.next_offset
    (result,) = create(controller, NewTopic("t", partitions=3), validate_only=True, describable=frozenset({"t"}))
    assert (result.error.is_failure, result.partitions, result.replication_factor) == (False, 3, 1)
    assert controller.next_offset == written


def test_refused_topics_do_not_stop_the_others(controller: LeadingController) -> None:
    results = create(controller, NewTopic("a"), NewTopic("!"), NewTopic("b"))
    assert [result.error.is_failure for result in results] == [False, True, False]
    assert set(controller.image.topics.ids) == {"a", "b"}


@pytest.mark.parametrize("partitions", [10_000, 2**31 - 1])
def test_excessively_large_topics_batch(controller: LeadingController, partitions: int) -> None:
    with pytest.raises(RefusedError) as refusal:
        create(controller, NewTopic("t", partitions=partitions))
    assert refusal.value.error.code is ErrorCode.policy_violation
    assert not create(controller, NewTopic("t", partitions=9_999))[0].error.is_failure


def test_the_answer_describes_the_configuration_to_who_may_see_it() -> None:
    controller = LeadingController(explicit={"log.retention.hours": "2", "compression.type": "zstd"})
    controller.start([0])
    controller.write(
        ConfigRecord(ConfigResourceType.BROKER, "", "min.insync.replicas", "2"),
        ConfigRecord(ConfigResourceType.BROKER, "3000", "log.flush.interval.ms", "7"),
    )
    topic = NewTopic("t", configs=(("cleanup.policy", "compact"),))
    (result,) = create(controller, topic, describable=frozenset({"t"}))
    assert result.configs is not None
    found = {config.name: (config.value, config.source) for config in result.configs}
    assert list(found) == sorted(found)
    assert found["cleanup.policy"] == ("compact", ConfigSource.DYNAMIC_TOPIC)
    assert found["retention.ms"] == ("7200000", ConfigSource.STATIC_BROKER)
    assert found["compression.type"] == ("zstd", ConfigSource.STATIC_BROKER)
    assert found["min.insync.replicas"] == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert found["flush.ms"] == ("7", ConfigSource.DYNAMIC_BROKER)
    assert found["segment.bytes"] == ("1073741824", ConfigSource.DEFAULT)
    assert create(controller, NewTopic("u"))[0].configs is None


def test_delete_topics(controller: LeadingController) -> None:
    (created,) = create(controller, NewTopic("t", configs=(("retention.ms", "5"),)))
    results = controller.decide(delete_topics, (created.topic_id, ZERO_UUID))
    assert [error.code for _, error in results] == [ErrorCode.none, ErrorCode.unknown_topic_id]
    assert controller.history[-2:] == [
        ConfigRecord(ConfigResourceType.TOPIC, "t", "retention.ms", None),
        RemoveTopicRecord(created.topic_id),
    ]
    assert ConfigResource(ConfigResourceType.TOPIC, "t") not in controller.image.configs


def test_create_partitions(controller: LeadingController) -> None:
    controller.create("t", (0, 1))
    (error,) = controller.decide(create_partitions, CreatePartitionsRequest((MorePartitions("t", 3),)))
    assert error[1].code is ErrorCode.none
    topic = controller.image.topics.by_name("t")
    assert topic is not None
    assert [len(topic.partitions[n].replicas) for n in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (MorePartitions("nope", 3), ErrorCode.unknown_topic_or_partition),
        (MorePartitions("t", 2), ErrorCode.invalid_partitions),
        (MorePartitions("t", 1), ErrorCode.invalid_partitions),
        (MorePartitions("t", 0), ErrorCode.invalid_partitions),
        (MorePartitions("t", 3, ()), ErrorCode.invalid_replica_assignment),
        (MorePartitions("t", 3, ((0, 1), (1, 2))), ErrorCode.invalid_replica_assignment),
        (MorePartitions("t", 3, ((0,),)), ErrorCode.invalid_replica_assignment),
        (MorePartitions("t", 3, ((0, 9),)), ErrorCode.invalid_replica_assignment),
        (MorePartitions("t", 4, ((0, 1), (2,))), ErrorCode.invalid_replica_assignment),
    ],
)
def test_create_partitions_fails(controller: LeadingController, wanted: MorePartitions, expected: ErrorCode) -> None:
    controller.create("t", (0, 1), (1, 2))
    written = controller.next_offset
    (result,) = controller.decide(create_partitions, CreatePartitionsRequest((wanted,)))
    assert result[1].code is expected
    assert controller.next_offset == written


def test_create_partitions_with_all_brokers_fenced(controller: LeadingController) -> None:
    controller.create("t", (0, 1))
    for broker_id in (0, 1, 2):
        controller.beat(broker_id, want_fence=True)
    request = (MorePartitions("t", 2), MorePartitions("t", 2, ((0, 1),)))
    results = controller.decide(create_partitions, CreatePartitionsRequest(request))
    codes = [error.code for _, error in results]
    assert codes == [ErrorCode.invalid_replication_factor, ErrorCode.invalid_replica_assignment]


def test_create_partitions_validate_only(controller: LeadingController) -> None:
    controller.create("t", (0,))
    written = controller.next_offset
    controller.decide(create_partitions, CreatePartitionsRequest((MorePartitions("t", 2),), validate_only=True))
    assert controller.next_offset == written


def cluster(racks: dict[int, str | None], fenced: frozenset[int] = frozenset()) -> MetadataImage:
    brokers = {
        b: BrokerRegistration(b, b, ZERO_UUID, False, (), (), rack, b in fenced, False, ()) for b, rack in racks.items()
    }
    return replace(EMPTY_IMAGE, cluster=ClusterImage(Map(brokers), Map()))


racks = st.dictionaries(st.integers(0, 9), st.sampled_from([None, "a", "b", "c"]), min_size=1)


@given(racks, st.data())
def test_replicas_are_distinct_spread_over_racks_and_led_by_unfenced_brokers(
    by_broker: dict[int, str | None], data: st.DataObject
) -> None:
    fenced = data.draw(st.sets(st.sampled_from(sorted(by_broker)), max_size=len(by_broker) - 1).map(frozenset))
    factor = data.draw(st.integers(1, len(by_broker)))
    placed = place(cluster(by_broker, fenced), data.draw(st.integers(1, 30)), factor, Random(data.draw(st.integers())))
    members = Counter(by_broker.values())
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert replicas[0] not in fenced
        used = Counter(by_broker[b] for b in replicas)
        for rack, count in used.items():
            others = [r for r in members if r != rack and used[r] < members[r]]
            assert all(count <= used[other] + 2 for other in others), (replicas, used)


def test_even_distribution() -> None:
    placed = place(cluster(dict.fromkeys(range(4))), 200, 2, Random(1))
    leaders = Counter(replicas[0] for replicas in placed)
    held = Counter(b for replicas in placed for b in replicas)
    assert set(leaders.values()) == {50}
    assert max(held.values()) - min(held.values()) <= 40


def test_racks_of_one_broker_get_one_replica_each() -> None:
    placed = place(cluster({0: "a", 1: "b", 2: "c"}), 30, 3, Random(2))
    assert all(sorted(replicas) == [0, 1, 2] for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}


def test_brokers_in_controlled_shutdown_get_no_replicas(controller: LeadingController) -> None:
    controller.create("x", (0, 1))
    controller.beat(0, want_shut_down=True)
    assert all(set(replicas) == {1, 2} for replicas in place(controller.image, 20, 2, Random(0)))
