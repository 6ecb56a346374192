"""Each refusal that protects a cluster from us, and each permission that a leader needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.migration.machine.guards import (
    UNREADABLE,
    Claimant,
    MarkEvidence,
    Ownership,
    Standing,
    adopt,
    examine,
    heal_to,
    ownership,
)
from migrator.migration.machine.transitions import Finding
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.clusters import NoClusterError
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.migration import MigrationState
from tests.migration.support.builders import BROKER_1, CLUSTER_ID, CRC, standing

PRE = Claimant(node_id=3001, epoch=5, cluster_id=CLUSTER_ID, record=ZkMigrationState.PRE_MIGRATION, has_claimed=True)
DECODED = replace(PRE, decoded=True)
MIGRATED = replace(PRE, record=ZkMigrationState.MIGRATION, base=EpochOffset(4, 900))
PREDECESSOR = ControllerClaim(3002, 0, 4)
OURS = ControllerClaim(3001, 0, 5)
WRITTEN = MigrationState(3001, 5, 1000, 4, CRC)
COPIED = MigrationState(3002, 4, 1000, 4, CRC)


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
        (Standing(None, UNREADABLE, fault=NoClusterError("zk:2181", ("/kafka",))), DECODED, Finding.REFUSE),
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
        (
            standing(mark=MigrationState(3002, 6, 1000, 4, CRC), mark_in_log=4, controller=OURS),
            MIGRATED,
            Finding.ELSEWHERE,
        ),
        # an offset below 1 refuses nothing, whoever left it there
        (standing(mark=MigrationState(9, 3, -1, -1)), PRE, Finding.CLEAR),
        (standing(mark=MigrationState(9, 3, 0, 0, CRC + 1)), DECODED, Finding.MAY_CLAIM),
        (standing(controller=PREDECESSOR, mark=MigrationState(9, 3, 0, 0, CRC + 1)), MIGRATED, Finding.MAY_CLAIM),
        # but the claim of a newer epoch, released or not, may say that we are deposed
        (standing(mark=MigrationState(3002, 6, -1, -1)), DECODED, Finding.ELSEWHERE),
    ],
)
def test_what_a_leader_may_do(shown: Standing, us: Claimant, finding: Finding) -> None:
    verdict = examine(shown, us)
    assert verdict.finding is finding
    if finding is Finding.REFUSE:
        assert verdict.reason
        assert verdict.remedy


def shown(mark: MigrationState, evidence: MarkEvidence) -> Standing:
    return replace(standing(controller=PREDECESSOR, mark=mark), evidence=evidence)


WITHOUT_CRC = replace(COPIED, batch_crc=None)
HELD = MarkEvidence(epoch=4, crc=CRC)


@pytest.mark.parametrize(
    ("mark", "evidence", "owner"),
    [
        (MigrationState(3002, 4, -1, -1), HELD, Ownership.NOT_COPIED),
        (COPIED, HELD, Ownership.OURS),
        # another young quorum: the same offset, the same epoch, another batch
        (replace(COPIED, batch_crc=CRC + 1), HELD, Ownership.FOREIGN),
        (replace(COPIED, batch_crc=CRC + 1), replace(HELD, stock_wrote=True), Ownership.FOREIGN),
        (replace(COPIED, kraft_metadata_epoch=3), HELD, Ownership.FOREIGN),
        (COPIED, MarkEvidence(), Ownership.FOREIGN),
        (WITHOUT_CRC, MarkEvidence(), Ownership.FOREIGN),
        # a stock leader writes no CRC; nor did an old version of this program
        (WITHOUT_CRC, replace(HELD, stock_wrote=True), Ownership.OURS),
        (WITHOUT_CRC, HELD, Ownership.UNPROVED),
        # below the log's start
        (COPIED, MarkEvidence(compacted=True), Ownership.UNPROVED),
        (COPIED, MarkEvidence(compacted=True, same_copy=True), Ownership.OURS),
        (COPIED, MarkEvidence(same_copy=True), Ownership.FOREIGN),
        (WITHOUT_CRC, MarkEvidence(compacted=True), Ownership.UNPROVED),
    ],
)
def test_whose_mark_it_is(mark: MigrationState, evidence: MarkEvidence, owner: Ownership) -> None:
    assert ownership(shown(mark, evidence)) is owner
    forced = overriding(shown(mark, evidence))
    taken = owner in {Ownership.OURS, Ownership.NOT_COPIED}
    assert examine(shown(mark, evidence), MIGRATED).finding is (Finding.MAY_CLAIM if taken else Finding.REFUSE)
    may = taken or owner is Ownership.UNPROVED
    assert examine(shown(mark, evidence), forced).finding is (Finding.MAY_CLAIM if may else Finding.REFUSE)


@pytest.mark.parametrize("us", [PRE, DECODED, MIGRATED])
def test_a_claim_with_our_id_and_epoch_that_we_never_made_is_of_another_quorum(us: Claimant) -> None:
    """Every young quorum has a leader in its first epoch, and ids are alike."""
    theirs = standing(controller=OURS, mark=MigrationState(3001, 5, -1, -1))
    assert examine(theirs, replace(us, has_claimed=False)).finding is Finding.ELSEWHERE


def test_what_cannot_be_proved_is_said_with_the_way_on() -> None:
    old = examine(shown(WITHOUT_CRC, HELD), MIGRATED)
    assert "old version" in old.reason
    compacted = examine(shown(COPIED, MarkEvidence(compacted=True)), MIGRATED)
    assert "below the start" in compacted.reason
    assert "another leads" in compacted.remedy
    for verdict in (old, compacted):
        assert "'migrator force reclaim'" in verdict.remedy


@given(
    offset=st.integers(1, 50),
    epochs=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    crcs=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    end=st.integers(1, 60),
    start=st.integers(0, 60),
)
def test_no_mark_of_another_quorum_is_taken_for_ours(
    offset: int, epochs: tuple[int, int], crcs: tuple[int, int], end: int, start: int
) -> None:
    """A mark is ours only with the epoch and the CRC of the batch at its offset."""
    theirs = MigrationState(3002, epochs[0], offset, epochs[0], crcs[0])
    held = MarkEvidence(epochs[1], crcs[1]) if start <= offset < end else MarkEvidence(compacted=offset < start)
    same = start <= offset < end and (epochs[0], crcs[0]) == (epochs[1], crcs[1])
    assert (ownership(shown(theirs, held)) is Ownership.OURS) == same


def overriding(there: Standing) -> Claimant:
    """Us, with an order that overrides all that a refusal shows there."""
    return replace(MIGRATED, overridden=frozenset(examine(there, MIGRATED).overridable))


def test_only_a_rollback_and_what_cannot_be_proved_can_be_forced() -> None:
    rolled_back, foreign = standing(mark=COPIED, mark_in_log=4), standing(mark=COPIED, mark_in_log=3)
    assert examine(rolled_back, overriding(rolled_back)).finding is Finding.MAY_CLAIM
    assert examine(foreign, MIGRATED).overridable == ()
    assert examine(foreign, overriding(rolled_back)).finding is Finding.REFUSE
    assert examine(standing(mark=COPIED), PRE).overridable == ()
    assert examine(standing(mark=COPIED), replace(overriding(rolled_back), record=PRE.record)).finding is Finding.REFUSE


OLD_MARK = MarkEvidence(compacted=True)
UNDER_A_BROKER = Standing(CLUSTER_ID, standing(mark=COPIED, controller=BROKER_1).view, OLD_MARK)
UNDER_US = Standing(CLUSTER_ID, standing(mark=COPIED, controller=ControllerClaim(3002, 0, 4)).view, OLD_MARK)


def test_a_refusal_names_every_fact_that_it_rests_on() -> None:
    refusal = examine(UNDER_A_BROKER, MIGRATED)
    mark, rollback = refusal.overridable
    assert "below the start" in mark
    assert "held by ZooKeeper broker 1" in rollback
    assert mark in refusal.reason
    assert rollback in refusal.reason
    assert "another leads" in refusal.remedy
    assert "Stop this quorum if the rollback was meant" in refusal.remedy
    assert examine(UNDER_A_BROKER, overriding(UNDER_A_BROKER)).finding is Finding.MAY_CLAIM


def under(**changes: Any) -> Standing:
    return replace(UNDER_A_BROKER, view=replace(UNDER_A_BROKER.view, **changes))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (UNDER_US, UNDER_A_BROKER),  # rolled back since
        (standing(mark=COPIED, mark_in_log=4), UNDER_A_BROKER),  # the proof is gone
        (UNDER_A_BROKER, under(controller=ControllerClaim(2, 0))),
        (UNDER_A_BROKER, under(controller=ControllerClaim(1, 60_000))),  # elected again
        (UNDER_A_BROKER, under(controller=None)),
        (UNDER_A_BROKER, under(migration=replace(COPIED, kraft_metadata_offset=2_000))),
        (UNDER_A_BROKER, under(migration=replace(COPIED, kraft_controller_epoch=9))),
        (UNDER_A_BROKER, under(migration_version=4)),  # written again, and perhaps by another quorum
    ],
)
def test_a_fact_that_is_new_or_has_changed_is_refused_again(before: Standing, now: Standing) -> None:
    assert examine(before, overriding(before)).finding is Finding.MAY_CLAIM
    refused = examine(now, overriding(before))
    assert refused.finding is Finding.REFUSE
    assert refused.overridable == examine(now, MIGRATED).overridable, "all of it is said again"


def test_a_fact_that_has_gone_needs_no_order() -> None:
    assert examine(UNDER_US, overriding(UNDER_A_BROKER)).finding is Finding.MAY_CLAIM


def test_the_claim_heals_what_a_crash_left_and_else_keeps_the_offset() -> None:
    assert heal_to(standing(mark=COPIED), MIGRATED) is None
    assert heal_to(standing(), MIGRATED) == EpochOffset(4, 900)
    assert heal_to(standing(), DECODED) is None


def test_an_adopted_claim_has_the_versions_that_were_read() -> None:
    claim = adopt(standing(controller=OURS, mark=WRITTEN).view, MIGRATED)
    assert claim is not None
    assert (claim.zk_epoch, claim.epoch_version, claim.controller_version, claim.migration_version) == (7, 7, 1, 3)
