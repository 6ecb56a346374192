"""The alerts on the migration, judged over what three controllers show in every state."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from migrator.migration.machine.states import State, public_state
from migrator.migration.machine.volatile_state import DriverStatus, Situation
from migrator.node.metrics import migration_figures
from migrator.observe.metrics import GAUGES, Reading
from migrator.records.metadata import ZkMigrationState
from tests.deploy.test_files import rules
from tests.observe.test_metrics import READING

MIGRATION, PRE_MIGRATION = ZkMigrationState.MIGRATION, ZkMigrationState.PRE_MIGRATION
Figures = Mapping[str, float]
JOB = re.compile(r"\{job=[^}]*\}| by \(job\)")
COMPARE: dict[type, Callable[[Any, Any], bool]] = {ast.Eq: operator.eq, ast.Gt: operator.gt, ast.Lt: operator.lt}


def value_of(node: ast.expr, own: Figures, nodes: Iterable[Figures]) -> Any:
    """Of a rule's expression, in the part of PromQL that these rules use: a bare name is this controller's sample."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return own[name]
        case ast.Call(ast.Name("max"), [ast.Name(name)]):
            return max(each[name] for each in nodes)
        case ast.BinOp(left, ast.Add(), right):
            return value_of(left, own, nodes) + value_of(right, own, nodes)
        case ast.Compare(left, [how], [right]):
            return COMPARE[type(how)](value_of(left, own, nodes), value_of(right, own, nodes))
        case ast.BoolOp(ast.And(), parts):
            return all(value_of(part, own, nodes) for part in parts)
        case ast.BoolOp(ast.Or(), parts):
            return any(value_of(part, own, nodes) for part in parts)
    raise ValueError(ast.unparse(node))


def parsed(expression: str) -> ast.expr:
    """Without the selection of a job: there is one here."""
    return ast.parse(JOB.sub("", expression).strip(), mode="eval").body


def firing(readings: Iterable[Reading]) -> set[str]:
    """The alerts on the migration whose condition holds."""
    names = {"CopyTakesLong", "DualWriteDoesNotWrite", "MigrationFlagForgotten", "BrokersAreNotTold"}
    nodes = [{name: float(figure(reading)) for name, _, figure in GAUGES} for reading in readings]
    return {
        rule["alert"]
        for rule in rules()
        if rule["alert"] in names and any(value_of(parsed(rule["expr"]), own, nodes) for own in nodes)
    }


def controllers(record: ZkMigrationState, state: State, *, enabled: bool = True, not_told: int = 0) -> list[Reading]:
    """A leader in that state, and two followers."""
    driver = DriverStatus(state, public_state(record, state), 5, 1, Situation(), True, False, None)
    quiet = replace(READING, zk_migration_state=int(record), brokers_not_told=0)
    follower = replace(quiet, active=False, migration=migration_figures(record, None, enabled=True))
    leader = replace(
        quiet,
        active=True,
        migration=migration_figures(record, driver, enabled=enabled),
        brokers_not_told=not_told,
    )
    return [leader, follower, follower]


@pytest.mark.parametrize("state", [state for state in State if state not in (State.INACTIVE, State.FINISHED)])
def test_dual_write_that_does_not_write_is_alerted_on(state: State) -> None:
    fired = firing(controllers(MIGRATION, state))
    assert fired == (set() if state is State.DUAL_WRITING else {"DualWriteDoesNotWrite"})


@pytest.mark.parametrize("state", list(State))
def test_a_copy_that_takes_long_is_alerted_on(state: State) -> None:
    copies = public_state(PRE_MIGRATION, state).label == "MigrateZkData"
    assert firing(controllers(PRE_MIGRATION, state)) == ({"CopyTakesLong"} if copies else set())


@pytest.mark.parametrize(("record", "state"), [(MIGRATION, State.FINISHING), (PRE_MIGRATION, State.INACTIVE)])
def test_one_forgotten_flag_on_the_leader_is_alerted_on(record: ZkMigrationState, state: State) -> None:
    assert "MigrationFlagForgotten" in firing(controllers(record, state, enabled=False))
    assert "MigrationFlagForgotten" not in firing(controllers(record, state))


@pytest.mark.parametrize("record", [ZkMigrationState.NONE, ZkMigrationState.POST_MIGRATION])
def test_outside_a_migration_none_of_them_fires(record: ZkMigrationState) -> None:
    assert firing(controllers(record, State.INACTIVE, enabled=False)) == set()


def test_a_broker_that_is_not_told_is_alerted_on() -> None:
    assert firing(controllers(MIGRATION, State.DUAL_WRITING, not_told=1)) == {"BrokersAreNotTold"}
