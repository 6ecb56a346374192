"""Tells the operator what a command is doing while it prints nothing else for some seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

LONG_SECONDS = 5.0


class Silences:
    """Shows lines, and measures the longest time between two of them.

    :param show: shows a line.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._last = time.monotonic()
        self._longest = 0.0

    def tell(self, line: str) -> None:
        """Show a line, and end a silence."""
        self._longest = self.longest
        self.begins()
        self._show(line)

    def begins(self) -> None:
        """A silence begins now; what a person took to answer does not count."""
        self._last = time.monotonic()

    @property
    def longest(self) -> float:
        """In seconds, the silence under way included."""
        return max(self._longest, time.monotonic() - self._last)


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
