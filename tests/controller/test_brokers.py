"""BrokerRegistration and UnregisterBroker. Cases of Kafka's ClusterControlManagerTest are named after it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.brokers import register_broker, unregister_broker, unregister_vanished
from migrator.controller.controllers import register_controller
from migrator.controller.decision import MAX_RECORDS_PER_OPERATION, RefusedError
from migrator.controller.schedule import fence_silent_broker
from migrator.image.model import ControllerRegistration
from migrator.records.metadata import (
    NO_LEADER,
    Endpoint,
    FeatureRange,
    MigrationReopening,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.uuid import DIRECTORY_LOST
from tests.controller.support.leading_controller import SESSION_MS, LeadingController, registration, some_uuid

PRE = ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION)


def refused(controller: LeadingController, broker_id: int = 1, **changes: Any) -> ErrorCode:
    with pytest.raises(RefusedError) as refusal:
        register_broker(controller.image, registration(broker_id, **changes), controller.context())
    return refusal.value.error.code


def test_epoch_is_the_offset_of_the_registration_record() -> None:
    controller = LeadingController()
    assert controller.register(1) == 1
    assert isinstance(controller.history[1], RegisterBrokerRecord)
    assert controller.image.cluster.brokers[1].fenced


def test_registration_of_another_cluster() -> None:
    assert refused(LeadingController(), cluster_id="other") is ErrorCode.inconsistent_cluster_id


def test_registration_with_incorrect_clusterid_comes_before_every_other_check() -> None:
    controller = LeadingController(PRE)
    assert refused(controller, cluster_id="other", log_dirs=()) is ErrorCode.inconsistent_cluster_id


@pytest.mark.parametrize("protocol", [-1, 4, 2**15 - 1])
def test_a_security_protocol_that_nobody_knows_is_not_recorded(protocol: int) -> None:
    """Every broker and every stock controller that read the record would end."""
    controller, listeners = LeadingController(), (Endpoint("PLAINTEXT", "host", 9092, protocol),)
    assert refused(controller, listeners=listeners) is ErrorCode.unknown_server_error
    with pytest.raises(RefusedError) as refusal:
        register_controller(
            controller.image, ControllerRegistration(1, some_uuid(1), False, listeners, ()), controller.context()
        )
    assert refusal.value.error.code is ErrorCode.unknown_server_error


def test_a_broker_has_no_negative_id() -> None:
    """A partition that it led would look as if nobody did."""
    assert refused(LeadingController(), -1) is ErrorCode.invalid_request


def test_re_registration_of_same_incarnation_keeps_epoch_fencing_and_shutdown() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    controller.create("t", (1, 2))
    controller.beat(1, want_shut_down=True)
    before = controller.image.cluster.brokers[1]
    assert before.in_controlled_shutdown
    assert controller.register(1, rack="r") == before.epoch
    after = controller.image.cluster.brokers[1]
    assert (after.fenced, after.in_controlled_shutdown, after.rack) == (False, True, "r")


def test_another_incarnation_is_refused_while_the_session_lasts() -> None:
    controller = LeadingController()
    controller.start([1])
    controller.now_ms += SESSION_MS
    assert refused(controller, incarnation=2) is ErrorCode.duplicate_broker_registration
    controller.now_ms += 1
    epoch = controller.register(1, incarnation=2)
    assert epoch == controller.image.cluster.brokers[1].epoch
    assert controller.image.cluster.brokers[1].fenced


def test_another_incarnation_waits_until_its_forerunner_has_lost_its_leaderships() -> None:
    """The session is over, but nobody has fenced the broker yet: a window that stock Kafka leaves open."""
    controller = LeadingController()
    controller.start([1, 2])
    controller.create("t", (1, 2))
    controller.now_ms += SESSION_MS + 1
    assert refused(controller, incarnation=2) is ErrorCode.duplicate_broker_registration
    while controller.commit(fence_silent_broker(controller.image, controller.context())) is not None:
        pass
    controller.register(1, incarnation=2)


def test_a_fenced_broker_is_replaced_at_once() -> None:
    controller = LeadingController()
    controller.register(1)
    assert controller.register(1, incarnation=2) == 2


@pytest.mark.parametrize(("enabled", "level"), [(False, 21), (True, 7)])
def test_register_zk_broker_where_not_allowed(enabled: bool, level: int) -> None:
    controller = LeadingController(level=level, zookeeper_metadata_migration_enable=enabled)
    code = refused(controller, is_migrating_zk_broker=True)
    assert code is ErrorCode.broker_id_not_registered


def test_kraft_broker_is_refused_before_the_copy_and_zk_broker_taken() -> None:
    controller = LeadingController(PRE, zookeeper_metadata_migration_enable=True)
    assert refused(controller) is ErrorCode.broker_id_not_registered
    controller.register(1, is_migrating_zk_broker=True)
    assert controller.image.cluster.brokers[1].is_migrating_zk_broker


@pytest.mark.parametrize(
    ("record", "taken"),
    [
        (ZkMigrationStateRecord(ZkMigrationState.POST_MIGRATION), False),
        (ZkMigrationStateRecord(ZkMigrationState.MIGRATION, reopening=MigrationReopening(3001, 1, "why")), False),
        (ZkMigrationStateRecord(ZkMigrationState.MIGRATION), True),
    ],
)
def test_zk_broker_is_taken_only_while_zookeeper_holds_everything(record: ZkMigrationStateRecord, taken: bool) -> None:
    controller = LeadingController(record, zookeeper_metadata_migration_enable=True)
    if taken:
        controller.register(1, is_migrating_zk_broker=True)
    else:
        assert refused(controller, is_migrating_zk_broker=True) is ErrorCode.broker_id_not_registered


@pytest.mark.parametrize(
    ("name", "given", "accepted"), [(None, "PLAINTEXT", True), ("inner", "INNER", True), ("inner", "PLAINTEXT", False)]
)
def test_zk_broker_needs_the_inter_broker_listener(name: str | None, given: str, accepted: bool) -> None:
    controller = LeadingController(zookeeper_metadata_migration_enable=True, inter_broker_listener_name=name)
    changes: dict[str, Any] = {"is_migrating_zk_broker": True, "listeners": (Endpoint(given, "h", 1, 0),)}
    if accepted:
        controller.register(1, **changes)
    else:
        assert refused(controller, **changes) is ErrorCode.invalid_registration


@pytest.mark.parametrize(
    "log_dirs",
    [(), (DIRECTORY_LOST,), (some_uuid(1), some_uuid(1)), (some_uuid(1), some_uuid(10_002))],
    ids=["none", "reserved", "twice", "another broker's"],
)
def test_register_with_log_dirs_that_are_not_valid(log_dirs: Any) -> None:
    controller = LeadingController()
    controller.register(2)
    assert refused(controller, log_dirs=log_dirs) is ErrorCode.invalid_registration


def test_a_broker_older_than_the_metadata_version_is_told_apart_from_a_wrong_file() -> None:
    """Seen with Kafka 3.6.2 and a quorum that was formatted for 3.9: nothing was wrong in the broker's file."""
    controller = LeadingController()
    with pytest.raises(RefusedError, match=r"Kafka 3\.7 .* metadata\.version 3\.9-IV0 .*\(migrator format -r\)"):
        register_broker(controller.image, registration(1, log_dirs=()), controller.context())


def test_log_dirs_do_not_count_below_directory_assignment() -> None:
    controller = LeadingController(level=16)
    controller.register(1, log_dirs=())
    controller.register(2, log_dirs=(some_uuid(1),))
    assert controller.image.cluster.brokers[2].log_dirs == ()


def test_own_log_dirs_may_be_registered_again_by_a_new_incarnation() -> None:
    controller = LeadingController()
    controller.register(1)
    controller.register(1, incarnation=2)
    assert controller.image.cluster.brokers[1].log_dirs == (some_uuid(10_001),)


@pytest.mark.parametrize(
    "features",
    [
        (FeatureRange("metadata.version", 1, 20),),
        (),
        (FeatureRange("metadata.version", 1, 21), FeatureRange("new.feature", 1, 2)),
    ],
    ids=["too low", "none named", "needs what is not on"],
)
def test_register_broker_that_does_not_support_the_finalized_level(features: Any) -> None:
    assert refused(LeadingController(), features=features) is ErrorCode.unsupported_version


def test_broker_without_metadata_version_supports_the_first_level() -> None:
    controller = LeadingController(level=1)
    controller.register(1, features=())
    assert controller.image.cluster.brokers[1].features == (FeatureRange("metadata.version", 1, 1),)


def test_unregister_takes_the_broker_out_of_isr_and_leadership_first() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    controller.create("t", (1, 2), (2, 1), (1,))
    records = controller.records_of(unregister_broker, 1)
    assert records[-1] == UnregisterBrokerRecord(1, controller.image.cluster.brokers[1].epoch)
    controller.decide(unregister_broker, 1)
    assert [(controller.partition("t", n).leader, controller.partition("t", n).isr) for n in range(3)] == [
        (2, (2,)),
        (2, (2,)),
        (NO_LEADER, (1,)),
    ]
    assert 1 not in controller.image.cluster.brokers


def test_unregister_unknown_broker() -> None:
    controller = LeadingController()
    with pytest.raises(RefusedError) as refusal:
        unregister_broker(controller.image, 1, controller.context())
    assert refusal.value.error.code is ErrorCode.broker_id_not_registered


def vanishing() -> tuple[LeadingController, int]:
    """A broker in ZooKeeper mode has been silent for a session time-out, and is fenced; its epoch."""
    controller = LeadingController(
        ZkMigrationStateRecord(ZkMigrationState.MIGRATION), zookeeper_metadata_migration_enable=True
    )
    controller.start([1, 2], is_migrating_zk_broker=True)
    controller.now_ms += SESSION_MS + 1
    controller.beat(2)
    while controller.commit(fence_silent_broker(controller.image, controller.context())) is not None:
        pass
    return controller, controller.image.cluster.brokers[1].epoch


def test_a_vanished_broker_is_forgotten() -> None:
    controller, epoch = vanishing()
    controller.commit(unregister_vanished(controller.image, 1, epoch, controller.context()))
    assert set(controller.image.cluster.brokers) == {2}


@pytest.mark.parametrize("back", ["registers again", "registers in KRaft mode", "sends a heartbeat", "is forgotten"])
def test_a_broker_that_has_come_back_is_not_thrown_out(back: str) -> None:
    """It comes back between the look at it and the write."""
    controller, epoch = vanishing()
    if back == "sends a heartbeat":
        controller.beat(1, want_fence=True)
    elif back == "is forgotten":
        controller.decide(unregister_broker, 1)
    else:
        controller.register(1, incarnation_id=some_uuid(77), is_migrating_zk_broker=back == "registers again")
    with pytest.raises(RefusedError) as refusal:
        unregister_vanished(controller.image, 1, epoch, controller.context())
    assert refusal.value.error.code is ErrorCode.stale_broker_epoch


def test_a_broker_whose_time_is_not_up_yet_is_not_thrown_out() -> None:
    """A new leader counts from its own election."""
    controller, epoch = vanishing()
    controller.sessions.begin(controller.image, controller.now_ms)
    with pytest.raises(RefusedError, match="heartbeats"):
        unregister_vanished(controller.image, 1, epoch, controller.context())
    controller.now_ms += SESSION_MS + 1
    controller.commit(unregister_vanished(controller.image, 1, epoch, controller.context()))


def test_unregister_of_a_broker_in_too_many_isrs() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    for name in ("a", "b"):
        controller.create(name, *[(1, 2)] * (MAX_RECORDS_PER_OPERATION // 2))
    with pytest.raises(RefusedError) as refusal:
        unregister_broker(controller.image, 1, controller.context())
    assert refusal.value.error.code is ErrorCode.policy_violation
