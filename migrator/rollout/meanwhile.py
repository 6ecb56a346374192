"""Tells the operator what a command is doing while it prints nothing else for some seconds.

Commands put long work into a `Meanwhile`, and their lines through `Silences`, which measures the longest silence for
the report. It changes nothing in what the command does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from migrator.clock import monotonic_ms
from migrator.values import value

LONG_SECONDS = 5.0


@value
class Waiting:
    """A gate that is shut. ``step``: whose gate. ``what``: who is waited for, and why. ``passed_ms``: how long the wait
    has lasted; ``left_ms``: how long it may still last. ``looked``: what the last look saw, ``ago_ms`` ago."""

    step: str
    what: str
    passed_ms: int
    left_ms: int
    looked: str
    ago_ms: int


class Silences:
    """Shows lines, and measures the longest time between two of them.

    :param show: shows a line.
    :param now_ms: monotonic.
    """

    def __init__(self, show: Callable[[str], None], now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._show = show
        self._now_ms = now_ms
        self._last_ms = now_ms()
        self.longest_ms = 0
        """The longest silence that has ended."""
        self.notes: Callable[[int], None] = lambda _: None
        """Is called with each longest silence so far, in ms."""
        self.block: Callable[[Waiting | None], None] | None = None
        """Draws on a terminal, in one place, the condition of the wait; None removes it."""

    def tell(self, line: str) -> None:
        """Show a line, and end a silence."""
        self.hides()
        self.ends()
        self._show(line)

    def draws(self, waiting: Waiting) -> bool:
        """Show what is waited for in the block, which ends a silence.

        :returns: whether there is one.
        """
        if self.block is None:
            return False
        self.ends()
        self.block(waiting)
        return True

    def hides(self) -> None:
        """Remove the block: a line or a question comes, or the wait is over."""
        if self.block is not None:
            self.block(None)

    def ends(self) -> None:
        """A silence ends now, and the next one begins."""
        silent_ms = self._now_ms() - self._last_ms
        self.begins()
        if silent_ms > self.longest_ms:
            self.longest_ms = silent_ms
            self.notes(silent_ms)

    def begins(self) -> None:
        """A silence begins now; what a person took to answer does not count."""
        self._last_ms = self._now_ms()


class Meanwhile:
    """An asynchronous context manager.

    :param tell: is called again and again with a sentence.
    :param what: what is done now; set it anew when that changes.
    :param seconds: between two lines; `LONG_SECONDS` by default.
    """

    def __init__(self, tell: Callable[[str], None], what: str, seconds: float = 0) -> None:
        self._tell = tell
        self._seconds = seconds
        self.what = what

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._say_so())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)  # an error of the display does not end the work

    async def _say_so(self) -> None:
        passed = 0.0
        while True:
            seconds = self._seconds or LONG_SECONDS
            await asyncio.sleep(seconds)
            passed += seconds
            self._tell(f"still {self.what}{f', for {passed:.0f} s' if self._seconds else ''}")
