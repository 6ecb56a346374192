"""The exit codes of `migrator rollout` are those of the table in docs/rollout.md."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import migrator.cli.rollout
from migrator.cli.main import main
from migrator.cli.rollout_watch import REFUSED, REFUSED_FILE
from migrator.errors import OperatorError
from migrator.log.lock import DirectoryLock
from migrator.rollout import site
from migrator.rollout.engine.step import ABORT_FILE
from migrator.rollout.journal.journal import Event, read_journal
from migrator.rollout.ports import LockHolder, Observation
from tests.rollout.support.small_disk import small_files
from tests.rollout.test_commands import Desk, desk

__all__ = ["desk"]
PAGE = Path(__file__).parents[2] / "docs" / "rollout.md"
ASK = ("apply", "resume", "rollback", "unlock", "remove-znodes")
HOLDS = (
    "import sys; from pathlib import Path; from migrator.log.lock import DirectoryLock; "
    "lock = DirectoryLock(Path(sys.argv[1]), says=sys.argv[2]); print('held', flush=True); sys.stdin.read()"
)
Type = Callable[..., int]


@pytest.fixture
def type_(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types a command as a shell does. ``answer`` is what standard input has; None: it is closed."""

    def typed(words: str, answer: str | None = "") -> int:
        name, *more = words.split()
        monkeypatch.setattr(sys, "argv", ["migrator", "rollout", name, "-i", str(desk.inventory), *more])
        monkeypatch.setattr(sys, "stdin", None if answer is None else io.StringIO(answer))
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return typed


def to_the_question(desk: Desk, command: str) -> str:
    """Everything up to where this command asks; gives what is typed then."""
    if command == "rollback":
        desk.printed("apply --until DualWrite")
    elif command == "unlock":
        desk.lock.owner = LockHolder("0000aaaa", "somebody", "ops-2", 1_700_000_000_000)
    elif command == "remove-znodes":
        desk.printed("apply --yes")
    elif command == "resume":
        desk.printed("apply --until verify")
    return command


@pytest.mark.parametrize("command", ASK)
def test_every_no_is_one_code(desk: Desk, type_: Type, command: str) -> None:
    assert type_(to_the_question(desk, command), "n\n") == 1


@pytest.mark.parametrize("answer", ["", None], ids=["the input has ended", "the input is closed"])
@pytest.mark.parametrize("command", ASK)
def test_a_question_that_nobody_answers(
    desk: Desk, type_: Type, command: str, answer: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert type_(to_the_question(desk, command), answer) == 2
    said = capsys.readouterr().err
    assert "the question has no answer, because" in said
    assert "Nothing more was changed" in said, "steps before the question may have changed something"
    assert "Traceback" not in said
    if command in ("apply", "resume"):
        assert read_journal(desk.state)[-1].event is Event.PAUSED
        assert "forward: stopped" in desk.printed("status", exit_code=1)


def test_a_closed_standard_input_is_one_that_answers_nothing() -> None:
    """The shell's ``<&-``, down to the file descriptor."""
    program = (
        "from migrator.cli import main, terminal; import click\n"
        "main.migrator = lambda **_: (terminal.ask('Go back?', abort=True), terminal.ask_for('Name'))\n"
        "main.main()"
    )
    command = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "standard input is closed" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_name_that_is_no_answer_is_refused(desk: Desk, type_: Type) -> None:
    assert type_(f"{to_the_question(desk, 'remove-znodes')} --cluster other") == 2


def test_the_znodes_are_needed_again_behind_the_answer(
    desk: Desk, type_: Type, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The question may stand open for hours."""
    words = to_the_question(desk, "remove-znodes")

    def answers(_: str) -> str:
        desk.cluster.controller_broker = 2
        return "model"

    monkeypatch.setattr(migrator.cli.rollout, "ask_for", answers)
    assert type_(words) == 2
    assert "broker 2 is a ZooKeeper controller" in capsys.readouterr().err


def test_done_paused_and_refused(desk: Desk, type_: Type) -> None:
    assert type_("status") == 1
    assert type_("apply --until DualWrite") == 0
    assert type_("status") == 1
    assert type_("apply --until nosuch") == 2
    assert type_("resume --yes") == 0
    assert type_("status") == 0


def test_a_status_that_cannot_look_says_what_it_knows(
    desk: Desk, type_: Type, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.printed("apply --yes")

    def world(*_: object) -> NoReturn:
        raise OperatorError("cannot read the file", where="access")

    monkeypatch.setattr(site, "open_world", world)
    assert type_("status") == 2
    said = capsys.readouterr().out
    assert "the cluster could not be looked at: access: cannot read the file" in said
    assert "forward: complete" in said
    assert type_("status --json") == 2


def test_a_status_to_which_nobody_answers_is_no_status(
    desk: Desk, type_: Type, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A controller that answers makes it one, also if it only says that the migration is not finished."""
    desk.printed("apply --until DualWrite")
    seen = Observation(unknown=("no controller answers",))

    async def nothing(**_: object) -> Observation:
        return seen

    monkeypatch.setattr(desk.cluster, "observe", nothing)
    assert type_("status") == 2
    assert "unknown: no controller answers" in capsys.readouterr().out
    seen = Observation(zookeeper_answers=True)
    assert type_("status") == 1


@pytest.mark.parametrize(
    ("holder", "code"),
    [("apply", 0), ("resume", 0), ("rollback", 0), ("", 0), ("unlock", 1), ("remove-znodes", 1)],
)
def test_abort_promises_only_what_happens(
    desk: Desk, type_: Type, holder: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command of an earlier release does not say which it is."""
    desk.state.mkdir()
    assert type_("abort") == 1
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(desk.state), holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        capsys.readouterr()
        assert type_("abort") == code
        said = capsys.readouterr()
        assert type_("apply") == 2
        refused = capsys.readouterr().err
    assert (desk.state / ABORT_FILE).exists() is (code == 0)
    words = (desk.state / REFUSED_FILE).read_text()
    assert words.startswith("'migrator rollout apply', by ")
    assert words.endswith(REFUSED)
    if holder:
        assert f"'migrator rollout {holder}'" in said.out + said.err
        assert f"runs on this host: {holder}" in refused
    assert ("comes to its end first" in said.out) is (code == 0)
    assert ("press Ctrl-C" in refused) is ("Press Ctrl-C where it runs" in said.err) is (code == 1)


@pytest.mark.parametrize("command", ["unlock --yes", "apply --until rehearse"])
def test_a_command_says_in_the_lock_which_it_is(desk: Desk, command: str) -> None:
    looks: list[str] = []
    observe = desk.cluster.observe

    async def look(*, partitions: bool = True) -> Observation:
        looks.append((desk.state / ".lock").read_text())
        return await observe(partitions=partitions)

    desk.cluster.observe = look  # type: ignore[method-assign]
    desk.printed(command)
    assert set(looks) == {command.split(maxsplit=1)[0]}


def test_the_lock_of_a_metadata_directory_stays_as_kafka_has_it(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("Kafka's")
    with DirectoryLock(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == "Kafka's"


def test_a_second_ctrl_c(desk: Desk, type_: Type, capsys: pytest.CaptureFixture[str]) -> None:
    async def pressed() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while not (desk.state / ABORT_FILE).exists():
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)

    desk.cluster.stopped = pressed
    assert type_("apply --until migrate") == 130
    assert "'migrator rollout resume' goes on" in capsys.readouterr().err


def test_the_page_has_each_code_of_each_command() -> None:
    section = PAGE.read_text().split("## Exit codes\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()[2:]]
    found = {(int(code), name) for code, names, _ in rows for name in re.findall(r"`([\w-]+)`", names) or [names]}
    assert found == {
        *((0, name) for name in ("all", "status", "abort")),
        *((1, name) for name in (*ASK, "status", "abort")),
        *((2, name) for name in (*ASK, "all", "status")),
        *((130, name) for name in ("apply", "resume", "rollback", "all others")),
    }


def test_a_lock_is_not_broken_before_the_journal_has_it(desk: Desk) -> None:
    """The message says that nothing was begun that is not in the journal."""
    desk.printed("apply --until rehearse")
    with small_files((desk.state / "journal.jsonl").stat().st_size):
        assert "the journal cannot be written" in desk.refused("unlock --yes")
    assert desk.lock.owner is not None
    assert "the lock is broken" in desk.printed("unlock --yes")
