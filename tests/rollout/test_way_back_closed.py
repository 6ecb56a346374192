"""The migration ends while the way back begins: nobody waits for what cannot come; the rollout goes forward again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending
from migrator.rollout.gates.gates import judge
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Act, Direction, Phase
from migrator.rollout.ports import BrokerMode, Gate, GateKind, MigrationSeen, Observation
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.model_pieces import FINISHED
from tests.rollout.support.runs import Operator

LAST = "controller-3001"
"""It leads in the model, so its migration is turned off last."""
TOO_LATE = "is finished: ZooKeeper gets no changes"


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of lines."""
    monkeypatch.setattr(os, "fsync", nothing)


class KilledError(Exception):
    """The command ends here."""


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """The rollout was killed before it restarted the last controller: everything but this restart is done."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")

    def dies(where: str) -> None:
        if where == f"before stop {LAST}":
            raise KilledError

    operator.cluster.points.at = dies
    with pytest.raises(KilledError):
        operator.apply()
    operator.cluster.points.at = nothing
    return operator


def beginning(operator: Operator, state: Path) -> list[str]:
    """The boundaries of the way back, until the first broker serves again."""
    passed: list[str] = []
    clean = operator.copy(state)
    clean.cluster.points.at = passed.append
    assert clean.rollback() is Ending.COMPLETE
    return passed[: passed.index("after passed leave-kraft/broker-1 check-after") + 1]


def goes_back_too_late(operator: Operator, number: int) -> None:
    """The migration ends at the boundary with this number."""
    left = number

    def ends(_: str) -> None:
        nonlocal left
        if left == 0:
            operator.cluster.state = FINISHED
        left -= 1

    operator.cluster.points.at = ends
    begun = operator.clock.now_ms
    with pytest.raises(OperatorError, match=TOO_LATE) as raised:
        operator.rollback()
    operator.cluster.points.at = nothing
    assert "'migrator rollout apply'" in raised.value.remedy
    assert operator.clock.now_ms - begun < operator.cluster.inventory.times.gate * 1000, "nobody waits for it"


@pytest.mark.lane("test-all")
def test_the_migration_ends_at_each_boundary_of_the_beginning(operator: Operator, tmp_path: Path) -> None:
    clean = operator.copy(tmp_path / "clean")
    assert clean.apply() is Ending.COMPLETE
    boundaries = beginning(operator, tmp_path / "back")
    looked = boundaries.index("before passed leave-kraft/broker-1 check-before")
    assert looked > 20
    for number, where in enumerate(boundaries):
        late = operator.copy(tmp_path / str(number))
        goes_back_too_late(late, number)
        if number < looked:
            assert set(late.cluster.modes().values()) == {BrokerMode.KRAFT}, where
        with pytest.raises(OperatorError, match=TOO_LATE):
            late.resume()
        with pytest.raises(OperatorError, match=TOO_LATE):
            late.rollback()
        late.cluster.violations.clear()
        asked = len(late.asked)
        assert late.apply() is Ending.COMPLETE, where
        assert len(late.asked) == asked, "it has ended: there is nothing to be asked any more"
        assert late.cluster.end_state() == clean.cluster.end_state(), where
        assert not late.cluster.violations, where
        assert late.lock.owner is None, where


@pytest.mark.lane("test-all")
def test_whoever_is_killed_on_the_way_forward_again_goes_on(operator: Operator, tmp_path: Path) -> None:
    clean = operator.copy(tmp_path / "clean")
    assert clean.apply() is Ending.COMPLETE
    boundaries = beginning(operator, tmp_path / "back")
    goes_back_too_late(operator, boundaries.index("after start broker-1"))
    operator.cluster.violations.clear()
    left: list[tuple[str, Operator]] = []
    operator.cluster.points.at = lambda where: left.append((where, operator.copy(tmp_path / f"{len(left)}")))
    assert operator.apply() is Ending.COMPLETE
    for where, killed in left[::4]:
        assert killed.apply() is Ending.COMPLETE, where
        assert killed.cluster.end_state() == clean.cluster.end_state(), where
        assert not killed.cluster.violations, where
        assert [entry.event for entry in killed.entries].count(Event.FORWARD) == 1, where
    assert operator.cluster.restarts["broker-1"] == clean.cluster.restarts["broker-1"] + 2


def test_who_was_left_out_stays_left_out(operator: Operator) -> None:
    operator.cluster.crash(operator.node("broker-3"))
    operator.gone = ("broker-3",)
    goes_back_too_late(operator, 3)
    operator.gone = ()
    operator.cluster.unregistered.add(3)
    assert operator.apply() is Ending.COMPLETE
    assert operator.cluster.modes()["broker-3"] is None


def test_a_rollback_that_can_go_on_is_not_turned(operator: Operator) -> None:
    def dies(where: str) -> None:
        if where == "before stop broker-1":
            raise KilledError

    operator.cluster.points.at = dies
    with pytest.raises(KilledError):
        operator.rollback()
    operator.cluster.points.at = nothing
    with pytest.raises(OperatorError, match="a rollback is under way"):
        operator.apply()
    assert operator.resume() is Ending.COMPLETE
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}


def test_every_step_back_that_touches_a_node_asks_whether_the_migration_has_ended() -> None:
    wanted = Gate(GateKind.NOT_FINISHED)
    touching = {Act.EDIT, Act.RESTART, Act.START, Act.STOP}
    steps = [step for step in plan(model_inventory(), Direction.BACK) if touching & {*step.acts}]
    assert {step.phase for step in steps} == {
        Phase.MIGRATION_ON,
        Phase.START_QUORUM,
        Phase.LEAVE_KRAFT,
        Phase.STOP_QUORUM,
        Phase.SET_ASIDE,
        Phase.LEAVE_MIGRATION,
    }
    assert all(step.before[0] == wanted and step.acts[0] is Act.CHECK_BEFORE for step in steps)


def test_the_gate_is_shut_for_ever_by_the_end_alone() -> None:
    gate = Gate(GateKind.NOT_FINISHED)
    assert not judge(gate, Observation())
    assert not judge(gate, Observation(migration=MigrationSeen("DualWrite")))
    (waiting,) = judge(gate, Observation(migration=MigrationSeen(FINISHED)))
    assert waiting.for_ever
