"""Whatever is decided, in whatever order: records apply, leaders are in their ISR, epochs never fall."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from migrator.controller.alter_partition import AlterPartitionRequest, IsrMember, WantedPartition, alter_partition
from migrator.controller.brokers import unregister_broker
from migrator.controller.elections import ElectLeadersRequest, elect_leaders
from migrator.controller.index import ControllerIndex, is_reassigning
from migrator.controller.partitions import CreatePartitionsRequest, MorePartitions, create_partitions
from migrator.controller.reassignments import WantedAssignment, alter_reassignments
from migrator.controller.schedule import balance_leaders, elect_unclean_leaders, fence_silent_broker
from migrator.controller.topics import CreateTopicsRequest, NewTopic, create_topics, delete_topics
from migrator.image.model import PartitionRegistration
from migrator.records.metadata import NO_LEADER
from migrator.records.uuid import Uuid
from tests.controller.support.leading_controller import LeadingController, registration
from tests.lanes import examples

BROKERS = range(1, 5)
brokers = st.sampled_from(BROKERS)
replicas = st.lists(brokers, min_size=1, max_size=3, unique=True).map(tuple)
Positions = dict[tuple[Uuid, int], PartitionRegistration]


class Controller(RuleBasedStateMachine):
    """Brokers come, go and ask; operators ask for everything."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = LeadingController(zookeeper_metadata_migration_enable=True)
        self.incarnations = dict.fromkeys(BROKERS, 1)
        self.before: Positions = {}

    def partitions(self) -> list[tuple[Uuid, int]]:
        topics = self.controller.image.topics.by_id
        return sorted((topic_id, number) for topic_id in topics for number in topics[topic_id].partitions)

    def registered(self, broker_id: int) -> bool:
        return broker_id in self.controller.image.cluster.brokers

    @rule(broker_id=brokers, restarted=st.booleans())
    def register(self, broker_id: int, restarted: bool) -> None:
        existing = self.controller.image.cluster.brokers.get(broker_id)
        if existing is not None and restarted:
            if not existing.fenced:
                return
            self.incarnations[broker_id] += 1
        request = registration(broker_id, incarnation=self.incarnations[broker_id])
        self.controller.register(broker_id, incarnation_id=request.incarnation_id)

    @rule(broker_id=brokers, fence=st.booleans(), shut_down=st.booleans())
    def beat(self, broker_id: int, fence: bool, shut_down: bool) -> None:
        if self.registered(broker_id):
            self.controller.beat(broker_id, want_fence=fence, want_shut_down=shut_down)

    @rule(broker_id=brokers)
    def start(self, broker_id: int) -> None:
        if not self.registered(broker_id):
            self.controller.register(broker_id, incarnation=self.incarnations[broker_id])
        self.controller.beat(broker_id)

    @rule(milliseconds=st.integers(0, 12_000))
    def wait(self, milliseconds: int) -> None:
        self.controller.now_ms += milliseconds
        self.controller.commit(fence_silent_broker(self.controller.image, self.controller.context()))

    @rule(broker_id=brokers)
    def unregister(self, broker_id: int) -> None:
        if self.registered(broker_id):
            self.controller.decide(unregister_broker, broker_id)

    @rule(name=st.sampled_from("abc"), factor=st.integers(1, 3), count=st.integers(1, 3), unclean=st.booleans())
    def create_topic(self, name: str, factor: int, count: int, unclean: bool) -> None:
        configs = (("unclean.leader.election.enable", str(unclean).lower()),)
        self.controller.decide(create_topics, CreateTopicsRequest((NewTopic(name, count, factor, configs=configs),)))

    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        topics = sorted(self.controller.image.topics.by_id)
        if topics:
            self.controller.decide(delete_topics, (data.draw(st.sampled_from(topics)),))

    @rule(name=st.sampled_from("abc"), count=st.integers(1, 5))
    def create_more(self, name: str, count: int) -> None:
        self.controller.decide(create_partitions, CreatePartitionsRequest((MorePartitions(name, count),)))

    @rule(data=st.data(), broker_id=brokers, isr=replicas, recovering=st.booleans(), late=st.booleans())
    def alter_isr(
        self, data: st.DataObject, broker_id: int, isr: tuple[int, ...], recovering: bool, late: bool
    ) -> None:
        if not self.registered(broker_id) or not self.partitions():
            return
        topic_id, number = data.draw(st.sampled_from(self.partitions()))
        partition = self.controller.image.topics.by_id[topic_id].partitions[number]
        wanted = WantedPartition(
            topic_id,
            number,
            partition.leader_epoch,
            partition.partition_epoch - late,
            tuple(IsrMember(b) for b in isr),
            recovering,
        )
        epoch = self.controller.image.cluster.brokers[broker_id].epoch
        self.controller.decide(alter_partition, AlterPartitionRequest(broker_id, epoch, (wanted,)))

    @rule(data=st.data(), wanted=st.none() | replicas)
    def reassign(self, data: st.DataObject, wanted: tuple[int, ...] | None) -> None:
        if self.partitions():
            topic_id, number = data.draw(st.sampled_from(self.partitions()))
            name = self.controller.image.topics.by_id[topic_id].name
            self.controller.decide(alter_reassignments, (WantedAssignment(name, number, wanted),))

    @rule(kind=st.integers(0, 1))
    def elect(self, kind: int) -> None:
        self.controller.decide(elect_leaders, ElectLeadersRequest(kind))

    @rule()
    def periodic(self) -> None:
        self.controller.commit(
            balance_leaders(self.controller.image, self.controller.context(), self.controller.index.imbalanced)
        )
        self.controller.commit(
            elect_unclean_leaders(self.controller.image, self.controller.context(), self.controller.index.leaderless)
        )

    @invariant()
    def partitions_are_sound(self) -> None:
        for topic in self.controller.image.topics.by_id.values():
            for partition in topic.partitions.values():
                assert partition.isr
                assert set(partition.isr) <= set(partition.replicas)
                assert len(set(partition.replicas)) == len(partition.replicas)
                assert partition.leader == NO_LEADER or partition.leader in partition.isr
                assert set(partition.adding_replicas) <= set(partition.replicas)
                assert set(partition.removing_replicas) <= set(partition.replicas)
                if is_reassigning(partition) and not partition.recovering:  # an unclean election ends none
                    staying = set(partition.replicas) - set(partition.removing_replicas)
                    assert not staying <= set(partition.isr), "a finished reassignment ends"

    @invariant()
    def leaders_are_up(self) -> None:
        brokers = self.controller.image.cluster.brokers
        for topic in self.controller.image.topics.by_id.values():
            for partition in topic.partitions.values():
                if partition.leader != NO_LEADER:
                    assert partition.leader in brokers
                    assert not brokers[partition.leader].fenced

    @invariant()
    def epochs_never_fall(self) -> None:
        topics = self.controller.image.topics.by_id
        now = {where: topics[where[0]].partitions[where[1]] for where in self.partitions()}
        for where, partition in now.items():
            was = self.before.get(where)
            if was is None or was == partition:
                continue
            assert partition.leader_epoch >= was.leader_epoch
            assert partition.partition_epoch > was.partition_epoch, "no change without a new partition epoch"
            if partition.leader != was.leader or set(was.isr) - set(partition.isr):
                assert partition.leader_epoch > was.leader_epoch, "brokers in ZooKeeper mode need a new epoch"
        self.before = now

    @invariant()
    def index_and_sessions_belong_to_the_image(self) -> None:
        assert self.controller.index == ControllerIndex.of(self.controller.image)
        for broker_id, broker in self.controller.image.cluster.brokers.items():
            session = self.controller.sessions.get(broker_id)
            assert session is not None
            assert session.epoch == broker.epoch


TestController = Controller.TestCase
TestController.settings = settings(max_examples=examples(150), stateful_step_count=50)
