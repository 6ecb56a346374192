"""A migration that was reopened after its end: no command of a rollout ends it again unasked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.model_pieces import DUAL_WRITE, FINISHED
from tests.rollout.support.runs import Operator

REOPENED = "2026-11-27 16:00:00 UTC: CHG-44"


def reopened(operator: Operator) -> None:
    """As docs/way-back.md says, by hand: each controller has its file of before the end, then `migrator reopen`."""
    cluster = operator.cluster
    for node in cluster.inventory.controllers.nodes:
        kept = next(path for name, path in cluster.files if name == node.name and ".before-finish." in path)
        cluster.files[node.name, node.properties] = cluster.files[node.name, kept]
        cluster.crash(node)
        cluster.start_as_configured(node)
    cluster.state, cluster.reopened, cluster.kraft_claims = DUAL_WRITE, REOPENED, True


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory(handover=False)), tmp_path / "state")


def is_complete(operator: Operator) -> None:
    assert operator.apply() is Ending.COMPLETE


def is_before_the_archive(operator: Operator) -> None:
    assert operator.apply(StopAt(Phase.FINISH)) is Ending.REACHED


@pytest.mark.parametrize(
    ("stands", "command"),
    [
        (is_complete, Operator.apply),
        (is_before_the_archive, Operator.apply),
        (is_before_the_archive, Operator.resume),
    ],
)
def test_a_rollout_ends_a_reopened_migration_only_when_it_is_told_to(
    operator: Operator, stands: Callable[[Operator], None], command: Callable[[Operator], Ending]
) -> None:
    stands(operator)
    assert operator.cluster.state == FINISHED
    reopened(operator)
    lines = len(operator.entries)
    with pytest.raises(OperatorError, match=r"was finished, and reopened.*CHG-44") as refused:
        command(operator)
    assert "'migrator rollout rollback'" in refused.value.remedy
    assert len(operator.entries) == lines
    assert operator.cluster.state == DUAL_WRITE
    operator.ends_again = True
    assert operator.apply() is Ending.COMPLETE
    assert operator.cluster.state == FINISHED
    assert operator.cluster.violations == []


def test_a_rollout_that_runs_while_the_migration_is_reopened_stops(operator: Operator) -> None:
    is_before_the_archive(operator)

    def somebody_reopens(where: str) -> None:
        if "resumed" in where and not operator.cluster.reopened:
            reopened(operator)

    operator.cluster.points.at = somebody_reopens
    with pytest.raises(OperatorError, match="was finished, and reopened"):
        operator.resume()
    operator.cluster.points.at = nothing
    assert operator.cluster.state == DUAL_WRITE


def test_a_reopened_migration_goes_home(operator: Operator) -> None:
    is_complete(operator)
    reopened(operator)
    assert operator.rollback() is Ending.COMPLETE
    assert operator.cluster.violations == []
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert operator.cluster.controller_broker is not None
