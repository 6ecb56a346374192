"""A rollout that is killed at any boundary and resumed ends as one that was not killed, with not one restart more.

The boundaries: before and after each line of the journal, and before and after each effect on a node. Behind every
second one, the last line of the journal is torn. `make test` tries one boundary of each kind, `make test-all` all.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode
from tests.rollout.support.boundaries import Way, Worlds, boundaries_of, is_step_end, one_of_each_kind
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of lines; what is on disk after a kill is decided by the boundaries."""
    monkeypatch.setattr(os, "fsync", nothing)


def forward(operator: Operator) -> Ending:
    return operator.apply()


def back(operator: Operator) -> Ending:
    return operator.rollback()


def with_canary(operator: Operator) -> Ending:
    """The operator goes on each time the rollout waits behind the canary."""
    while (ending := operator.apply(canary="2")) is Ending.PAUSED:
        assert operator.entries[-1].event is Event.PAUSED
    return ending


def killed_everywhere(clean: Operator, way: Way, tmp_path: Path, *, few: bool = False) -> int:
    """Goes on from each boundary of one run as another process, and compares; says how many boundaries there are.

    :param few: from one boundary of each kind only.
    """
    left = boundaries_of(clean, way, tmp_path)

    def ends_as_clean(where: str, operator: Operator) -> None:
        assert operator.cluster.end_state() == clean.cluster.end_state(), where
        assert not operator.cluster.violations, where
        assert operator.cluster.restarts == clean.cluster.restarts, where
        assert operator.lock.owner is None, where

    worlds = Worlds(way, ends_as_clean)
    wheres = [where for where, _ in left]
    last = 0
    for number in one_of_each_kind(wheres) if few else range(len(left)):
        worlds.goes_on(*left[number], whole=any(map(is_step_end, wheres[last:number])))
        last = number
    return len(left)


MORE = pytest.mark.lane("test-all")
STOPS = {True: "stop and start", False: "restart in one command"}


def cases(*each: object) -> list[ParameterSet]:
    """A boundary of each kind of the first of ``each`` in `make test`, all boundaries of all in `make test-all`."""
    many = [
        pytest.param(one, stops, False, id=f"{getattr(one, '__name__', one)}, {name}", marks=MORE)
        for one in each
        for stops, name in STOPS.items()
    ]
    return [pytest.param(each[0], False, True, id="one of each kind"), *many]


@pytest.mark.parametrize(("way", "stops", "few"), cases(forward, with_canary))
def test_killed_at_every_boundary(tmp_path: Path, way: Way, *, stops: bool, few: bool) -> None:
    (tmp_path / "clean").mkdir()
    clean = Operator(ModelCluster(model_inventory(), stops=stops), tmp_path / "clean")
    assert killed_everywhere(clean, way, tmp_path, few=few) > 300


@pytest.mark.parametrize(("reached", "stops", "few"), cases(Phase.KRAFT, Phase.START, Phase.MIGRATE, Phase.COPY))
def test_killed_at_every_boundary_of_the_way_back(tmp_path: Path, reached: Phase, *, stops: bool, few: bool) -> None:
    (tmp_path / "clean").mkdir()
    clean = Operator(ModelCluster(model_inventory(), stops=stops), tmp_path / "clean")
    assert clean.apply(StopAt(reached)) is Ending.REACHED
    assert killed_everywhere(clean, back, tmp_path, few=few) > 50


@MORE
def test_rolled_back_from_every_boundary(tmp_path: Path) -> None:
    """Until the end of the migration; then a second rollout succeeds."""
    (tmp_path / "clean").mkdir()
    clean = Operator(ModelCluster(model_inventory()), tmp_path / "clean")
    left = boundaries_of(clean, forward, tmp_path)
    last = max(number for number, (_, operator) in enumerate(left) if operator.cluster.state != "Finished")
    for number, (where, operator) in enumerate(left):
        if number > last:
            with pytest.raises(OperatorError, match="'migrator reopen' alone leads back"):
                back(operator)
            continue
        assert back(operator) is Ending.COMPLETE, where
        assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}, where
        assert not operator.cluster.kraft_claims, where
        if number % 10 == 0:
            assert forward(operator) is Ending.COMPLETE, where
            assert operator.cluster.end_state() == clean.cluster.end_state(), where
        assert not operator.cluster.violations, where


@MORE
def test_killed_at_every_boundary_with_stock_controllers_and_racks(tmp_path: Path) -> None:
    (tmp_path / "clean").mkdir()
    inventory = model_inventory(brokers=6, racks=3, roll="rack", kind="stock", handover=False)
    clean = Operator(ModelCluster(inventory), tmp_path / "clean")
    assert killed_everywhere(clean, forward, tmp_path) > 300
