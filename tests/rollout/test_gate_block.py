"""On a terminal, a gate that is shut is one block that is drawn anew, and not a line every 30 seconds."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from migrator.cli.rollout_watch import gate_block
from migrator.rollout.engine.apply import StopAt
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.meanwhile import Waiting
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.steps import Phase
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
ERASE_LINE, SHOW_CURSOR, HIDE_CURSOR = "\x1b[2K", "\x1b[?25h", "\x1b[?25l"


@contextmanager
def terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int = 120, lines: int = 24, encoding: str = "utf-8"
) -> Iterator[list[bytes]]:
    """Standard output is one. Yields what was printed, which is complete at the end."""
    mine, theirs = pty.openpty()
    printed: list[bytes] = []

    def drain() -> None:
        with suppress(OSError):  # nobody has the other end open any more
            while True:
                printed.append(os.read(mine, 65536))

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    with monkeypatch.context() as patched, os.fdopen(theirs, "w", encoding=encoding) as stream:
        patched.setenv("TERM", "xterm")
        patched.setenv("COLUMNS", str(columns))
        patched.setenv("LINES", str(lines))
        patched.setattr(sys, "stdout", stream)
        yield printed
    reader.join()
    os.close(mine)


class AtDesk(Operator):
    """Has the terminal on which everything is shown."""

    def __init__(self, state: Path) -> None:
        super().__init__(ModelCluster(model_inventory()), state)
        self._block = gate_block()

    def parts(self) -> RolloutParts:
        parts = super().parts()
        parts.silences.block = self._block
        return parts


def test_a_gate_that_is_shut_is_one_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with terminal(monkeypatch) as printed:
        stdout, operator = sys.stdout, AtDesk(tmp_path)

        def hears(line: str) -> None:
            assert sys.stdout is stdout  # while the block is there, it stands between
            stdout.write(f"{line}\n")

        operator.hears = hears
        operator.apply(StopAt(Phase.START))
        operator.cluster.lagging.add("broker-2")
        with pytest.raises(GateTimeoutError, match="under-replicated"):
            operator.resume()
        assert sys.stdout is stdout
    drawn = b"".join(printed).decode()
    shown = CONTROL.sub("", drawn)
    assert "still waits" not in shown
    assert re.search(r"waits for +partitions: 3 under-replicated", shown), shown
    assert re.search(r"so far +\d+ s, at most \d+ s more", shown), shown
    assert re.search(r"last look +0 s ago: .*partitions: 0 offline, 3 under-replicated", shown), shown
    assert drawn.rfind(ERASE_LINE) > drawn.rfind("last look")
    assert drawn.count(HIDE_CURSOR) == drawn.count(HIDE_CURSOR + SHOW_CURSOR), "Ctrl-Z or a kill leaves it as it is"


@pytest.mark.parametrize("lines", [4, 24])
def test_a_small_terminal_without_unicode_has_the_block(monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    with terminal(monkeypatch, columns=20, lines=lines, encoding="latin-1") as printed:
        draw = gate_block()
        assert draw is not None
        draw(Waiting("kraft/[/b-1]", "/srv/kafka/meta.properties[/x]", 1000, 2000, "MigrationIneligible", 0))
    shown = CONTROL.sub("", b"".join(printed).decode("latin-1"))
    assert "kraft/[/b-1]" in shown
    words = "".join(line[10:-1].strip() for line in shown.splitlines() if line.startswith("|"))
    assert lines == 4 or words.startswith("/srv/kafka/meta.properties[/x]"), shown


def test_without_a_terminal_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        for stream in (file, None):  # None: closed with the shell's >&-
            monkeypatch.setattr(sys, "stdout", stream)
            assert gate_block() is None
