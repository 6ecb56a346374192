"""A broker goes or comes over many decisions, while others are made and appends fail: what holds at each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from migrator import turns
from migrator.controller.alter_partition import (
    AlterPartitionRequest,
    IsrMember,
    WantedPartition,
    alter_partition,
)
from migrator.controller.elections import UNCLEAN, ElectLeadersRequest, elect_leaders
from migrator.controller.errands import go_on
from migrator.controller.partition_change import leader_and_isr_changes
from migrator.controller.replica_directories import (
    AssignDirectoriesRequest,
    ReplicaDirectory,
    assign_directories,
)
from migrator.controller.schedule import Schedule
from migrator.controller.sessions import Sessions
from migrator.image.model import PartitionRegistration
from migrator.records.metadata import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ConfigResourceType,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from migrator.records.uuid import DIRECTORY_LOST, DIRECTORY_UNASSIGNED
from tests.controller.support.leading_controller import SESSION_MS, LeadingController, some_uuid
from tests.lanes import examples

BROKERS = (1, 2, 3)
TOPICS = 12
GOES = 1
MANY = 400
"""Decisions within which every errand ends."""


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_RECORDS", 3)


def filled(random: Random) -> LeadingController:
    controller = LeadingController(metadata_max_idle_interval_ms=0, auto_leader_rebalance_enable=False)
    controller.start(BROKERS)
    for number in range(TOPICS):
        replicas = (tuple(random.sample(BROKERS, random.randint(1, 3))) for _ in range(2))
        controller.create(f"t{number}", *replicas)
    return controller


def partitions(controller: LeadingController) -> Iterator[PartitionRegistration]:
    for topic in controller.image.topics.by_id.values():
        yield from topic.partitions.values()


def has_left(controller: LeadingController, broker_id: int) -> bool:
    """It leads nothing, and is in no ISR but as the last member, without a leader."""
    return all(
        partition.leader != broker_id and (broker_id not in partition.isr or partition.isr == (broker_id,))
        for partition in partitions(controller)
    )


def others_beat(controller: LeadingController) -> None:
    for broker_id in BROKERS:
        if broker_id != GOES:
            controller.beat(broker_id)


class Life:
    """A leader, what it does by the clock, and what happens meanwhile."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.controller = filled(self.random)
        self.schedule = Schedule(self.controller.settings, self.controller.now_ms)

    def step(self) -> bool:
        """One periodic decision, whose append may fail; whether there was one."""
        controller = self.controller
        found = self.schedule.due(controller.image, controller.context())
        if found is None:
            return False
        decision = found[1]
        if self.random.random() < 0.3:
            tuple(decision.records)
            return True  # the disk was full, and nobody was told
        before = len(controller.history)
        controller.commit(decision)
        self.check(controller.history[before:])
        return True

    def finish(self) -> None:
        """Until nothing is due."""
        for _ in range(MANY):
            if not self.step():
                return
        raise AssertionError(f"{MANY} decisions are not enough")

    def check(self, records: list[MetadataRecord]) -> None:
        """Nothing is said that was so before."""
        changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
        assert all(record.isr is not None or record.leader != -2 for record in changes)
        for record in records:
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == 1:
                assert not list(self.controller.index.led_by(record.broker_id))

    def meanwhile(self) -> None:
        """Other decisions between two of an errand."""
        controller, random = self.controller, self.random
        happened: list[Callable[[], object]] = [
            lambda: others_beat(controller),
            lambda: controller.create(f"new{len(controller.history)}", (GOES, 2), (2, GOES)),
            lambda: controller.decide(elect_leaders, ElectLeadersRequest(UNCLEAN)),
            lambda: controller.write(RemoveTopicRecord(random.choice(sorted(controller.image.topics.by_id)))),
            self.schedule_anew,
        ]
        random.choice(happened)()

    def schedule_anew(self) -> None:
        """Another leader: it knows the log, and nothing else."""
        controller = self.controller
        controller.sessions = Sessions(SESSION_MS)
        controller.sessions.begin(controller.image, controller.now_ms)
        self.schedule = Schedule(controller.settings, controller.now_ms)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_a_broker_is_told_to_stop_when_it_has_left_everything(seed: int) -> None:
    life = Life(seed)
    controller = life.controller
    for _ in range(MANY):
        answer = controller.beat(GOES, want_shut_down=True)
        if answer.should_shut_down:
            break
        life.step()
        if life.random.random() < 0.2:
            life.meanwhile()
        others_beat(controller)
    assert answer.should_shut_down
    assert has_left(controller, GOES)
    assert controller.image.cluster.brokers[GOES].fenced


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_a_silent_broker_is_fenced_when_it_leads_nothing(seed: int) -> None:
    life = Life(seed)
    controller = life.controller
    for _ in range(MANY):
        controller.now_ms += SESSION_MS // 4
        others_beat(controller)
        life.step()
        if life.random.random() < 0.2:
            life.meanwhile()
        if controller.image.cluster.brokers[GOES].fenced:
            break
    assert controller.image.cluster.brokers[GOES].fenced
    assert has_left(controller, GOES)
    assert all(partition.isr for partition in partitions(controller)), "the last member stays"
    life.controller.beat(GOES)
    life.finish()
    assert not [it for it in partitions(controller) if it.leader == NO_LEADER and GOES in it.isr], "it leads again"


@pytest.mark.parametrize("seed", range(5))
def test_many_small_decisions_do_what_one_large_one_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for size in (3, 1_000):
        monkeypatch.setattr(turns, "TURN_RECORDS", size)
        life = Life(seed)
        life.random.random = lambda: 1.0  # type: ignore[method-assign]  # nothing fails
        life.controller.beat(GOES, want_shut_down=True)
        life.finish()
        ends.append((life.controller.image.topics, len(life.controller.history)))
    assert ends[0] == ends[1]


def step(controller: LeadingController) -> bool:
    """The next decision of an errand, if there is one."""
    errand = controller.sessions.next_errand
    if errand is not None:
        controller.commit(go_on(controller.image, controller.context(), errand))
    return errand is not None


def going(controller: LeadingController) -> Schedule:
    """A broker that leads eight partitions, with broker 2 in their ISR, begins to shut down."""
    controller.start((GOES, 2))
    controller.create("t", *[(GOES, 2)] * 8)
    controller.beat(2)
    assert not controller.beat(GOES, want_shut_down=True).should_shut_down
    return Schedule(controller.settings, controller.now_ms)


def test_the_others_have_to_pass_the_last_record_of_a_shutdown() -> None:
    controller = LeadingController(metadata_max_idle_interval_ms=0)
    schedule = going(controller)
    first = controller.next_offset - 1
    while (found := schedule.due(controller.image, controller.context())) is not None:
        controller.commit(found[1])
    assert has_left(controller, GOES)
    for offset, may_stop in ((first, False), (controller.next_offset - 2, False), (controller.next_offset - 1, True)):
        controller.beat(2, metadata_offset=offset)
        assert controller.beat(GOES, want_shut_down=True).should_shut_down is may_stop


def test_a_broker_that_shuts_down_while_it_comes_leads_nothing_again() -> None:
    controller = LeadingController(metadata_max_idle_interval_ms=0, auto_leader_rebalance_enable=False)
    controller.start(BROKERS)
    controller.create("of another", *[(3,)] * 4)
    controller.create("alone", (GOES,))
    controller.beat(3, want_fence=True)
    while step(controller):
        pass
    controller.beat(GOES, want_fence=True)
    controller.beat(GOES)
    controller.create("led", (GOES, 2))
    assert not controller.beat(GOES, want_shut_down=True).should_shut_down
    while step(controller):
        pass
    assert has_left(controller, GOES)


def some_steps(controller: LeadingController, count: int) -> None:
    """Decide and commit the due work so many times; each time there has to be some."""
    schedule = Schedule(controller.settings, controller.now_ms)
    for _ in range(count):
        found = schedule.due(controller.image, controller.context())
        assert found is not None
        controller.commit(found[1])


def test_a_broker_that_is_being_fenced_joins_no_isr() -> None:
    controller = LeadingController(metadata_max_idle_interval_ms=0)
    controller.start((GOES, 2))
    controller.create("t", *[(GOES, 2)] * 8)
    controller.now_ms += SESSION_MS + 1
    controller.beat(2)
    some_steps(controller, 2)
    topic = controller.image.topics.by_name("t")
    assert topic is not None
    number, left = next((number, it) for number, it in topic.partitions.items() if it.isr == (2,))
    members = tuple(IsrMember(broker_id) for broker_id in (2, GOES))
    wanted = WantedPartition(topic.topic_id, number, left.leader_epoch, left.partition_epoch, members)
    epoch = controller.image.cluster.brokers[2].epoch
    assert controller.decide(alter_partition, AlterPartitionRequest(2, epoch, (wanted,))) == (
        ErrorCode.ineligible_replica,
    )


def test_two_brokers_that_are_being_fenced_leave_the_isr_of_a_topic_that_loses_its_leader_meanwhile() -> None:
    controller = LeadingController(metadata_max_idle_interval_ms=0)
    controller.start(BROKERS)
    controller.create("t", *[(GOES, 2)] * 8)
    controller.now_ms += SESSION_MS + 1
    controller.beat(3)
    some_steps(controller, 3)
    controller.create("new", (3, GOES, 2))
    controller.beat(3, want_fence=True)
    assert controller.partition("new").leader == NO_LEADER
    while step(controller):
        pass
    assert not any(controller.index.led_by(broker_id) for broker_id in BROKERS)
    assert all(len(partition.isr) == 1 for partition in partitions(controller))


def test_nobody_elects_a_broker_that_is_being_fenced() -> None:
    controller = LeadingController(metadata_max_idle_interval_ms=0)
    controller.start(BROKERS)
    controller.create("t", *[(GOES, 3)] * 8)
    controller.create("led by another", (2, GOES))
    controller.now_ms += SESSION_MS + 1
    others_beat(controller)
    some_steps(controller, 2)
    assert not controller.image.cluster.brokers[GOES].fenced
    controller.beat(2, want_fence=True)
    assert controller.partition("led by another").leader == NO_LEADER


@pytest.mark.parametrize("interrupted", [False, True])
def test_lost_directories_are_left_over_many_decisions(*, interrupted: bool) -> None:
    controller = LeadingController(metadata_max_idle_interval_ms=0, auto_leader_rebalance_enable=False)
    lost, kept = some_uuid(1), some_uuid(2)
    controller.start([2, 3])
    controller.start([GOES], log_dirs=(lost, kept))
    for number in range(TOPICS):
        controller.create(f"t{number}", (GOES, 2), (GOES, 3))
    epoch = controller.image.cluster.brokers[GOES].epoch
    for topic in controller.image.topics.by_id.values():
        placed = tuple(ReplicaDirectory(one, topic.topic_id, n) for n, one in enumerate((lost, kept)))
        controller.decide(assign_directories, AssignDirectoriesRequest(GOES, epoch, placed))
    before = len(controller.history)
    controller.beat(GOES, offline_log_dirs=(lost,))
    errand = controller.sessions.errand_of(GOES)
    assert errand is not None
    assert len(controller.history) - before <= turns.TURN_RECORDS
    assert controller.image.cluster.brokers[GOES].log_dirs == (lost, kept), "a later leader begins again"
    controller.beat(GOES, offline_log_dirs=(lost,))
    assert controller.sessions.errand_of(GOES) is errand, "the same news again changes nothing"
    controller.create("new", (GOES, 2))
    named = ReplicaDirectory(lost, controller.image.topics.ids["new"], 0)
    controller.decide(assign_directories, AssignDirectoriesRequest(GOES, epoch, (named,)))
    while (errand := controller.sessions.errand_of(GOES)) is not None:
        decision = go_on(controller.image, controller.context(), errand)
        if interrupted:
            interrupted = False
            tuple(decision.records)  # the append fails
            continue
        start = len(controller.history)
        controller.commit(decision)
        assert len(controller.history) - start <= turns.TURN_RECORDS + 1
    for topic in controller.image.topics.by_id.values():
        first, *second = (topic.partitions[number] for number in sorted(topic.partitions))
        assert GOES not in first.isr
        assert first.leader == 2
        assert all(partition.isr == (GOES, 3) and partition.leader == GOES for partition in second)
    assert controller.image.cluster.brokers[GOES].log_dirs == (kept,)
    changes = [record for record in controller.history[before:] if isinstance(record, PartitionChangeRecord)]
    left = [(record.topic_id, record.partition_id) for record in changes if record.isr is not None]
    assert len(left) == len(set(left)) == TOPICS + 1, "each once"


def test_partitions_that_change_alike_are_decided_once_and_no_others() -> None:
    """One decision for many partitions equals the decisions for each alone, whichever fields differ."""
    controller = LeadingController()
    controller.start(BROKERS)
    controller.write(ConfigRecord(ConfigResourceType.TOPIC, "unclean", "unclean.leader.election.enable", "true"))
    online, lost = (DIRECTORY_UNASSIGNED,) * 3, (DIRECTORY_UNASSIGNED, DIRECTORY_LOST, DIRECTORY_UNASSIGNED)
    parts: list[tuple[Any, ...]] = [
        ((1, 2, 3), (1, 3, 2)),  # replicas
        ((1,), (1, 2), (1, 2, 3)),  # in sync
        ((), (1,)),  # removing
        ((), (2,)),  # adding
        (1, 2, NO_LEADER),  # leader
        (0, 1),  # recovering
        (online, lost),  # directories
    ]
    where = []
    for number, name in enumerate(("clean", "unclean"), 1):
        controller.write(TopicRecord(name, some_uuid(number)))
        for index, (replicas, isr, removing, adding, leader, recovering, directories) in enumerate(product(*parts)):
            state = (replicas, isr, removing, adding, leader, recovering, 5, 7, directories)
            controller.write(PartitionRecord(index, some_uuid(number), *state))
            where.append((some_uuid(number), index))
    image, context = controller.image, controller.context()
    alone = [change for each in where for change in leader_and_isr_changes(image, context, [each], without=GOES)]
    assert list(leader_and_isr_changes(image, context, where, without=GOES)) == alone
    assert 0 < len(alone) < len(where)
