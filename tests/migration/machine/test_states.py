"""The tables of states and transitions: what they must hold whatever the driver does, and how the manual shows them."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from migrator.migration.machine.states import PROPERTIES, PaceRule, PublicState, State, Writes, public_state
from migrator.migration.machine.transitions import TRANSITIONS, Finding, Trigger, next_state
from migrator.records.metadata import ZkMigrationState
from tests.migration.machine.support.diagram import diagram

DOCUMENT = Path(__file__).parents[3] / "docs" / "migration.md"


def successors(state: State) -> set[State]:
    return set(TRANSITIONS[state].values())


def predecessors(state: State) -> set[State]:
    return {before for before, ways in TRANSITIONS.items() if state in ways.values() and before is not state}


def test_every_triple_has_at_most_one_answer_and_unknown_ones_change_nothing() -> None:
    known = 0
    for triple in product(State, Trigger, Finding):
        after = next_state(*triple)
        known += after is not None
        assert after is TRANSITIONS[triple[0]].get(triple[1:])
    assert known == sum(map(len, TRANSITIONS.values()))


def test_each_state_has_one_row_and_one_block_in_the_order_of_the_states() -> None:
    assert list(PROPERTIES) == list(State)
    assert list(TRANSITIONS) == list(State)
    assert len({row.sentence for row in PROPERTIES.values()}) == len(State)


@pytest.mark.parametrize("state", State)
def test_the_properties_of_a_state_agree_with_one_another_and_with_its_transitions(state: State) -> None:
    row, ways = PROPERTIES[state], TRANSITIONS[state]
    triggers = {trigger for trigger, _ in ways}
    assert row.at_rest == (triggers <= {Trigger.ELECTED, Trigger.DEPOSED, Trigger.REOPENED}), (
        "who waits for nothing hears of nothing"
    )
    assert bool(row.forceable) == (Trigger.FORCED in triggers)
    assert row.writes_behind == ((Trigger.WRITE, Finding.FENCED) in ways), "who writes may be fenced"
    assert (row.writes is Writes.CHANGES) == ((Trigger.WRITE, Finding.FAILED) in ways)
    assert row.has_worker == ((Trigger.TIMER, Finding.STALLED) in ways), "a worker that hangs is noticed"
    assert row.writes is Writes.NOTHING or row.needs_zookeeper
    assert not row.writes_behind or row.public is PublicState.DUAL_WRITE
    assert row.pace is PaceRule.BACK_OFF or state in ways.values() or state is State.STEPPING_DOWN


def test_a_leader_with_the_migration_off_comes_to_no_state_that_has_it_on() -> None:
    off = {state for state in State if PROPERTIES[state].turned_off}
    assert off
    assert {after for state in off for after in successors(state)} - off == {State.INACTIVE, State.FINISHED}


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
    """Otherwise a controller that waits for brokers reads ZooKeeper without a rest, as one did."""
    repeated = {
        trigger for before, ways in TRANSITIONS.items() for (trigger, _), after in ways.items() if before is after
    }
    assert repeated == {Trigger.TIMER, Trigger.REGISTRATIONS, Trigger.ZOOKEEPER_CONNECTED, Trigger.FORCED}


def test_a_claim_follows_only_an_examination_and_the_copy_only_a_claim() -> None:
    assert predecessors(State.CLAIMING) == {State.EXAMINING, State.REFUSED}
    assert predecessors(State.COPYING) == {State.EXAMINING, State.REFUSED, State.CLAIMING}
    assert predecessors(State.COMMITTING) == {State.COPYING}


def test_a_copy_that_did_not_complete_always_gives_the_claim_back() -> None:
    assert successors(State.ABORTING) == {State.RELEASING, State.INACTIVE}
    assert State.WAITING_FOR_CONTROLLERS not in successors(State.RELEASING)


def test_finishing_cannot_be_reached_from_dual_writing_without_a_new_leader() -> None:
    assert predecessors(State.FINISHING) == {State.INACTIVE, State.STEPPING_DOWN}
    assert successors(State.FINISHED) == {State.INACTIVE, State.REOPENING}


def test_brokers_in_zookeeper_mode_are_admitted_only_after_a_whole_reconcile() -> None:
    assert predecessors(State.ADMITTING) == {State.RECONCILING}
    assert predecessors(State.REOPENING) == {State.FINISHED}


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


def test_the_documentation_lists_the_public_state_of_every_state() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (\w+) \| [^|]*\|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    labels = {public.label for public in PublicState}
    listed = {name: public for names, public in rows if public in labels for name in names.split(";")[0].split(", ")}
    assert listed == {state.value: PROPERTIES[state].public.label for state in State}
