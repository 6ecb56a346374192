"""Messages and questions have the order of the acts: the leader of the quorum comes last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.preview import gather, preview
from migrator.rollout.journal.journal import Event
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Direction, Phase
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

LEADER = "controller-3001"  # the first one that runs leads, in the model
OTHERS = ["controller-3002", "controller-3003"]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Before the end."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    assert operator.apply(StopAt(Phase.VERIFY)) is Ending.REACHED
    return operator


def shown(operator: Operator, phase: Phase, direction: Direction = Direction.FORWARD) -> list[str]:
    """The nodes of a phase, as `plan` lists them."""
    parts, progress = operator.parts(), progress_of(operator.entries)
    steps = plan(parts.inventory, direction)
    facts = asyncio.run(gather(parts, steps, progress))
    found = preview(parts, steps, progress, facts)
    return [one.step.node.name for one in found if one.step.phase is phase and one.step.node is not None]


def done(operator: Operator, phase: Phase) -> list[str]:
    """The nodes of a phase, as they were done."""
    steps = [entry.step for entry in operator.entries if entry.event is Event.DONE and not entry.act]
    return [step.partition("/")[2] for step in steps if step.startswith(f"{phase.value}/")]


def test_the_plan_and_the_question_have_the_order_in_which_controllers_end(operator: Operator) -> None:
    planned = {phase: shown(operator, phase) for phase in (Phase.FINISH, Phase.HANDOVER)}
    assert planned[Phase.FINISH] == [*OTHERS, LEADER]
    assert operator.resume() is Ending.COMPLETE
    assert operator.asked[0] == (*OTHERS, LEADER)
    assert {phase: done(operator, phase) for phase in planned} == planned
    assert {phase: shown(operator, phase) for phase in planned} == planned


def test_the_way_back_is_shown_in_its_order(operator: Operator) -> None:
    planned = shown(operator, Phase.STOP_QUORUM, Direction.BACK)
    assert operator.rollback() is Ending.COMPLETE
    assert done(operator, Phase.STOP_QUORUM) == planned == [*OTHERS, LEADER]


def test_a_pause_after_the_first_controller_of_the_inventory_is_refused_where_it_is_the_end(operator: Operator) -> None:
    with pytest.raises(OperatorError, match=f"after finish/{LEADER} the migration has ended") as refused:
        operator.apply(StopAt(step=f"finish/{LEADER}"))
    assert f"name finish/{OTHERS[0]}" in refused.value.remedy
    assert operator.cluster.state == "DualWrite"
    assert not operator.asked
    assert done(operator, Phase.FINISH) == []


def test_an_election_does_not_bring_a_pause_behind_the_end(operator: Operator) -> None:
    """The second one was to be the pause; then it leads, and would come last."""
    first, second = OTHERS

    def elects(where: str) -> None:
        if where == f"after start {first}":
            operator.cluster.leader = operator.node(second).node_id

    operator.cluster.points.at = elects
    with pytest.raises(OperatorError, match=f"after finish/{second} the migration has ended"):
        operator.apply(StopAt(step=f"finish/{second}"))
    assert done(operator, Phase.FINISH) == [first]
    assert operator.cluster.state == "DualWrite"


def test_the_last_controller_may_be_named_where_it_is_the_only_one_left(operator: Operator) -> None:
    assert operator.apply(StopAt(step=f"finish/{OTHERS[1]}")) is Ending.PAUSED
    assert operator.apply(StopAt(step=f"finish/{LEADER}")) is Ending.PAUSED
    assert operator.asked[-1] == (LEADER,)


def test_a_controller_that_is_down_is_handed_over_first(operator: Operator) -> None:
    """No other controller may stop before it is back, and the rollout starts it."""
    assert operator.apply(StopAt(Phase.FINISH)) is Ending.REACHED
    operator.cluster.crash(operator.node(OTHERS[1]))
    assert operator.resume() is Ending.COMPLETE
    assert done(operator, Phase.HANDOVER) == [OTHERS[1], OTHERS[0], LEADER]
