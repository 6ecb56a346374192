"""The lock of a rollout in the image: one writer at a time, none before the end of the migration."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.quorum_target import KEY as TARGET
from migrator.controller.rollout_lock import BYTES_MAX, lock_text, move_lock, read_lock
from migrator.observe.status import LockAnswer
from migrator.records.metadata import (
    QUORUM_RESOURCE,
    ConfigRecord,
    ConfigResourceType,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from tests.controller.support.leading_controller import LeadingController
from tests.image.support.snapshots import snapshot_records

MINE, THEIRS = "{mine}", "{theirs}"


def moved(controller: LeadingController, before: str, after: str) -> bool:
    decision = move_lock(controller.image, before, after)
    return controller.commit(decision).moved


def test_only_who_has_seen_what_is_there_writes() -> None:
    controller = LeadingController()
    assert moved(controller, "", MINE)
    assert not moved(controller, "", THEIRS)
    assert move_lock(controller.image, "", THEIRS).response == LockAnswer(MINE, moved=False)
    assert read_lock(controller.image).response == LockAnswer(MINE, moved=False)
    assert moved(controller, MINE, THEIRS)
    assert not moved(controller, MINE, "")
    assert moved(controller, THEIRS, "")
    assert lock_text(controller.image) == ""


def test_the_same_again_leaves_no_record() -> None:
    controller = LeadingController()
    assert move_lock(controller.image, "", "").records == ()
    assert moved(controller, "", MINE)
    assert move_lock(controller.image, MINE, MINE).records == ()


def test_it_lives_in_snapshots_beside_a_target_as_what_stock_controllers_keep_and_take_from_no_client() -> None:
    controller = LeadingController()
    target = ConfigRecord(ConfigResourceType.UNKNOWN, QUORUM_RESOURCE, TARGET, "4,5,6")
    controller.write(target)
    assert moved(controller, "", MINE)
    kept = [record for record in snapshot_records(controller.image) if isinstance(record, ConfigRecord)]
    assert {(record.resource_type, record.resource_name, record.value) for record in kept} == {
        (0, QUORUM_RESOURCE, "4,5,6"),
        (0, QUORUM_RESOURCE, MINE),
    }
    assert moved(controller, MINE, "")
    assert [record for record in snapshot_records(controller.image) if isinstance(record, ConfigRecord)] == [target]


@pytest.mark.parametrize("state", [ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION])
def test_none_before_the_end_of_the_migration(state: ZkMigrationState) -> None:
    image = LeadingController(ZkMigrationStateRecord(state)).image
    with pytest.raises(RefusedError, match="until the migration has ended") as refused:
        read_lock(image)
    assert refused.value.error.code is ErrorCode.invalid_request
    with pytest.raises(RefusedError, match="until the migration has ended"):
        move_lock(image, "", MINE)


@pytest.mark.parametrize("text", ["x" * (BYTES_MAX + 1), "é" * BYTES_MAX])
def test_a_long_text_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="no more than 1024 bytes"):
        move_lock(LeadingController().image, "", text)
