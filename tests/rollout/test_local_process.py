"""Which process is the server of a property file: every user of the machine can start one with its command line."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil
import pytest

from migrator.rollout.executors import local_process
from migrator.rollout.executors.local_process import find, main, others
from migrator.rollout.ports import ExecutorError
from tests.rollout.support.hosts import Hands, node, server

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
MARK = "kafka.Kafka"
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of somebody else")


@pytest.fixture
def path(public: Path) -> Path:
    found = public / "server.properties"
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
    """One example is ``sudo``, which asks for a password before it refuses."""
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
    """With a link, the owner of the directory could make root append to any file, or wait for a reader for ever."""
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


class Thinking:
    """Starts whose script thinks until somebody lets it go on, and counts how often it was started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.gate, self.count, self.script = (path.with_name(name) for name in ("gate", "starts", "start.sh"))
        os.mkfifo(self.gate)
        command = server().format(path=path)
        self.script.write_text(f"echo x >>{self.count}\nread -r _ <{self.gate}\nexec {command}\n")
        self.held: IO[str] | None = None

    def ask(self, action: str) -> subprocess.Popen[str]:
        more = ["", "sh", str(self.script)] if action == "start" else []
        words = [sys.executable, "-m", local_process.MODULE, action, str(self.path), MARK, *more]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_killed(self) -> None:
        """Kill the process that has asked for the start, as soon as the script waits."""
        with self.ask("start") as first:
            self.held = self.gate.open("w")
            first.kill()

    def goes_on(self) -> None:
        (self.held or self.gate.open("w")).close()

    @property
    def starts(self) -> int:
        return len(self.count.read_text().splitlines())


@pytest.fixture
def thinking(path: Path) -> Iterator[Thinking]:
    found = Thinking(path)
    yield found
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(found.script) in process.cmdline() or str(path) in process.cmdline():
                process.kill()


def act(thinking: Thinking, monkeypatch: pytest.MonkeyPatch, action: str) -> int:
    """The script goes on as soon as whoever acts waits for it."""
    sleep = time.sleep

    def goes_on(seconds: float) -> None:
        thinking.goes_on()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", goes_on)
    more = ["", "sh", str(thinking.script)] if action == "start" else []
    return main([action, str(thinking.path), MARK, *more])


@pytest.mark.parametrize("replaced", [False, True], ids=["same file", "file was edited"])
def test_a_start_that_was_killed_and_still_thinks_is_waited_for(
    thinking: Thinking, monkeypatch: pytest.MonkeyPatch, *, replaced: bool
) -> None:
    """Otherwise two brokers start on one log directory, and one of them dies."""
    thinking.is_killed()
    if replaced:
        new = thinking.path.with_name("new")
        new.write_text("node.id=1\n")
        new.replace(thinking.path)
    assert act(thinking, monkeypatch, "start") == 0
    assert len(find(str(thinking.path), [MARK])) == 1
    assert thinking.starts == 1


def test_starts_at_the_same_time_are_one(thinking: Thinking) -> None:
    asked = [thinking.ask("start") for _ in range(4)]
    thinking.goes_on()
    assert [process.wait() for process in asked] == [0] * 4
    for process in asked:
        process.communicate()
    assert thinking.starts == 1
    assert not thinking.path.with_name(f"{thinking.path.name}.starting").exists()


@pytest.mark.parametrize("action", ["stop", "incarnation"])
def test_what_still_thinks_is_neither_stopped_nor_down(
    thinking: Thinking, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], action: str
) -> None:
    thinking.is_killed()
    assert act(thinking, monkeypatch, action) == 0
    assert thinking.held is not None
    assert thinking.held.closed, "nobody has waited for the script"
    is_up = action == "incarnation"
    assert (bool(capfd.readouterr().out), bool(find(str(thinking.path), [MARK]))) == (is_up, is_up)


def test_a_killed_start_whose_script_has_ended_holds_nobody_up(path: Path) -> None:
    hands = Hands(node(path))
    path.with_name(f"{path.name}.starting").touch()
    assert hands.incarnation() is None
    hands.start()
    assert hands.incarnation() is not None
    hands.stop()
    hands.start()
    hands.stop()
    assert hands.incarnation() is None


def test_a_start_that_never_shows_is_named(thinking: Thinking, monkeypatch: pytest.MonkeyPatch) -> None:
    thinking.is_killed()
    monkeypatch.setattr(local_process, "SHOWS_SECONDS", 0.0)
    for action in ("incarnation", "stop", "start"):
        found: list[str] = []
        monkeypatch.setattr(sys.stderr, "writelines", found.extend)
        assert main([action, str(thinking.path), MARK, *(["", "false"] if action == "start" else [])]) == 1
        assert "an earlier start with" in found[0]
        assert f"{thinking.path}.starting" in found[0]
    thinking.goes_on()
    with thinking.ask("incarnation") as asked:
        assert asked.communicate()[0], "it shows"
