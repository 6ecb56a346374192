"""The progress of a rollout: a command folds each line once, and what was handed out before stays as it was."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.journal import progress as folding
from migrator.rollout.journal.journal import Entry
from migrator.rollout.journal.progress import Progress, progress_of
from migrator.rollout.plan.steps import Phase
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Has gone half-way, back, and all the way."""
    operator = Operator(ModelCluster(model_inventory()), tmp_path)
    assert operator.apply(StopAt(Phase.MIGRATE)) is Ending.REACHED
    assert operator.rollback() is Ending.COMPLETE
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    return operator


def test_a_command_folds_each_line_once(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it opens the journal, or writes the line."""
    before, folded, fold = len(operator.entries), list[int](), folding._after

    def counted(progress: Progress, entry: Entry) -> Progress:
        folded.append(entry.number)
        return fold(progress, entry)

    monkeypatch.setattr(folding, "_after", counted)
    assert operator.apply() is Ending.COMPLETE
    after = len(operator.entries)
    assert after > before + 20
    assert folded == [*range(1, after + 1)]


def test_line_by_line_it_is_as_all_at_once(operator: Operator) -> None:
    entries, progress = operator.entries, Progress()
    for number, entry in enumerate(entries):
        kept = deepcopy(progress)
        following = progress_of((entry,), progress)
        assert progress == kept, entry
        assert following == progress_of(entries[: number + 1]), entry
        progress = following
