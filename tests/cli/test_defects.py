"""A defect of any command ends with one code of its own: 1 means that the answer is no."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import click
import pytest

from migrator.cli.main import main, migrator
from migrator.errors import ExitCode, InvariantViolation

DEFECT = 70
WHAT = "planted in the body"


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that does something, with the groups above it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = (*above, name)
        if isinstance(command, click.Group):
            yield from commands(command, *words)
        else:
            yield words


def found(words: tuple[str, ...]) -> click.Command:
    command: click.Command = migrator
    for word in words:
        assert isinstance(command, click.Group)
        below = command.get_command(click.Context(command), word)
        assert below is not None
        command = below
    return command


class Planted:
    """A command whose body is another one, and that has no option but ``--json``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, body: Callable[[], Any], *words: str) -> tuple[int, str, str]:
        command = found(words)
        self._monkeypatch.setattr(command, "callback", body)
        as_json = click.Option(["--json"], is_flag=True, expose_value=False)
        self._monkeypatch.setattr(command, "params", [as_json])
        self._monkeypatch.setattr(sys, "argv", ["migrator", *words, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, *self._capfd.readouterr()


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Planted:
    return Planted(monkeypatch, capfd)


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def body() -> NoReturn:
        raise error

    return body


def in_task(error: BaseException) -> Callable[[], None]:
    async def fails() -> NoReturn:
        raise error

    async def waits() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    return lambda: asyncio.run(waits())


def in_thread(error: BaseException) -> Callable[[], None]:
    return lambda: asyncio.run(asyncio.to_thread(raising(error)))


def in_thread_of_nobody(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        thread = threading.Thread(target=raising(error))
        thread.start()
        thread.join()

    return body


def in_task_of_nobody(error: BaseException) -> Callable[[], None]:
    async def fails() -> NoReturn:
        raise error

    async def forgets() -> None:
        asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    return lambda: asyncio.run(forgets())


def assert_is_defect(ended: tuple[int, str, str], what: str = WHAT) -> None:
    code, out, err = ended
    assert code == ExitCode.DEFECT == DEFECT
    error = json.loads(out)["error"]
    assert error["exit_code"] == DEFECT
    assert what in error["what"]
    assert error["remedy"].startswith("Keep the lines above, and report them. ")
    assert f"migrator: {error['what']}. {error['remedy']}" in err
    assert "Traceback" in err


@pytest.mark.parametrize("words", [*commands(migrator)], ids=" ".join)
def test_of_every_command(planted: Planted, words: tuple[str, ...]) -> None:
    assert_is_defect(planted(raising(RuntimeError(WHAT)), *words))


@pytest.mark.parametrize("where", [raising, in_task, in_thread, in_thread_of_nobody, in_task_of_nobody])
def test_wherever_it_is(planted: Planted, where: Callable[[BaseException], Callable[[], None]]) -> None:
    assert_is_defect(planted(where(LookupError(WHAT)), "status"), "sub-exception" if where is in_task else WHAT)


@pytest.mark.parametrize(
    "error",
    [
        BrokenPipeError(32, WHAT),
        OSError(28, WHAT),
        EOFError(WHAT),
        MemoryError(WHAT),
        RecursionError(WHAT),
        AssertionError(WHAT),
        ImportError(WHAT),
        ModuleNotFoundError(WHAT, name="planted"),
        InvariantViolation(WHAT),
        asyncio.CancelledError(WHAT),
        StopIteration(WHAT),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, WHAT),
        BaseExceptionGroup(WHAT, [ValueError("a"), RuntimeError("b")]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("words", [("status",), ("rollout", "apply"), ("controller",)], ids=" ".join)
def test_whatever_it_is(planted: Planted, words: tuple[str, ...], error: BaseException) -> None:
    assert_is_defect(planted(raising(error), *words))


def test_what_has_no_end_of_frames(planted: Planted) -> None:
    def body() -> None:
        body()

    assert_is_defect(planted(body, "gates"), "RecursionError")


def test_it_says_what_the_command_leaves(planted: Planted) -> None:
    _, out, _ = planted(raising(RuntimeError(WHAT)), "rollout", "apply")
    assert "'migrator rollout resume' goes on from where it was" in json.loads(out)["error"]["remedy"]


def test_ctrl_c_is_none(planted: Planted) -> None:
    code, out, err = planted(raising(KeyboardInterrupt()), "status")
    assert (code, json.loads(out)["error"]["exit_code"]) == (130, 130)
    assert "Traceback" not in err


@pytest.mark.parametrize("code", [0, 1, 2, 3, 75])
def test_an_answer_is_none(planted: Planted, code: int) -> None:
    assert planted(lambda: sys.exit(code), "status") == (code, "", "")


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_a_controller_says_whether_zookeeper_has_everything(planted: Planted, code: int) -> None:
    """An error of one of its threads weeks ago does not matter."""

    def body() -> None:
        in_thread_of_nobody(RuntimeError(WHAT))()
        sys.exit(code)

    ended, _, err = planted(body, "controller")
    assert ended == code
    assert WHAT in err


def test_the_process_ends_with_it() -> None:
    """Also if its output and its errors go to a pipe that nobody reads."""
    program = (
        "import sys, click; from migrator.cli import main, status\n"
        "def body(): raise RuntimeError('planted')\n"
        "status.command.callback, status.command.params = body, []\n"
        "sys.argv = ['migrator', 'status']; main.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (DEFECT, "")
    assert "RuntimeError: planted. Keep the lines above" in done.stderr
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as unread:
        assert unread.stdout is not None
        unread.stdout.close()
        assert unread.wait() == DEFECT
