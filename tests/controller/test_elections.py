"""Leader elections, asked for and periodic, and reassignments. Cases of Kafka's ReplicationControlManagerTest,
PartitionChangeBuilderTest and PartitionReassignmentReplicasTest."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller import schedule
from migrator.controller.decision import RefusedError
from migrator.controller.elections import PREFERRED, UNCLEAN, ElectLeadersRequest, elect_leaders
from migrator.controller.reassignments import (
    RunningReassignment,
    WantedAssignment,
    alter_reassignments,
    list_reassignments,
)
from migrator.controller.replica_directories import AssignDirectoriesRequest, ReplicaDirectory, assign_directories
from migrator.controller.schedule import balance_leaders, elect_unclean_leaders
from migrator.records.metadata import (
    NO_LEADER,
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from migrator.records.uuid import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from tests.controller.support.leading_controller import LeadingController, some_uuid


@pytest.fixture
def controller() -> LeadingController:
    controller = LeadingController()
    controller.start([1, 2, 3])
    return controller


def elect(controller: LeadingController, election: int, number: int = 0, topic: str = "t") -> ErrorCode:
    (result,) = controller.decide(elect_leaders, ElectLeadersRequest(election, ((topic, (number,)),)))
    return result.error.code


def reassign(controller: LeadingController, replicas: tuple[int, ...] | None, number: int = 0) -> ErrorCode:
    (result,) = controller.decide(alter_reassignments, (WantedAssignment("t", number, replicas),))
    return result.error.code


def test_elect_preferred_leaders(controller: LeadingController) -> None:
    controller.create("t", (1, 2), (2, 1))
    assert elect(controller, PREFERRED) is ErrorCode.election_not_needed
    controller.beat(1, want_fence=True)
    assert elect(controller, PREFERRED) is ErrorCode.preferred_leader_not_available
    controller.beat(1)
    assert elect(controller, PREFERRED) is ErrorCode.preferred_leader_not_available, "alive, but not in sync"
    topic_id = controller.image.topics.ids["t"]
    controller.write(PartitionChangeRecord(0, topic_id, isr=(2, 1)))
    assert elect(controller, PREFERRED) is ErrorCode.none
    assert controller.partition("t").leader == 1


def test_elect_unclean_leaders(controller: LeadingController) -> None:
    controller.create("t", (1, 2))
    assert elect(controller, UNCLEAN) is ErrorCode.election_not_needed
    for broker_id in (2, 1):
        controller.beat(broker_id, want_fence=True)
    assert elect(controller, UNCLEAN) is ErrorCode.eligible_leaders_not_available
    controller.beat(2)
    assert controller.partition("t").leader == NO_LEADER
    assert elect(controller, UNCLEAN) is ErrorCode.none
    partition = controller.partition("t")
    assert (partition.leader, partition.isr, partition.recovering) == (2, (2,), True)


@pytest.mark.parametrize(("topic", "number"), [("nope", 0), ("t", 7)])
def test_elections_of_unknown_partitions(controller: LeadingController, topic: str, number: int) -> None:
    controller.create("t", (1,))
    assert elect(controller, PREFERRED, number, topic) is ErrorCode.unknown_topic_or_partition


def test_unknown_election_type(controller: LeadingController) -> None:
    with pytest.raises(RefusedError) as refusal:
        elect_leaders(controller.image, ElectLeadersRequest(2, ()), controller.context())
    assert refusal.value.error.code is ErrorCode.invalid_request


def test_elections_of_all_partitions_name_only_those_that_need_one(controller: LeadingController) -> None:
    controller.create("t", (1, 2), (2, 1))
    controller.beat(1, want_fence=True)
    results = controller.decide(elect_leaders, ElectLeadersRequest(PREFERRED))
    assert [(r.topic, r.partition, r.error.code) for r in results] == [
        ("t", 0, ErrorCode.preferred_leader_not_available)
    ]
    assert controller.decide(elect_leaders, ElectLeadersRequest(UNCLEAN)) == ()


def test_topics_that_allow_it_elect_unclean_leaders_when_a_broker_is_fenced(controller: LeadingController) -> None:
    controller.create("t", (1, 2), unclean_leader_election_enable="true")
    topic_id = controller.image.topics.ids["t"]
    controller.write(PartitionChangeRecord(0, topic_id, isr=(1,)))
    controller.beat(1, want_fence=True)
    partition = controller.partition("t")
    assert (partition.leader, partition.isr, partition.recovering) == (2, (2,), True)


def test_unclean_sweep_reads_the_effective_configuration(controller: LeadingController) -> None:
    controller.create("t", (1, 2))
    controller.create("never", (1, 2), unclean_leader_election_enable="false")
    for broker_id in (2, 1):
        controller.beat(broker_id, want_fence=True)
    controller.beat(2)
    controller.commit(elect_unclean_leaders(controller.image, controller.context(), controller.index.leaderless))
    assert controller.partition("t").leader == NO_LEADER
    controller.write(ConfigRecord(ConfigResourceType.BROKER, "", "unclean.leader.election.enable", "true"))
    controller.commit(elect_unclean_leaders(controller.image, controller.context(), controller.index.leaderless))
    assert controller.partition("t").leader == 2
    assert controller.partition("never").leader == NO_LEADER


def test_leaders_are_balanced_where_the_preferred_one_can_lead(controller: LeadingController) -> None:
    topic_id = controller.create("t", *[(1, 2)] * 3, (3, 2))
    controller.write(*(PartitionChangeRecord(n, topic_id, leader=2) for n in range(4)))
    controller.beat(3, want_fence=True)
    gone = (some_uuid(7), 0)
    controller.commit(balance_leaders(controller.image, controller.context(), [gone, *controller.index.imbalanced]))
    assert [controller.partition("t", n).leader for n in range(4)] == [1, 1, 1, 2], "a fenced broker gets none"
    assert list(controller.index.imbalanced) == [(topic_id, 3)]


def test_no_op_record_from_its_level_on() -> None:
    for level, expected in ((4, ()), (5, (NoOpRecord(),))):
        controller = LeadingController(level=level)
        assert tuple(schedule.no_op(controller.image, controller.context(), ()).records) == expected


def test_reassign_partitions(controller: LeadingController) -> None:
    topic_id = controller.create("t", (1, 2))
    assert reassign(controller, (3, 1)) is ErrorCode.none
    assert controller.history[-1] == PartitionChangeRecord(
        0,
        topic_id,
        replicas=(3, 1, 2),
        removing_replicas=(2,),
        adding_replicas=(3,),
        directories=(some_uuid(10_003), some_uuid(10_001), some_uuid(10_002)),
    )
    running = list(list_reassignments(controller.image, controller.index, None))
    assert running == [RunningReassignment("t", 0, (3, 1, 2), (3,), (2,))]
    assert list(list_reassignments(controller.image, controller.index, (("t", (0, 1)), ("u", (0,))))) == running


def test_shrinking_the_assignment_completes_at_once(controller: LeadingController) -> None:
    controller.create("t", (1, 2, 3))
    assert reassign(controller, (2, 1)) is ErrorCode.none
    partition = controller.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 1), (1, 2), 1)
    assert partition.leader_epoch == 1, "a replica left"
    assert not controller.index.reassigning


def test_cancel_reassignment(controller: LeadingController) -> None:
    controller.create("t", (1, 2))
    reassign(controller, (3, 1))
    epoch = controller.partition("t").leader_epoch
    assert reassign(controller, None) is ErrorCode.none
    partition = controller.partition("t")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((1, 2), (), ())
    assert partition.leader_epoch == epoch + 1, "the added replica leaves"
    assert reassign(controller, None) is ErrorCode.no_reassignment_in_progress


@pytest.mark.parametrize("allowed", ["false", "true"])
def test_cancel_that_takes_an_unclean_election(controller: LeadingController, allowed: str) -> None:
    topic_id = controller.create("t", (1, 2), unclean_leader_election_enable=allowed)
    reassign(controller, (3,))
    controller.write(PartitionChangeRecord(0, topic_id, isr=(3,), leader=3))
    code = reassign(controller, None)
    if allowed == "false":
        assert code is ErrorCode.invalid_replica_assignment
        return
    assert code is ErrorCode.none
    partition = controller.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (1,), 1)


@pytest.mark.parametrize(
    ("replicas", "number", "expected"),
    [
        ((), 0, ErrorCode.invalid_replica_assignment),
        ((1, 1), 0, ErrorCode.invalid_replica_assignment),
        ((1, 9), 0, ErrorCode.invalid_replica_assignment),
        ((1,), 5, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_alter_invalid_reassignments(
    controller: LeadingController, replicas: tuple[int, ...], number: int, expected: ErrorCode
) -> None:
    controller.create("t", (1, 2))
    assert reassign(controller, replicas, number) is expected


def test_assign_replicas_to_dirs(controller: LeadingController) -> None:
    directories = (some_uuid(1), some_uuid(2))
    epoch = controller.register(4, log_dirs=directories)
    controller.beat(4)
    topic_id = controller.create("t", (4, 1), (1, 2))
    assert controller.partition("t").directories == (DIRECTORY_UNASSIGNED, some_uuid(10_001))
    asked = (
        ReplicaDirectory(directories[0], topic_id, 0),
        ReplicaDirectory(directories[0], topic_id, 1),
        ReplicaDirectory(directories[0], topic_id, 2),
        ReplicaDirectory(directories[0], some_uuid(99), 0),
    )
    codes = controller.decide(assign_directories, AssignDirectoriesRequest(4, epoch, asked))
    assert codes == (
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    )
    assert controller.partition("t").directories == (directories[0], some_uuid(10_001))


def test_assignment_to_an_offline_dir_moves_the_leader(controller: LeadingController) -> None:
    topic_id = controller.create("t", (1, 2))
    epoch = controller.image.cluster.brokers[1].epoch
    request = AssignDirectoriesRequest(1, epoch, (ReplicaDirectory(some_uuid(77), topic_id, 0),))
    controller.decide(assign_directories, request)
    partition = controller.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))


@pytest.mark.parametrize(("level", "epoch_step", "expected"), [(16, 0, 35), (21, 1, 77)])
def test_assign_replicas_to_dirs_refused(level: int, epoch_step: int, expected: int) -> None:
    controller = LeadingController(level=level)
    epoch = controller.register(1)
    with pytest.raises(RefusedError) as refusal:
        assign_directories(controller.image, AssignDirectoriesRequest(1, epoch + epoch_step, ()), controller.context())
    assert refusal.value.error.code == expected


def test_partitions_from_before_the_level_get_directories_when_they_are_reassigned() -> None:
    controller = LeadingController(level=16)
    controller.start([1, 2])
    topic_id = controller.create("t", (1,))
    controller.write(FeatureLevelRecord("metadata.version", 17))
    controller.start([3])
    reassign(controller, (3, 1))
    record = controller.history[-1]
    assert record == PartitionChangeRecord(
        0, topic_id, replicas=(3, 1), adding_replicas=(3,), directories=(some_uuid(10_003), DIRECTORY_MIGRATING)
    )
