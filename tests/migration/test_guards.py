"""Each refusal that protects a cluster from us, and each permission that a leader needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.migration.guards import (
    Claimant,
    Ownership,
    Standing,
    adopt,
    deletes_within_bound,
    examine,
    heal_to,
    ownership,
)
from migrator.migration.states import Finding
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.migration import MigrationState
from tests.migration.builders import CLUSTER_ID, standing

PRE = Claimant(node_id=3001, epoch=5, cluster_id=CLUSTER_ID, record=ZkMigrationState.PRE_MIGRATION)
DECODED = replace(PRE, decoded=True)
MIGRATED = replace(PRE, record=ZkMigrationState.MIGRATION, base=EpochOffset(4, 900))
PREDECESSOR = ControllerClaim(3002, 0, 4)
OURS = ControllerClaim(3001, 0, 5)
WRITTEN = MigrationState(3001, 5, 1000, 4)
COPIED = MigrationState(3002, 4, 1000, 4)


@pytest.mark.parametrize(
    ("shown", "us", "finding"),
    [
        (standing(), PRE, Finding.CLEAR),
        (standing(controller=None), PRE, Finding.NO_CONTROLLER),
        (standing(), DECODED, Finding.MAY_CLAIM),
        (standing(controller=None), DECODED, Finding.MAY_CLAIM),
        (standing(controller=PREDECESSOR), PRE, Finding.STRAY_CLAIM),
        (standing(controller=PREDECESSOR), DECODED, Finding.MAY_CLAIM),
        (standing(controller=OURS, mark=MigrationState(3001, 5, -1, -1)), DECODED, Finding.OWN_CLAIM_COPY),
        (standing(controller=OURS), PRE, Finding.STRAY_CLAIM),
        (standing(controller=PREDECESSOR, mark=COPIED, mark_in_log=4), MIGRATED, Finding.MAY_CLAIM),
        (standing(controller=OURS, mark=WRITTEN, mark_in_log=4), MIGRATED, Finding.OWN_CLAIM_KEEP),
        (standing(controller=OURS, mark=COPIED, mark_in_log=4), MIGRATED, Finding.REFUSE),
        # a crash between End and the first write of /migration is healed
        (standing(controller=PREDECESSOR), MIGRATED, Finding.MAY_CLAIM),
        # refusals
        (standing(cluster_id=None), DECODED, Finding.REFUSE),
        (standing(cluster_id="another"), DECODED, Finding.REFUSE),
        (standing(epoch=None), DECODED, Finding.REFUSE),
        (standing(mark=COPIED), PRE, Finding.REFUSE),
        (standing(mark=COPIED, mark_in_log=4), DECODED, Finding.REFUSE),
        (standing(controller=PREDECESSOR, mark=COPIED), MIGRATED, Finding.REFUSE),
        (standing(controller=PREDECESSOR, mark=COPIED, mark_in_log=3), MIGRATED, Finding.REFUSE),
        (standing(mark=COPIED, mark_in_log=4), MIGRATED, Finding.REFUSE),
        (standing(controller=None, mark=COPIED, mark_in_log=4), MIGRATED, Finding.REFUSE),
        (standing(controller=None), MIGRATED, Finding.REFUSE),
        (replace(standing(), fault=ZnodeError("/migration", "not JSON", "Mend it.")), DECODED, Finding.REFUSE),
        # somebody newer
        (standing(controller=ControllerClaim(3002, 0, 6)), DECODED, Finding.ELSEWHERE),
        (standing(controller=ControllerClaim(3002, 0, 5)), DECODED, Finding.ELSEWHERE),
        (standing(mark=MigrationState(3002, 6, -1, -1)), DECODED, Finding.ELSEWHERE),
    ],
)
def test_what_a_leader_may_do(shown: Standing, us: Claimant, finding: Finding) -> None:
    verdict = examine(shown, us)
    assert verdict.finding is finding
    if finding is Finding.REFUSE:
        assert verdict.reason
        assert verdict.remedy


def test_only_a_rollback_can_be_forced() -> None:
    forced = replace(MIGRATED, forced=True)
    assert examine(standing(mark=COPIED, mark_in_log=4), forced).finding is Finding.MAY_CLAIM
    assert examine(standing(mark=COPIED, mark_in_log=3), forced).finding is Finding.REFUSE
    assert examine(standing(mark=COPIED), replace(PRE, forced=True)).finding is Finding.REFUSE


def test_an_offset_below_the_log_is_judged_by_its_epoch() -> None:
    compacted = EpochOffset(epoch=6, offset=5000)
    assert ownership(standing(mark=COPIED, log_start=compacted)) is Ownership.OURS
    assert ownership(standing(mark=MigrationState(3002, 9, 1000, 9), log_start=compacted)) is Ownership.FOREIGN
    assert ownership(standing(mark=MigrationState(3002, 4, 6000, 4), log_start=compacted)) is Ownership.FOREIGN
    assert ownership(standing()) is Ownership.NOT_COPIED


def test_the_claim_heals_what_a_crash_left_and_else_keeps_the_offset() -> None:
    assert heal_to(standing(mark=COPIED), MIGRATED) is None
    assert heal_to(standing(), MIGRATED) == EpochOffset(4, 900)
    assert heal_to(standing(), DECODED) is None


def test_an_adopted_claim_has_the_versions_that_were_read() -> None:
    claim = adopt(standing(controller=OURS, mark=WRITTEN).view, MIGRATED)
    assert claim is not None
    assert (claim.zk_epoch, claim.epoch_version, claim.controller_version, claim.migration_version) == (7, 7, 1, 3)


def test_the_bound_of_deletes_is_inclusive() -> None:
    assert deletes_within_bound(50, 50, forced=False)
    assert not deletes_within_bound(51, 50, forced=False)
    assert deletes_within_bound(10_000, 50, forced=True)
