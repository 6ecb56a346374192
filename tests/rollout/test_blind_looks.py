"""One look at which somebody does not answer, at any moment of a rollout, changes nothing of how it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.decisions import FileAheadError
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import ExecutorError, Observation
from migrator.seeing.controllers import ControllerSeen
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

Way = Callable[[Operator], Ending]
Blinds = Callable[[Observation], Observation]
GONE = "broker-4"
MORE = pytest.mark.lane("test-all")


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", nothing)


def nobody_answers(_: Observation) -> Observation:
    return Observation(unknown=("nobody answers",))


def zookeeper_is_away(seen: Observation) -> Observation:
    brokers = seen.brokers if seen.is_finished else None
    return replace(seen, zookeeper_answers=False, controller_broker=None, quorum_claims=False, brokers=brokers)


def no_controller_answers(seen: Observation) -> Observation:
    brokers = seen.brokers if seen.controller_broker is not None else None
    return replace(seen, quorum=None, migration=None, metadata_version="", brokers=brokers)


def looking(operator: Operator, blinds: Blinds, number: int) -> list[int]:
    """Blinds the look with this number; returns the list that counts them."""
    observe, looks = operator.cluster.observe, [0]

    async def observed(*, partitions: bool = True) -> Observation:
        looks[0] += 1
        seen = await observe(partitions=partitions)
        return blinds(seen) if looks[0] == number else seen

    operator.cluster.observe = observed  # type: ignore[method-assign]
    return looks


def to_the_end(operator: Operator, way: Way) -> None:
    """A command that ends with an error is typed once more. What nobody saw is no reason to change a file."""
    try:
        ending = way(operator)
    except FileAheadError:
        raise
    except OperatorError:
        ending = way(operator)
    assert ending is Ending.COMPLETE


def forward(operator: Operator) -> Ending:
    return operator.apply()


def back(operator: Operator) -> Ending:
    return operator.rollback()


def begins(operator: Operator) -> None:
    """Nothing was done yet."""


def in_kraft(operator: Operator) -> None:
    operator.resume_until(Phase.KRAFT)


def in_kraft_with_a_lost_journal(operator: Operator) -> None:
    operator.resume_until(Phase.KRAFT)
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None


def without_a_broker(operator: Operator) -> None:
    """It died in KRaft mode, and its registration has to go."""
    operator.apply(StopAt(Phase.KRAFT))
    operator.cluster.crash(operator.node(GONE))

    def fault(action: str, node: object) -> None:
        if node == operator.node(GONE):
            raise ExecutorError("the host does not answer", where=GONE)

    operator.cluster.fault = fault
    operator.gone = (GONE,)


@pytest.mark.parametrize(
    "blinds",
    [
        nobody_answers,
        pytest.param(zookeeper_is_away, marks=MORE),
        pytest.param(no_controller_answers, marks=MORE),
    ],
)
@pytest.mark.parametrize(
    ("stands", "way"),
    [
        pytest.param(begins, forward, marks=MORE),
        (in_kraft, back),
        pytest.param(in_kraft_with_a_lost_journal, forward, marks=MORE),
        pytest.param(without_a_broker, forward, marks=MORE),
        pytest.param(without_a_broker, back, marks=MORE),
    ],
)
def test_a_look_at_which_somebody_does_not_answer(
    stands: Callable[[Operator], None], way: Way, blinds: Blinds, tmp_path: Path
) -> None:
    (tmp_path / "world").mkdir()
    world = Operator(ModelCluster(model_inventory(brokers=4), min_isr=1), tmp_path / "world")
    stands(world)

    def fresh(name: str) -> Operator:
        operator = world.copy(tmp_path / name)
        operator.gone = world.gone
        return operator

    clean = fresh("clean")
    looks = looking(clean, blinds, 0)
    to_the_end(clean, way)
    for number in range(1, looks[0] + 1):
        operator = fresh(str(number))
        looking(operator, blinds, number)
        to_the_end(operator, way)
        assert operator.cluster.end_state() == clean.cluster.end_state(), number
        assert operator.cluster.unregistered == clean.cluster.unregistered, number
        assert operator.cluster.restarts == clean.cluster.restarts, number
        assert not operator.cluster.violations, number


def test_a_controller_that_is_silent_at_one_look_is_not_left_out_of_the_end(tmp_path: Path) -> None:
    """Its file says that the migration is off, and it was not restarted since."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    operator.resume_until(Phase.KRAFT)
    ended = operator.copy(tmp_path / "ended")
    ended.resume_until(Phase.FINISH)
    node = operator.node("controller-3002")
    key = node.name, node.properties
    operator.cluster.files[key] = ended.cluster.files[key]

    def silent(seen: Observation) -> Observation:
        assert seen.quorum is not None
        voters = {**seen.quorum.voters, node.node_id: ControllerSeen(node.node_id, None)}
        return replace(seen, quorum=replace(seen.quorum, voters=voters))

    first = operator.copy(tmp_path / "first")
    looks = looking(first, silent, 0)
    with contextlib.suppress(OperatorError):
        first.resume_until(Phase.FINISH)
    first.resume_until(Phase.FINISH)
    for number in range(1, looks[0] + 1):
        each = operator.copy(tmp_path / str(number))
        looking(each, silent, number)
        for _ in range(2):
            with contextlib.suppress(OperatorError):
                each.apply(StopAt(Phase.FINISH))
        assert each.apply(StopAt(Phase.FINISH)) is Ending.REACHED, number
        assert each.cluster.state == "Finished", number
