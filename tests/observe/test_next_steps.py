"""Every state of the migration has a next step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from migrator.migration.machine.states import State
from migrator.observe.next_steps import BLANK, FIRST, MEND, NO_LEADER, ROWS, facts_of, next_step
from migrator.observe.status import BrokerState, BrokerStatus, Problem
from tests.observe.support.next_table import table
from tests.observe.support.statuses import a_status, zookeeper_brokers

TROUBLE = (Problem("ZooKeeper", "it is out of reach", "Start it"),)


def test_every_state_has_a_row_and_every_row_a_state() -> None:
    named = {state for row in ROWS for state in row.states}
    assert named == {state.value for state in State}


@pytest.mark.parametrize("state", State)
def test_the_last_row_of_a_state_always_fits(state: State) -> None:
    assert next_step(a_status(state)) == next_step(a_status(state), ())
    *_, last = (row for row in ROWS if state.value in row.states)
    assert last.when(facts_of(a_status(state), ()))


def test_from_dual_writing_to_the_end() -> None:
    def step(*, zookeeper: tuple[int, ...], kraft: tuple[int, ...] = (), off: tuple[int, ...] = ()) -> str:
        return next_step(a_status(State.DUAL_WRITING, brokers=zookeeper_brokers(zookeeper, kraft), off=off))

    assert step(zookeeper=(1, 2, 3)).startswith("run 'migrator verify', then restart the brokers in KRaft mode")
    assert step(zookeeper=(1, 2, 3)).endswith("brokers 1-3")
    assert step(zookeeper=(2, 3), kraft=(1,)).endswith("brokers 2, 3. Done: broker 1")
    assert "run 'migrator verify', then restart the controllers" in step(zookeeper=(), kraft=(1, 2, 3))
    assert "restart the other controllers" in step(zookeeper=(), kraft=(1,), off=(3001,))
    assert "turn the migration on again on controller 3001" in step(zookeeper=(1,), off=(3001,))


def test_zookeeper_is_not_to_be_stopped_by_whoever_is_about_to_reopen_the_migration() -> None:
    assert next_step(a_status(State.FINISHED, off=(3001, 3002, 3003))).startswith("stop ZooKeeper if nothing else")
    on = next_step(a_status(State.FINISHED, off=(3001,)))
    assert on.startswith("'migrator gates reopen' says")
    assert on.endswith("off on controllers 3002, 3003")


@pytest.mark.parametrize(
    ("zookeeper", "kraft", "said"),
    [((1,), (2,), "brokers in migration mode, one after the other: broker 2 "), ((1, 2), (), "'migrator rollback'")],
)
def test_a_reopened_migration_is_on_its_way_home(zookeeper: tuple[int, ...], kraft: tuple[int, ...], said: str) -> None:
    calm = a_status(State.DUAL_WRITING, brokers=zookeeper_brokers(zookeeper, kraft))
    step = next_step(replace(calm, migration=replace(calm.migration, reopened="2026-11-27: CHG-44")))
    assert step.startswith("the migration was reopened. To go home")
    assert said in step


@pytest.mark.parametrize("state", [BrokerState.OFFLINE, BrokerState.FENCED])
@pytest.mark.parametrize("zookeeper", [(), (3,)])
@pytest.mark.parametrize("off", [(), (3001,)])
def test_no_node_is_restarted_while_a_broker_is_down(
    state: BrokerState, zookeeper: tuple[int, ...], off: tuple[int, ...]
) -> None:
    down = BrokerStatus(2, state, 1, in_zookeeper_mode=False)
    brokers = (*zookeeper_brokers(zookeeper, (1,)), down)
    step = next_step(a_status(State.DUAL_WRITING, brokers=brokers, off=off if not zookeeper else ()))
    assert step.startswith("wait for broker 2, or start")
    assert "only 'migrator reopen' leads back" not in step


def test_nothing_dangerous_comes_before_what_has_to_be_mended() -> None:
    calm = a_status(State.DUAL_WRITING, brokers=zookeeper_brokers((1,), ()))
    assert next_step(calm, TROUBLE) == FIRST + next_step(calm)


@pytest.mark.parametrize("state", [State.EXAMINING, State.COPYING, State.RECONCILING])
def test_the_controller_does_not_go_on_by_itself_while_something_is_to_be_mended(state: State) -> None:
    assert next_step(a_status(state)).startswith("nothing to do")
    assert next_step(a_status(state), TROUBLE) == MEND


def test_when_brokers_are_all_ready_nobody_has_to_restart_them() -> None:
    waiting = a_status(State.WAITING_FOR_BROKERS)
    assert "nothing to do" in next_step(waiting)
    assert "restart every broker" in next_step(waiting, TROUBLE)


def test_without_a_leader() -> None:
    assert next_step(a_status(State.INACTIVE, leader=-1)) == NO_LEADER
    assert next_step(a_status(State.INACTIVE, leader=-1, is_blank=True)) == BLANK


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")
    assert table() in page, "python -m tests.observe.support.next_table prints the table"


def test_a_row_that_has_a_condition_has_words_for_it() -> None:
    always = ROWS[0].when
    assert all((row.when is always) is not bool(row.case) for row in ROWS)
