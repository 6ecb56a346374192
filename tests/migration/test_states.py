"""The transition table: what it must hold whatever the driver does, and the diagram in the documentation."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from migrator.migration.states import (
    TRANSITIONS,
    Finding,
    PublicState,
    State,
    Trigger,
    diagram,
    next_state,
    public_state,
)
from migrator.records.metadata import ZkMigrationState

DOCUMENT = Path(__file__).parents[2] / "docs" / "migration.md"


def successors(state: State) -> set[State]:
    return {after for (before, _, _), after in TRANSITIONS.items() if before is state}


def predecessors(state: State) -> set[State]:
    return {before for (before, _, _), after in TRANSITIONS.items() if after is state and before is not state}


def test_every_triple_has_at_most_one_answer_and_unknown_ones_change_nothing() -> None:
    known = 0
    for triple in product(State, Trigger, Finding):
        after = next_state(*triple)
        known += after is not None
        assert after is TRANSITIONS.get(triple)
    assert known == len(TRANSITIONS)


@pytest.mark.parametrize("state", [state for state in State if state is not State.INACTIVE])
def test_losing_the_leadership_ends_every_state(state: State) -> None:
    assert next_state(state, Trigger.DEPOSED, Finding.ANY) is State.INACTIVE


def test_every_state_can_be_reached_and_left() -> None:
    reached = {State.INACTIVE}
    while grown := {after for state in reached for after in successors(state)} - reached:
        reached |= grown
    assert reached == set(State)
    assert all(successors(state) for state in State)


def test_no_answer_makes_a_state_ask_again() -> None:
    """It would for as long as nothing changes: a controller that waited for brokers read ZooKeeper without a rest."""
    repeated = {trigger for (before, trigger, _), after in TRANSITIONS.items() if before is after}
    assert repeated == {Trigger.TIMER, Trigger.REGISTRATIONS, Trigger.ZOOKEEPER_CONNECTED}


def test_a_claim_follows_only_an_examination_and_the_copy_only_a_claim() -> None:
    assert predecessors(State.CLAIMING) == {State.EXAMINING, State.REFUSED}
    assert predecessors(State.COPYING) == {State.EXAMINING, State.REFUSED, State.CLAIMING}
    assert predecessors(State.COMMITTING) == {State.COPYING}


def test_a_copy_that_did_not_complete_always_gives_the_claim_back() -> None:
    assert successors(State.ABORTING) == {State.RELEASING, State.INACTIVE}
    assert State.WAITING_FOR_CONTROLLERS not in successors(State.RELEASING)


def test_finishing_cannot_be_reached_from_dual_writing_without_a_new_leader() -> None:
    assert predecessors(State.FINISHING) == {State.INACTIVE, State.STEPPING_DOWN}
    assert successors(State.FINISHED) == {State.INACTIVE}


@pytest.mark.parametrize(
    ("record", "state", "public"),
    [
        (ZkMigrationState.NONE, State.INACTIVE, PublicState.MIGRATION_INELIGIBLE),
        (ZkMigrationState.PRE_MIGRATION, State.INACTIVE, PublicState.MIGRATION_INELIGIBLE),
        (ZkMigrationState.PRE_MIGRATION, State.WAITING_FOR_BROKERS, PublicState.MIGRATION_INELIGIBLE),
        (ZkMigrationState.PRE_MIGRATION, State.COPYING, PublicState.MIGRATE_ZK_DATA),
        (ZkMigrationState.MIGRATION, State.CLAIMING, PublicState.DUAL_WRITE),
        (ZkMigrationState.MIGRATION, State.INACTIVE, PublicState.DUAL_WRITE),
        (ZkMigrationState.POST_MIGRATION, State.INACTIVE, PublicState.FINISHED),
    ],
)
def test_public_states_follow_the_record_first(record: ZkMigrationState, state: State, public: PublicState) -> None:
    assert public_state(record, state) is public


def test_the_documentation_shows_the_table_as_it_is() -> None:
    assert diagram() in DOCUMENT.read_text(encoding="utf-8")
