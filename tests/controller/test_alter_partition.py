"""AlterPartition. Cases of Kafka's ReplicationControlManagerTest."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    IsrMember,
    WantedPartition,
    alter_partition,
)
from migrator.controller.decision import RefusedError
from migrator.controller.elections import UNCLEAN, ElectLeadersRequest, elect_leaders
from migrator.controller.reassignments import WantedAssignment, alter_reassignments
from migrator.records.metadata import NO_LEADER_CHANGE, PartitionChangeRecord
from tests.controller.support.leading_controller import LeadingController, some_uuid


@pytest.fixture
def controller() -> LeadingController:
    controller = LeadingController()
    controller.start([1, 2, 3, 4])
    controller.create("t", (1, 2, 3))
    return controller


def ask(
    controller: LeadingController, isr: tuple[int, ...], broker_id: int = 1, **changes: Any
) -> ErrorCode | AlteredPartition:
    """Ask as the leader that knows everything; ``changes`` make it wrong."""
    partition = controller.partition("t")
    members = changes.pop("members", tuple(IsrMember(b) for b in isr))
    fields = {
        "topic_id": controller.image.topics.ids["t"],
        "partition": 0,
        "leader_epoch": partition.leader_epoch + changes.pop("leader_epoch_step", 0),
        "partition_epoch": partition.partition_epoch + changes.pop("partition_epoch_step", 0),
        "isr": members,
        "recovering": changes.pop("recovering", False),
    }
    epoch = controller.image.cluster.brokers[broker_id].epoch
    request = AlterPartitionRequest(broker_id, epoch, (WantedPartition(**{**fields, **changes}),))
    (result,) = controller.decide(alter_partition, request)
    return result


def test_shrink_and_expand_isr(controller: LeadingController) -> None:
    assert ask(controller, (1, 2)) == AlteredPartition(1, 0, (1, 2), False, 1)
    assert ask(controller, (1, 2, 3)) == AlteredPartition(1, 0, (1, 2, 3), False, 2)


@pytest.mark.parametrize(("level", "enabled", "bumps"), [(21, False, 0), (21, True, 1), (11, False, 1)])
def test_shrinking_raises_the_leader_epoch_only_where_needed(level: int, enabled: bool, bumps: int) -> None:
    """Brokers before 3.6-IV0 and brokers in ZooKeeper mode need it (KAFKA-15021)."""
    controller = LeadingController(level=level, zookeeper_metadata_migration_enable=enabled)
    controller.start([1, 2, 3])
    controller.create("t", (1, 2, 3))
    state = ask(controller, (1, 2))
    assert isinstance(state, AlteredPartition)
    assert state.leader_epoch == bumps
    again = ask(controller, (1, 2, 3))
    assert isinstance(again, AlteredPartition)
    assert again.leader_epoch == bumps, "expanding never does"


def test_no_change_leaves_no_record(controller: LeadingController) -> None:
    written = controller.next_offset
    assert ask(controller, (1, 2, 3)) == AlteredPartition(1, 0, (1, 2, 3), False, 0)
    assert controller.next_offset == written


def test_stale_broker_epoch(controller: LeadingController) -> None:
    with pytest.raises(RefusedError) as refusal:
        alter_partition(controller.image, AlterPartitionRequest(1, 999, ()), controller.context())
    assert refusal.value.error.code is ErrorCode.stale_broker_epoch


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"topic_id": some_uuid(1)}, ErrorCode.unknown_topic_id),
        ({"topic_id": None}, ErrorCode.unknown_topic_id),
        ({"partition": 1}, ErrorCode.unknown_topic_or_partition),
        ({"leader_epoch_step": 1}, ErrorCode.not_controller),
        ({"partition_epoch_step": 1}, ErrorCode.not_controller),
        ({"leader_epoch_step": -1, "partition_epoch_step": 1}, ErrorCode.not_controller),
        ({"leader_epoch_step": -1, "broker_id": 2}, ErrorCode.fenced_leader_epoch),
        ({"broker_id": 2, "partition_epoch_step": -1}, ErrorCode.invalid_request),
        ({"partition_epoch_step": -1, "isr": (1, 9)}, ErrorCode.invalid_update_version),
        ({"isr": (1, 4)}, ErrorCode.invalid_request),
        ({"isr": (1, 1)}, ErrorCode.invalid_request),
        ({"isr": (2, 3)}, ErrorCode.invalid_request),
        ({"isr": ()}, ErrorCode.invalid_request),
        ({"isr": (1, 2), "recovering": True}, ErrorCode.invalid_request),
        ({"isr": (1,), "recovering": True}, ErrorCode.invalid_request),
        ({"members": (IsrMember(1), IsrMember(2, 999))}, ErrorCode.ineligible_replica),
    ],
    ids=str,
)
def test_checks_in_kafkas_order(controller: LeadingController, changes: dict[str, Any], expected: ErrorCode) -> None:
    written = controller.next_offset
    isr = changes.pop("isr", (1, 2))
    assert ask(controller, isr, **changes) is expected
    assert controller.next_offset == written


def test_fenced_and_stopping_brokers_are_ineligible(controller: LeadingController) -> None:
    ask(controller, (1,))
    controller.beat(2, want_fence=True)
    assert ask(controller, (1, 2)) is ErrorCode.ineligible_replica
    controller.create("u", (3, 1))
    controller.beat(3, want_shut_down=True)
    assert ask(controller, (1, 3)) is ErrorCode.ineligible_replica
    epoch = controller.image.cluster.brokers[1].epoch
    assert isinstance(ask(controller, (), members=(IsrMember(1, epoch),)), AlteredPartition)


def test_leader_that_recovered_from_an_unclean_election() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    controller.create("t", (1, 2))
    controller.beat(2, want_fence=True)
    controller.beat(1, want_fence=True)
    controller.beat(2)
    controller.decide(elect_leaders, ElectLeadersRequest(UNCLEAN, (("t", (0,)),)))
    partition = controller.partition("t")
    assert (partition.leader, partition.isr, partition.recovering) == (2, (2,), True)
    controller.beat(1)
    assert ask(controller, (1, 2), 2, recovering=True) is ErrorCode.invalid_request
    state = ask(controller, (1, 2), 2)
    assert isinstance(state, AlteredPartition)
    assert (state.recovering, state.isr) == (False, (1, 2))
    assert ask(controller, (2,), 2, recovering=True) is ErrorCode.invalid_request, "there is no way back"


def test_alter_partition_with_completing_reassignment_that_moves_the_leader(controller: LeadingController) -> None:
    controller.decide(alter_reassignments, (WantedAssignment("t", 0, (4, 2)),))
    assert controller.partition("t").replicas == (4, 2, 1, 3)
    assert ask(controller, (1, 2, 3, 4)) is ErrorCode.new_leader_elected
    partition = controller.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 2), (2, 4), 4)
    record = controller.history[-1]
    assert isinstance(record, PartitionChangeRecord)
    assert record.leader == 4
    assert (record.removing_replicas, record.adding_replicas) == ((), ())


def test_alter_partition_with_completing_reassignment_that_keeps_the_leader(controller: LeadingController) -> None:
    controller.decide(alter_reassignments, (WantedAssignment("t", 0, (4, 1)),))
    epoch = controller.partition("t").leader_epoch
    state = ask(controller, (1, 2, 3, 4))
    assert isinstance(state, AlteredPartition)
    assert (state.leader, state.leader_epoch) == (1, epoch + 1), "replicas left, so the epoch rises"


def test_expanding_during_a_reassignment_changes_the_isr_only(controller: LeadingController) -> None:
    controller.decide(alter_reassignments, (WantedAssignment("t", 0, (4, 1, 2, 3)),))
    ask(controller, (1, 2))
    record = controller.history[-1]
    assert record == PartitionChangeRecord(0, controller.image.topics.ids["t"], isr=(1, 2))
    assert record.leader == NO_LEADER_CHANGE
