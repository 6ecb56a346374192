from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import turns
from migrator.image.model import MetadataImage, PartitionRegistration
from migrator.migration.broker_rpcs import requests as broker_rpcs
from migrator.migration.broker_rpcs.deltas import plan_delta
from migrator.migration.broker_rpcs.requests import (
    NOTHING_OPEN,
    RequestPlan,
    Terms,
    Told,
    first_updates,
    plan_full,
    plan_released,
    plan_takeover,
)
from migrator.records import metadata as rec
from migrator.wire.legacy.messages import (
    EPOCH_DURING_DELETE,
    LeaderAndIsr,
    LegacyRequest,
    LiveLeader,
    StoppedPartition,
    StopReplica,
    TopicPartitions,
    UpdateMetadata,
    UpdateType,
)
from tests.image.support.strategies import image_of, small_uuid
from tests.lanes import examples
from tests.migration.support.told_cluster import History, broker, change, complete, partition

TERMS = Terms("PLAINTEXT")
CONFIRMED = replace(TERMS, confirmed=True)
EVERYTHING = 10**9


def taken_over(image: MetadataImage, has_config: Container[str], predecessor_offset: int) -> RequestPlan:
    """All first requests of a new leader."""
    informing = [addressed for part in first_updates(image, TERMS) for addressed in part]
    plan = complete(plan_takeover(image, TERMS, has_config, predecessor_offset))
    return RequestPlan((*informing, *plan.sends), plan.told)


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32))
def test_whatever_happens_brokers_end_up_with_what_the_image_says(seed: int) -> None:
    history = History(seed)
    cluster, chance = history.cluster, history.random
    history.delta(12)
    predecessor = chance.randint(0, history.epoch)
    for broker_id, known in cluster.brokers.items():
        known.logs = cluster.assigned(broker_id) | {("gone", 0): small_uuid(999)}
        known.heard_leader_and_isr = known.epoch <= predecessor
    there = chance.choice([0.0, 0.8])  # without an answer from ZooKeeper, nothing is there
    has_config = {name for name in cluster.image.topics.ids if chance.random() < there}
    cluster.deliver(taken_over(cluster.image, has_config, predecessor))
    history.run(TERMS)
    if chance.random() < 0.3:
        reached = cluster.image.provenance.offset
        cluster.deliver(complete(plan_released(cluster.image, TERMS, cluster.told, reached)))
    for known in cluster.brokers.values():
        known.refused.clear()  # a namesake's log stood in the way, which only the full requests move aside
    newest = cluster.image.provenance.offset
    reached = chance.choice([newest, chance.randint(-1, newest)])
    cluster.confirmed = True
    cluster.deliver(complete(plan_full(cluster.image, TERMS, cluster.told, reached)))
    if reached == newest:
        assert cluster.told == Told({})
        cluster.check()
    history.run(CONFIRMED)
    if cluster.told.is_open:
        cluster.deliver(complete(plan_released(cluster.image, CONFIRMED, cluster.told, EVERYTHING)))
    assert not cluster.told.is_open
    cluster.check()


# One cluster, told in detail.

T1, T2, T3 = small_uuid(1), small_uuid(2), small_uuid(3)


BASE = image_of(
    [
        broker(0, 10),
        broker(1, 20),
        broker(2, 30, fenced=True),
        broker(3, 40, migrating=False),
        rec.TopicRecord("one", T1),
        partition(T1, 0, 0, 1),
        partition(T1, 1, 1, 2),
        rec.TopicRecord("two", T2),
        partition(T2, 0, 0, 3),
    ]
)


def requests(plan: RequestPlan, broker_id: int) -> list[LegacyRequest]:
    return [request for send in plan.sends if send.broker_id == broker_id for request in send.requests]


def told_of(request: LegacyRequest) -> list[tuple[str, int]]:
    assert not isinstance(request, StopReplica)
    return sorted((part.topic.name, number) for part in request.topics for number, _ in part.states())


def kinds(plan: RequestPlan, broker_id: int) -> list[tuple[type, int]]:
    return [
        (type(request), -1 if isinstance(request, StopReplica) else int(request.type))
        for request in requests(plan, broker_id)
    ]


def test_takeover_tells_everyone_of_everything_and_takes_nothing_away() -> None:
    plan = taken_over(BASE, {"one"}, 100)
    assert [(send.broker_id, send.broker_epoch) for send in plan.sends] == 2 * [(0, 10), (1, 20)]
    assert kinds(plan, 0) == kinds(plan, 1) == [(UpdateMetadata, 0), (LeaderAndIsr, 1)]
    update, leaders = requests(plan, 0)
    assert update is requests(plan, 1)[0], "one body for all brokers"
    assert isinstance(update, UpdateMetadata)
    assert told_of(update) == [("one", 0), ("one", 1), ("two", 0)]
    assert [known.broker_id for known in update.brokers] == [0, 1, 2, 3], "the fenced and those in KRaft mode too"
    assert isinstance(leaders, LeaderAndIsr)
    assert told_of(leaders) == [("one", 0)]
    assert leaders.live_leaders == tuple(LiveLeader(number, f"host{number}", 9092) for number in range(4))
    assert plan.told == Told({T2: BASE.provenance.offset})


def test_takeover_leaves_a_newly_started_broker_without_leader_and_isr_that_would_be_partial() -> None:
    plan = taken_over(BASE, {"one"}, 9)
    assert kinds(plan, 0) == [(UpdateMetadata, 0)]
    assert kinds(plan, 1) == [(UpdateMetadata, 0), (LeaderAndIsr, 1)], "new too, but told of all that it hosts"
    assert plan.told.uninformed == {0}
    delta = change(BASE, rec.PartitionChangeRecord(0, T1, leader=1))
    later = complete(plan_delta(delta, TERMS, plan.told))
    assert kinds(later, 0) == [(UpdateMetadata, 1)]
    assert kinds(later, 1) == [(LeaderAndIsr, 1), (UpdateMetadata, 1)]
    released = complete(plan_released(delta.after, TERMS, later.told, BASE.provenance.offset))
    assert [told_of(request) for request in requests(released, 0)] == [[("one", 0), ("two", 0)]]
    assert requests(released, 1) == []
    assert released.told == Told({}, frozenset())


def test_full_names_every_partition_to_its_brokers_and_every_topic_in_the_closing_update() -> None:
    terms = replace(TERMS, without_topic_ids=frozenset({1}))
    plan = complete(plan_full(BASE, terms, Told({T2: 50}), offset=49))
    assert kinds(plan, 0) == [(LeaderAndIsr, 1), (UpdateMetadata, 2)], "topic two is not in ZooKeeper yet"
    assert kinds(plan, 1) == [(LeaderAndIsr, 1), (UpdateMetadata, 2)], "type 2 fails as a whole there"
    assert told_of(requests(plan, 0)[0]) == [("one", 0)]
    assert plan.told == Told({T2: 50}, partial=frozenset({0}))
    closing = requests(plan, 0)[1]
    assert isinstance(closing, UpdateMetadata)
    assert {part.topic.topic_id for part in closing.topics} == {T1, T2}
    assert told_of(closing) == []
    plan = complete(plan_full(BASE, TERMS, Told({T2: 50}), offset=50))
    assert kinds(plan, 0) == kinds(plan, 1) == [(LeaderAndIsr, 2), (UpdateMetadata, 2)]
    assert told_of(requests(plan, 0)[0]) == [("one", 0), ("two", 0)]


def test_full_moves_no_log_aside_of_a_topic_that_waits() -> None:
    """A new leader to which ZooKeeper gave no answer takes every topic for one that waits, and the comparison may end
    at an older offset. A LeaderAndIsr of type 2 without the topics moved every log aside, on every broker."""
    offset = BASE.provenance.offset
    told = taken_over(BASE, (), 100).told
    plan = complete(plan_full(BASE, TERMS, told, offset - 1))
    assert kinds(plan, 0) == kinds(plan, 1) == [(UpdateMetadata, 2)]
    later = complete(plan_released(BASE, CONFIRMED, plan.told, offset))
    assert kinds(later, 0) == kinds(later, 1) == [(LeaderAndIsr, 2)]
    assert told_of(requests(later, 0)[0]) == [("one", 0), ("two", 0)]
    assert not later.told.is_open


def test_full_reaches_a_broker_that_hosts_nothing() -> None:
    image = change(BASE, broker(4, 60)).after
    plan = complete(plan_full(image, TERMS, NOTHING_OPEN, EVERYTHING))
    assert requests(plan, 4)[0] == LeaderAndIsr(UpdateType.FULL, (), requests(plan, 0)[0].live_leaders)  # type: ignore[union-attr]


def test_a_topic_deleted_and_made_again_is_deleted_first_and_waits_for_zookeeper() -> None:
    delta = change(BASE, rec.RemoveTopicRecord(T1), rec.TopicRecord("one", T3), partition(T3, 0, 1, 0))
    plan = complete(plan_delta(delta, CONFIRMED, NOTHING_OPEN))
    assert kinds(plan, 0) == [(UpdateMetadata, 1), (StopReplica, -1), (UpdateMetadata, 1)]
    deleted, stop, created = requests(plan, 0)
    assert isinstance(deleted, UpdateMetadata)
    assert isinstance(stop, StopReplica)
    assert [(part.topic.name, set(part.topic.topic_id)) for part in deleted.topics] == [("one", {0})]
    assert [(state.leader, state.leader_epoch) for _, state in deleted.topics[0].states()] == [(-2, 0)] * 2
    assert [topic.name for topic in stop.topics] == ["one"]
    assert stop.topics[0].partitions == (StoppedPartition(0, EPOCH_DURING_DELETE, delete=True),)
    assert told_of(created) == [("one", 0)]
    assert plan.told.waiting == {T3: delta.after.provenance.offset}
    early = complete(plan_released(delta.after, CONFIRMED, plan.told, delta.after.provenance.offset - 1))
    assert early == RequestPlan((), plan.told)
    released = complete(plan_released(delta.after, CONFIRMED, plan.told, delta.after.provenance.offset))
    assert [told_of(request) for request in requests(released, 0)] == [[("one", 0)]]
    assert released.told == Told({})


def test_topics_that_waited_are_named_in_the_order_of_their_ids() -> None:
    ids = [small_uuid(100 + number) for number in range(10)]
    topics = [rec.TopicRecord(topic_id.hex(), topic_id) for topic_id in ids]
    delta = change(BASE, *topics, *(partition(topic_id, 0, 0) for topic_id in ids))
    told = complete(plan_delta(delta, CONFIRMED, NOTHING_OPEN)).told
    (request,) = requests(complete(plan_released(delta.after, CONFIRMED, told, delta.after.provenance.offset)), 0)
    assert not isinstance(request, StopReplica)
    assert [part.topic.topic_id for part in request.topics] == sorted(ids)


def test_a_topic_deleted_while_it_waits_is_forgotten() -> None:
    delta = change(BASE, rec.RemoveTopicRecord(T2))
    plan = complete(plan_delta(delta, CONFIRMED, Told({T2: 50})))
    assert plan.told.waiting == {}


def test_changes_reach_leader_and_followers_before_clients_and_removed_replicas_last() -> None:
    move = rec.PartitionChangeRecord(0, T1, isr=(1,), leader=1, replicas=(1, 3))
    plan = complete(plan_delta(change(BASE, move), CONFIRMED, NOTHING_OPEN))
    assert kinds(plan, 1) == [(LeaderAndIsr, 1), (UpdateMetadata, 1)]
    assert kinds(plan, 0) == [(UpdateMetadata, 1), (StopReplica, -1)]
    stop = requests(plan, 0)[1]
    assert isinstance(stop, StopReplica)
    assert stop.topics[0].partitions == (StoppedPartition(0, 6, delete=True),)


@pytest.mark.parametrize(("terms", "expected"), [(TERMS, [0, 1]), (CONFIRMED, [2, 0, 2])])
def test_a_broker_that_comes_back_is_told_everything(terms: Terms, expected: list[int]) -> None:
    delta = change(BASE, rec.BrokerRegistrationChangeRecord(2, 30, fenced=-1))
    plan = complete(plan_delta(delta, terms, NOTHING_OPEN))
    assert [kind for _, kind in kinds(plan, 2)] == expected
    assert told_of(requests(plan, 2)[-1]) == [("one", 1)]
    assert told_of(requests(plan, 2)[-2]) == [("one", 0), ("one", 1), ("two", 0)]
    assert kinds(plan, 0) == [(UpdateMetadata, 0)]
    assert told_of(requests(plan, 0)[0]) == []


def test_a_broker_that_comes_back_hears_nothing_of_topics_that_wait() -> None:
    delta = change(BASE, rec.BrokerRegistrationChangeRecord(2, 30, fenced=-1))
    plan = complete(plan_delta(delta, CONFIRMED, Told({T1: 50}, frozenset({2}))))
    assert kinds(plan, 2) == [(UpdateMetadata, 2), (UpdateMetadata, 0)]
    assert plan.told == Told({T1: 50}, partial=frozenset({2})), "it may have made the topic in KRaft mode"
    later = complete(plan_released(delta.after, CONFIRMED, plan.told, 50))
    assert kinds(later, 2) == [(LeaderAndIsr, 2)]
    assert told_of(requests(later, 2)[0]) == [("one", 1)]
    assert kinds(later, 0) == [(LeaderAndIsr, 1)]
    assert not later.told.is_open
    plan = complete(plan_delta(delta, TERMS, Told({T1: 50})))
    assert kinds(plan, 2) == [(UpdateMetadata, 0)]
    assert plan.told.uninformed == {2}, "before the reconcile it may have"


def test_an_uninformed_broker_waits_for_the_last_of_its_topics() -> None:
    told = Told({T1: 50, T2: 60}, frozenset({0}))
    plan = complete(plan_released(BASE, TERMS, told, 55))
    assert requests(plan, 0) == []
    assert told_of(requests(plan, 1)[0]) == [("one", 0), ("one", 1)]
    assert plan.told == Told({T2: 60}, frozenset({0}))


def test_what_ends_as_it_began_is_nothing_to_tell() -> None:
    delta = change(BASE, rec.ConfigRecord(2, "one", "retention.ms", "1"), rec.NoOpRecord(), broker(0, 10))
    assert complete(plan_delta(delta, CONFIRMED, NOTHING_OPEN)).sends == ()


def test_big_metadata_is_split_and_planned_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_RECORDS", 10)
    monkeypatch.setattr(broker_rpcs, "PART_BYTES", 2_000)
    records: list[rec.MetadataRecord] = [broker(0, 1)]
    for number in range(20):
        topic_id = small_uuid(number)
        records.append(rec.TopicRecord(f"t{number}", topic_id))
        records += [partition(topic_id, index, 0, 1, 2) for index in range(10)]
    image = image_of(records)
    assert sum(1 for _ in plan_takeover(image, TERMS, image.topics.ids, EVERYTHING)) >= 20
    informing = [bool(part) for part in first_updates(image, TERMS)]
    assert informing.count(False) >= 20
    assert informing.index(True) < len(informing) / 2, "the first part goes before the others are planned"
    plan = taken_over(image, image.topics.ids, EVERYTHING)
    assert [kind for _, kind in kinds(plan, 0)] == [0] * (len(requests(plan, 0)) - 1) + [1]
    assert len(requests(plan, 0)) > 5
    parts = [told_of(request) for request in requests(plan, 0)[:-1]]
    assert sorted(replica for part in parts for replica in part) == told_of(requests(plan, 0)[-1])


def test_parts_of_a_topic_point_into_the_image() -> None:
    topic = BASE.topics.by_id[T1]
    part = TopicPartitions(topic, (1,))
    assert len(TopicPartitions(topic)) == 2
    ((number, state),) = part.states()
    assert (number, len(part)) == (1, 1)
    assert isinstance(state, PartitionRegistration)
    assert state is topic.partitions[1]


@pytest.mark.parametrize(
    ("records", "visits"),
    [
        ([rec.RemoveTopicRecord(T1)], 5),
        ([rec.PartitionChangeRecord(number, T1, isr=(1, 2)) for number in range(100)], 3),
    ],
    ids=["deleted: named, found at brokers, stopped at three", "changed: compared, found at brokers, not removed"],
)
def test_one_big_topic_is_planned_in_slices(
    records: list[rec.MetadataRecord], visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often each of the 100 partitions is visited, a slice visits ten."""
    monkeypatch.setattr(turns, "TURN_RECORDS", 10)
    partitions = (partition(T1, number, 0, 1, 2) for number in range(100))
    image = image_of([*(broker(number, 1) for number in range(4)), rec.TopicRecord("big", T1), *partitions])
    slices = sum(1 for _ in plan_delta(change(image, *records), CONFIRMED, NOTHING_OPEN))
    assert slices >= visits * 100 // 10
