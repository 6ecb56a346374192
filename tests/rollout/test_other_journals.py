"""Journals that another release has made, and journals of commands that the lock refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.journal.journal import FORMAT, Entry, Event, line_of, read_journal
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.plan.steps import Direction, Phase
from migrator.rollout.ports import LockedError, LockHolder
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

OTHER = LockHolder("another", "anna", "ops-2", 1_700_000_000_000)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory()), tmp_path / "state")


def mend(operator: Operator) -> None:
    """Change a file, as the rollout with the lock does."""
    operator.cluster.files["broker-1", "/etc/b1.properties"] += b"num.io.threads=16\n"


def line_with(number: int, **changed: object) -> bytes:
    content = Entry(number, 1, Event.DONE, "preflight", "run").as_json() | changed
    return line_of(content)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"act": "levitate"}, "an act levitate"),
        ({"event": "foreseen"}, "'foreseen' is not a valid Event"),
        ({"event": "opened", "details": {"format": FORMAT + 1}}, f"its format is {FORMAT + 1}"),
    ],
)
def test_a_journal_of_a_newer_release_is_named_and_not_called_damaged(
    operator: Operator, changed: dict[str, object], said: str
) -> None:
    operator.apply(StopAt(Phase.PREFLIGHT))
    file = operator.state / COMMAND_FILE
    kept = file.read_bytes() + line_with(len(operator.entries) + 1, **changed)
    file.write_bytes(kept)
    for read in (read_journal, RolloutJournal):
        with pytest.raises(OperatorError, match=f"newer release of this program: .*{said}") as refused:
            read(operator.state)
        assert "Go on with that release" in refused.value.remedy
    assert file.read_bytes() == kept


def test_a_journal_without_a_number_is_of_an_earlier_release_and_is_read(operator: Operator) -> None:
    operator.apply(StopAt(Phase.PREFLIGHT))
    assert operator.entries[0].details["format"] == FORMAT
    _, *others = (operator.state / COMMAND_FILE).read_bytes().splitlines(keepends=True)
    entry = operator.entries[0].as_json()
    details = {"rollout": operator.entries[0].details["rollout"], "direction": "forward", "canary": ""}
    (operator.state / COMMAND_FILE).write_bytes(b"".join([line_of(entry | {"details": details}), *others]))
    assert operator.resume() is Ending.COMPLETE


def test_a_second_operator_leaves_no_rollout_behind(operator: Operator) -> None:
    """With the present digests, all writes of the first rollout would later count as foreign changes."""
    operator.lock.owner = OTHER
    with pytest.raises(LockedError, match="anna on ops-2"):
        operator.apply()
    with pytest.raises(LockedError, match="anna on ops-2"):
        operator.rollback()
    assert operator.entries == []
    mend(operator)
    operator.lock.owner = None
    assert operator.apply() is Ending.COMPLETE


def test_whoever_was_faster_between_two_lines_is_told_too(operator: Operator) -> None:
    def takes(where: str) -> None:
        if where.startswith("after opened"):
            operator.lock.owner = OTHER

    operator.cluster.points.at = takes
    with pytest.raises(LockedError):
        operator.apply()
    operator.cluster.points.at = nothing
    mend(operator)
    operator.lock.owner = None
    assert operator.apply() is Ending.COMPLETE


def test_a_rollback_that_the_lock_refuses_has_not_turned(operator: Operator) -> None:
    operator.apply(StopAt(Phase.COPY))
    own, operator.lock.owner = operator.lock.owner, OTHER
    before = operator.entries
    for command in (operator.rollback, operator.resume, operator.apply):
        with pytest.raises(LockedError):
            command()
    assert operator.entries == before
    assert progress_of(operator.entries).direction is Direction.FORWARD
    operator.lock.owner = own
    assert operator.resume() is Ending.COMPLETE
