"""The directory of a drill: whose it is, and what is said of one that cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli import drill as drill_command
from migrator.cli.drill import command
from migrator.drill import zookeeper_place
from migrator.drill.place import made, refuse_taken
from migrator.drill.report import DATA
from migrator.errors import OperatorError
from migrator.parts.processes import free_port

HOLD = """
import sys
from pathlib import Path
from migrator.drill.place import made
with made(Path(sys.argv[1])):
    print("made", flush=True)
    sys.stdin.read()
"""


def test_a_second_drill_is_told_that_one_runs_there_and_later_that_one_left_its_data(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"made\n"
        with (
            pytest.raises(OperatorError, match=f"a drill runs there, as process {first.pid}") as running,
            made(tmp_path),
        ):
            pass
        first.kill()
    assert "Delete" not in running.value.remedy
    with pytest.raises(OperatorError, match="an earlier drill left its data there") as left, made(tmp_path):
        pass
    assert "Delete it" in left.value.remedy


def test_nobody_is_told_to_delete_what_he_may_not_look_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(tmp_path):
        pass

    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(OperatorError, match="a drill runs there") as error, made(tmp_path):
        pass
    assert "Delete" not in error.value.remedy


def test_a_drill_that_is_refused_leaves_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(zookeeper_place, "CONNECTION_MS", 100)
    done = CliRunner().invoke(command, ["--kafka", "none", "--zookeeper", f"127.0.0.1:{free_port()}/drill"])
    assert isinstance(done.exception, OperatorError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["/proc/x", "/dev/null/x"])
def test_a_directory_that_cannot_be_made_is_named(below: str) -> None:
    with pytest.raises(OperatorError, match="the drill's directory cannot be made") as error, made(Path(below)):
        pass
    assert error.value.where == below
    assert error.value.remedy


def test_a_drill_that_does_not_begin_leaves_nothing(tmp_path: Path) -> None:
    with made(tmp_path / "new") as forget:
        forget()
    assert list(tmp_path.iterdir()) == []
    with made(tmp_path) as forget:
        forget()
    assert list(tmp_path.iterdir()) == []


def test_a_place_appears_with_its_lock_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another drill finds either no place, or a drill that runs."""
    said = []
    rename = Path.rename

    def look_before(new: Path, data: Path) -> Path:
        refuse_taken(tmp_path)
        moved = rename(new, data)
        with pytest.raises(OperatorError) as error:
            refuse_taken(tmp_path)
        said.append(error.value.what)
        return moved

    monkeypatch.setattr(Path, "rename", look_before)
    with made(tmp_path):
        assert said == [f"a drill runs there, as process {os.getpid()}"]
        assert [path.name for path in tmp_path.iterdir()] == [DATA]
        assert (tmp_path / DATA).stat().st_mode & 0o777 == 0o700


def test_who_is_slower_is_told_of_the_one_who_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename
    with ExitStack() as stack:

        def too_late(new: Path, data: Path) -> Path:
            monkeypatch.setattr(Path, "rename", rename)
            stack.enter_context(made(tmp_path))
            return rename(new, data)

        monkeypatch.setattr(Path, "rename", too_late)
        with pytest.raises(OperatorError, match="a drill runs there, as process"), made(tmp_path):
            pass
        assert [path.name for path in tmp_path.iterdir()] == [DATA]


def test_a_directory_that_is_taken_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill_command, "find_java", pytest.fail)
    with made(tmp_path):
        done = CliRunner().invoke(command, ["--dir", str(tmp_path)])
    assert isinstance(done.exception, OperatorError)
    assert done.exception.what.startswith("a drill runs there")
