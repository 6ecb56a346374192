"""A rollout that is killed at any boundary and resumed ends as one that was not killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.rollout import journal as journal_module
from migrator.rollout.apply import Ending
from migrator.rollout.journal import Event, read_journal
from migrator.rollout.steps import Act
from tests.rollout.support.model import KilledError, ModelCluster, Points, model_inventory
from tests.rollout.support.runs import Operator


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of lines; that they are on disk is the subject of another test."""
    monkeypatch.setattr(journal_module.os, "fsync", lambda descriptor: None)


def begun_restarts(state: Path) -> set[str]:
    """Nodes whose start or restart the journal shows begun, and not ended."""
    begun: dict[tuple[str, str], str] = {}
    for entry in read_journal(state):
        if entry.act in (Act.RESTART, Act.START):
            if entry.event is Event.BEGUN:
                begun[entry.step, entry.act] = str(entry.details["node"])
            elif entry.event in (Event.DONE, Event.FOUND):
                begun.pop((entry.step, entry.act), None)
    return set(begun.values())




@pytest.mark.parametrize("stops", [True, False], ids=["stop and start", "restart in one command"])
@pytest.mark.parametrize("back", [False, True], ids=["forward", "back"])
def test_killed_at_every_boundary(tmp_path: Path, *, stops: bool, back: bool) -> None:
    from migrator.rollout.apply import StopAt
    from migrator.rollout.steps import Phase

    def prepared(name: str, kill_at: int) -> Operator:
        state = tmp_path / name
        state.mkdir()
        operator = Operator(ModelCluster(model_inventory(), stops=stops), state)
        if back:
            operator.apply(StopAt(Phase.KRAFT))
        operator.cluster.points = Points(kill_at)
        return operator

    def run(operator: Operator) -> Ending:
        return operator.rollback() if back else operator.apply()

    clean = prepared("clean", -1)
    assert run(clean) is Ending.COMPLETE
    assert not clean.cluster.violations
    total = clean.cluster.points.passed
    assert total > 100
    for point in range(total):
        operator = prepared(str(point), point)
        with pytest.raises(KilledError) as killed:
            run(operator)
        where = f"{point}: {killed.value}"
        begun = begun_restarts(operator.state)
        assert run(operator) is Ending.COMPLETE, where
        assert operator.cluster.end_state() == clean.cluster.end_state(), where
        assert not operator.cluster.violations, where
        more = operator.cluster.restarts - clean.cluster.restarts
        assert sum(more.values()) <= 1, where
        assert set(more) <= begun, where
        assert not clean.cluster.restarts - operator.cluster.restarts, where
        assert operator.lock.owner is None, where
