"""The directory of a drill: whose it is, and what is said of one that cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli.drill import command
from migrator.drill import zookeeper_place
from migrator.drill.place import made
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
