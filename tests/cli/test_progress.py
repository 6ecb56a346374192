"""The progress of a long command without a terminal."""

from __future__ import annotations

import io
import itertools
import queue
import threading

import pytest

from migrator.cli import progress
from migrator.cli.progress import VerifyProgress
from migrator.cli.terminal import console
from tests.patience import PATIENCE_SECONDS


class Lines(io.StringIO):
    """Hands out what is printed, line by line."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.Queue[str] = queue.Queue()

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                self._lines.put(line)
        return len(text)

    def following(self) -> str:
        """Without its time."""
        return self._lines.get(timeout=PATIENCE_SECONDS).partition(" s  ")[2]

    @property
    def nothing_more(self) -> bool:
        return self._lines.empty()


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)


def test_a_line_for_each_phase_and_for_each_change() -> None:
    lines, looks = Lines(), iter(["", "1 row", "1 row", "2 rows"])
    with VerifyProgress(console(file=lines)) as shown:
        shown.begin("comparing")
        assert lines.following() == "comparing"
        shown.follow(lambda: next(looks, "2 rows"))
        assert [lines.following() for _ in range(2)] == ["comparing: 1 row", "comparing: 2 rows"]
        shown.follow(None)
        shown.begin("ending")
        assert lines.following() == "ending"
    assert lines.nothing_more


def test_while_it_rests_nothing_is_printed() -> None:
    lines, looked, looks = Lines(), threading.Semaphore(0), itertools.count()

    def look() -> str:
        looked.release()
        return f"{next(looks)} rows"

    with VerifyProgress(console(file=lines)) as shown:
        shown.begin("comparing")
        lines.following()
        shown.rest()
        shown.follow(look)
        for _ in range(3):
            assert looked.acquire(timeout=PATIENCE_SECONDS)
    assert lines.nothing_more


def test_what_is_asked_may_be_explained() -> None:
    """`verify --repair --json` says how many differences there are, and then asks."""
    lines, asked = Lines(), threading.Event()

    def ask() -> None:
        with VerifyProgress(console(file=lines)) as shown, shown.silent():
            shown.say("3 differences")
        asked.set()

    threading.Thread(target=ask, daemon=True).start()
    assert asked.wait(PATIENCE_SECONDS), "it waits for itself"
