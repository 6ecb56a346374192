"""Who counts as the server of a property file: every user of the machine can start a process with its command line."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import pytest

from migrator.rollout.executors import local_process
from migrator.rollout.executors.local_process import find, main, others
from migrator.rollout.ports import ExecutorError
from tests.rollout.support.hosts import Hands, node

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
MARK = "kafka.Kafka"
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of somebody else")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for directory in (tmp_path, *(above for above in tmp_path.parents if Path(gettempdir()) in above.parents)):
        directory.chmod(0o755)
    found = tmp_path / "server.properties"
    found.touch()
    return found


@contextmanager
def decoy(path: Path, before: Sequence[str] = (), shell: str = "sh") -> Iterator[int]:
    """Its id. It has the words of a server, and runs until its input ends."""
    command = [*before, shell, "-c", "echo; read -r _; :", MARK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield process.pid


def test_a_process_of_who_asks_counts(path: Path) -> None:
    with decoy(path) as pid:
        assert [process.pid for process in find(str(path), [MARK])] == [pid]
        assert others(str(path), [MARK]) == ""


@NEEDS_ROOT
def test_a_process_of_somebody_else_does_not_count_and_is_named(path: Path) -> None:
    with decoy(path, AS_NOBODY) as pid:
        assert find(str(path), [MARK]) == []
        name = pwd.getpwuid(NOBODY).pw_name
        assert others(str(path), [MARK]).startswith(f"not counted: process {pid} of user {name}; ")


@NEEDS_ROOT
@pytest.mark.parametrize("owned", ["file", "directory"])
def test_a_process_of_the_owner_counts(path: Path, owned: str) -> None:
    os.chown(path if owned == "file" else path.parent, NOBODY, NOBODY)
    with decoy(path, AS_NOBODY) as pid:
        assert [process.pid for process in find(str(path), [MARK])] == [pid]


@NEEDS_ROOT
@pytest.mark.parametrize("name", [str(NOBODY), pwd.getpwuid(NOBODY).pw_name])
def test_a_process_of_a_user_whom_the_inventory_names_counts(path: Path, name: str) -> None:
    hands = Hands(node(path), users=f"root, {name}")
    with decoy(path, AS_NOBODY):
        assert hands.incarnation() is not None
        hands.stop()
        assert hands.incarnation() is None


def test_a_user_who_is_not_there_is_an_error(path: Path) -> None:
    with pytest.raises(ExecutorError, match="this machine has no user no-such-user"):
        Hands(node(path), users="no-such-user").incarnation()


@NEEDS_ROOT
def test_a_decoy_keeps_no_server_down_and_up(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hands = Hands(node(path))
    with decoy(path, AS_NOBODY) as pid:
        assert hands.incarnation() is None
        hands.start()
        try:
            assert hands.incarnation() is not None, "the server runs beside it"
            assert pid not in [process.pid for process in find(str(path), [MARK])]
        finally:
            hands.stop()
        assert hands.incarnation() is None
        assert main(["incarnation", str(path), MARK]) == 0
        assert f"process {pid} of user" in capfd.readouterr().err


@NEEDS_ROOT
def test_a_start_that_fails_names_who_does_not_count(path: Path) -> None:
    """He may be the server after all, and hold its directories."""
    with decoy(path, AS_NOBODY) as pid, pytest.raises(ExecutorError) as failed:
        Hands(node(path, command="false")).start()
    assert f"not counted: process {pid} of user " in str(failed.value)
    assert "'users' can name whose processes count" in str(failed.value)


@NEEDS_ROOT
def test_a_program_that_runs_as_root_for_everybody_is_nobodys(path: Path) -> None:
    """As ``sudo``, which asks for a password before it refuses."""
    shell = path.parent / "like-sudo"
    shutil.copy(str(shutil.which("sh")), shell)
    shell.chmod(0o755 | stat.S_ISUID)
    with decoy(path, shell=str(shell)) as pid:
        assert find(str(path), [MARK]) == []
        assert f"process {pid} of user root" in others(str(path), [MARK])


@NEEDS_ROOT
def test_many_are_counted_and_few_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_process, "NAMED_MAX", 1)
    with decoy(path, AS_NOBODY), decoy(path, AS_NOBODY):
        said = others(str(path), [MARK])
    assert said.count("process ") == 1
    assert " and 1 more; " in said


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_what_a_process_prints_goes_through_no_link(path: Path, kind: str) -> None:
    """Whoever owns the directory could let root append to any file, or wait for a reader for ever."""
    sink, elsewhere = path.with_name(f"{path.name}.out"), path.with_name("of-root")
    elsewhere.write_text("as before")
    if kind == "pipe":
        os.mkfifo(sink)
    else:
        (sink.symlink_to if kind == "link" else sink.hardlink_to)(elsewhere)
    hands = Hands(node(path, command="sh -c 'echo more; exit 1'"))
    with pytest.raises(ExecutorError, match=f"{sink.name}"):
        hands.start()
    assert elsewhere.read_text() == "as before"
