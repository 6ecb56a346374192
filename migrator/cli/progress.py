"""The progress of a long command: on a terminal one line that is updated, elsewhere a line for each change.

`verify` and `ask` name each phase with `VerifyProgress.begin`. It prints on stderr only, so stdout stays for the
result. After the end of its context nothing is printed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console

TICK_SECONDS = 0.5
LINE_SECONDS = 5.0
"""The least seconds between two lines of one phase, without a terminal."""

Look = Callable[[], str]
"""Gives the progress in a few words; "" when it is unknown."""


class VerifyProgress:
    """A context manager: after its end nothing is shown."""

    def __init__(self, terminal: Console) -> None:
        self._terminal = terminal
        self._status = terminal.status("") if terminal.is_terminal else None
        self._began = time.monotonic()
        self._what = ""
        self._look: Look = _nothing
        self._shown, self._shown_at = ("", ""), 0.0
        self._ended = threading.Event()
        self._lock = threading.RLock()  # the thread that asks a question may print meanwhile
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._ticker.join()
        if self._status is not None:
            self._status.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def begin(self, what: str) -> None:
        with self._lock:
            self._what = what
            self._show("")

    def follow(self, look: Look | None) -> None:
        """Set the function that gives the progress of the phase; None for no progress."""
        with self._lock:
            self._look = look or _nothing

    def rest(self) -> None:
        """Show nothing until the next phase."""
        with self._lock:
            self._what = ""
            if self._status is not None:
                self._status.stop()

    def say(self, sentence: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._terminal.print(sentence, soft_wrap=True)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Show nothing while the operator is asked."""
        with self._lock:
            if self._status is not None:
                self._status.stop()
            yield
            if self._status is not None:
                self._status.start()

    def _tick(self) -> None:
        while not self._ended.wait(TICK_SECONDS):
            look = self._look
            how_far = look()
            with self._lock:
                if look is self._look and self._what and not self._ended.is_set():
                    self._show(how_far)

    def _show(self, how_far: str) -> None:
        if self._status is not None:
            self._status.update(f"{self._what}: {f'{how_far}, ' if how_far else ''}{self.seconds:.0f} s")
            self._status.start()
        elif self._is_due(how_far):
            self._shown, self._shown_at = (self._what, how_far), self.seconds
            line = f"{self.seconds:5.0f} s  {self._what}{f': {how_far}' if how_far else ''}"
            self._terminal.print(line, soft_wrap=True)

    def _is_due(self, how_far: str) -> bool:
        """Whether a line is due: one for each phase, and then one for each change, but not more often than
        `LINE_SECONDS`."""
        if self._what != self._shown[0]:
            return True
        return how_far not in ("", self._shown[1]) and self.seconds - self._shown_at >= LINE_SECONDS


def _nothing() -> str:
    return ""
