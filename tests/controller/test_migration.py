"""Requests that the state of the migration allows, activation, and features. Cases of Kafka's
ActivationRecordsGenerator and FeatureControlManager tests."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.activation import activation_records, bootstrap_records
from migrator.controller.controllers import register_controller
from migrator.controller.decision import RefusedError
from migrator.controller.features import FeatureUpdate, UpdateFeaturesRequest, UpgradeType, update_features
from migrator.controller.migration_gate import Operation, check_gate, refusal
from migrator.errors import OperatorError
from migrator.image.model import EMPTY_IMAGE, ControllerRegistration
from migrator.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FeatureRange,
    RegisterControllerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from tests.controller.support.leading_controller import LISTENER, LeadingController, some_uuid

ABORT = AbortTransactionRecord("Controller failover")
ANYTIME = {
    Operation.REGISTER_BROKER,
    Operation.UNREGISTER_BROKER,
    Operation.HEARTBEAT,
    Operation.REGISTER_CONTROLLER,
    Operation.NO_OP,
    Operation.REASSIGN_VOTERS,  # refused by `quorum_target`, which tells the operator why (test_quorum_target.py)
    Operation.ROLLOUT_LOCK,  # refused likewise by `rollout_lock` (test_rollout_lock.py)
    Operation.CLOSE_WAY_BACK,  # refused likewise by `way_back` (test_way_back.py)
}


def in_state(state: ZkMigrationState, **options: Any) -> LeadingController:
    return LeadingController(ZkMigrationStateRecord(state), **options)


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("state", ZkMigrationState)
def test_only_registrations_and_heartbeats_before_the_copy(state: ZkMigrationState, operation: Operation) -> None:
    image = in_state(state).image
    allowed = state is not ZkMigrationState.PRE_MIGRATION or operation in ANYTIME
    assert (refusal(image, operation, transaction_open=False) is None) is allowed
    in_transaction = allowed and operation in (Operation.HEARTBEAT, Operation.NO_OP)
    assert (refusal(image, operation, transaction_open=True) is None) is in_transaction


def test_the_gate_answers_not_controller() -> None:
    image = in_state(ZkMigrationState.PRE_MIGRATION).image
    with pytest.raises(RefusedError) as refused:
        check_gate(image, Operation.CREATE_TOPICS, transaction_open=False)
    assert refused.value.error.code is ErrorCode.not_controller


@pytest.mark.parametrize(("enabled", "state"), [(True, ZkMigrationState.PRE_MIGRATION), (False, ZkMigrationState.NONE)])
@pytest.mark.parametrize("transaction_open", [False, True])
def test_activation_of_an_empty_log(enabled: bool, state: ZkMigrationState, transaction_open: bool) -> None:
    level = FeatureLevelRecord("metadata.version", 13)
    records = bootstrap_records([level], migration_enabled=enabled, transaction_open=transaction_open)
    assert records == (
        *((ABORT,) if transaction_open else ()),
        BeginTransactionRecord("Bootstrap records"),
        level,
        ZkMigrationStateRecord(state),
        EndTransactionRecord(),
    )


def test_empty_log_below_transactions() -> None:
    old = [FeatureLevelRecord("metadata.version", 12)]
    assert bootstrap_records(old, migration_enabled=False, transaction_open=False) == tuple(old)
    with pytest.raises(OperatorError, match=r"3\.5-IV2|3\.6-IV0"):
        bootstrap_records(old, migration_enabled=True, transaction_open=False)


@pytest.mark.parametrize("state", ZkMigrationState)
@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("transaction_open", [False, True])
def test_activation_of_a_log_with_records(state: ZkMigrationState, enabled: bool, transaction_open: bool) -> None:
    image = in_state(state).image
    if enabled and state is ZkMigrationState.NONE:
        with pytest.raises(OperatorError, match="KRaft mode"):
            activation_records(image, migration_enabled=enabled, transaction_open=transaction_open)
        return
    records = activation_records(image, migration_enabled=enabled, transaction_open=transaction_open)
    assert records == ((ABORT,) if transaction_open else ())


def test_activation_below_the_level_of_migrations() -> None:
    with pytest.raises(OperatorError, match=r"3\.4-IV0"):
        activation_records(EMPTY_IMAGE, migration_enabled=True, transaction_open=False)


CONTROLLER = ControllerRegistration(3001, some_uuid(1), True, (LISTENER,), (FeatureRange("metadata.version", 1, 21),))


def test_register_controller() -> None:
    controller = LeadingController()
    controller.decide(register_controller, CONTROLLER)
    assert controller.history[-1] == RegisterControllerRecord(
        3001, some_uuid(1), True, CONTROLLER.listeners, CONTROLLER.features
    )
    assert controller.image.cluster.controllers[3001] == CONTROLLER


def test_register_controller_below_its_level() -> None:
    controller = LeadingController(level=14)
    with pytest.raises(RefusedError) as refused:
        controller.decide(register_controller, CONTROLLER)
    assert refused.value.error.code is ErrorCode.unsupported_version


def update(
    controller: LeadingController,
    level: int,
    kind: UpgradeType | None = UpgradeType.UPGRADE,
    name: str = "metadata.version",
) -> ErrorCode:
    ((_, error),) = controller.decide(update_features, UpdateFeaturesRequest((FeatureUpdate(name, level, kind),)))
    return error.code


def test_upgrade_of_metadata_version() -> None:
    controller = LeadingController(level=19)
    controller.register(1)
    assert update(controller, 21) is ErrorCode.none
    assert controller.history[-1] == FeatureLevelRecord("metadata.version", 21)


@pytest.mark.parametrize(
    ("start", "level", "kind", "name"),
    [
        (19, 22, UpgradeType.UPGRADE, "metadata.version"),
        (19, 21, None, "metadata.version"),
        (19, -1, UpgradeType.UPGRADE, "metadata.version"),
        (19, 18, UpgradeType.UPGRADE, "metadata.version"),
        (19, 20, UpgradeType.SAFE_DOWNGRADE, "metadata.version"),
        (19, 16, UpgradeType.SAFE_DOWNGRADE, "metadata.version"),
        (19, 16, UpgradeType.UNSAFE_DOWNGRADE, "metadata.version"),
        (4, 3, UpgradeType.SAFE_DOWNGRADE, "metadata.version"),
        (19, 1, UpgradeType.UPGRADE, "kraft.version"),
        (19, 1, UpgradeType.UPGRADE, "unknown.feature"),
    ],
)
def test_update_features_refused(start: int, level: int, kind: UpgradeType | None, name: str) -> None:
    controller = LeadingController(level=start)
    written = controller.next_offset
    assert update(controller, level, kind, name) is ErrorCode.invalid_update_version
    assert controller.next_offset == written


@pytest.mark.parametrize(
    ("kraft_version", "level", "kind", "why"),
    [
        (0, 1, UpgradeType.UPGRADE, "Run 'migrator quorum upgrade' instead."),
        (0, 2, UpgradeType.UPGRADE, "Local controller 3000 only supports versions 0-1"),
        (1, 0, UpgradeType.UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type"),
        (1, 0, UpgradeType.SAFE_DOWNGRADE, "The voters cannot be taken out of the log again."),
        (0, 0, UpgradeType.UPGRADE, None),
        (1, 1, UpgradeType.UPGRADE, None),
    ],
)
def test_kraft_version_is_known_and_is_not_changed_in_name_only(
    kraft_version: int, level: int, kind: UpgradeType, why: str | None
) -> None:
    controller = LeadingController(level=21)
    controller.kraft_version = kraft_version
    request = UpdateFeaturesRequest((FeatureUpdate("kraft.version", level, kind),), validate_only=True)
    ((_, error),) = controller.decide(update_features, request)
    assert error.is_failure is (why is not None)
    if why is not None:
        assert error.message is not None
        assert error.message.startswith(f"Invalid update version {level} for feature kraft.version. ")
        assert why in error.message


def test_safe_downgrade_where_no_record_changed() -> None:
    controller = LeadingController(level=21)
    assert update(controller, 19, UpgradeType.SAFE_DOWNGRADE) is ErrorCode.none


def test_every_node_must_support_the_level() -> None:
    controller = LeadingController(level=19)
    controller.register(1, features=(FeatureRange("metadata.version", 1, 20),))
    assert update(controller, 21) is ErrorCode.invalid_update_version
    assert update(controller, 20) is ErrorCode.none
    old = ControllerRegistration(3001, some_uuid(1), True, (), (FeatureRange("metadata.version", 1, 20),))
    fresh = LeadingController(level=19)
    fresh.decide(register_controller, old)
    assert update(fresh, 21) is ErrorCode.invalid_update_version


@pytest.mark.parametrize("state", [ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION])
def test_can_not_use_unsafe_or_any_change_during_the_migration(state: ZkMigrationState) -> None:
    assert update(in_state(state, level=19), 21) is ErrorCode.invalid_update_version


def test_update_features_validate_only() -> None:
    controller = LeadingController(level=19)
    request = UpdateFeaturesRequest((FeatureUpdate("metadata.version", 21),), validate_only=True)
    ((_, error),) = controller.decide(update_features, request)
    assert error.code is ErrorCode.none
    assert controller.image.features.levels["metadata.version"] == 19
