"""How much a piece of work does, on a machine of any speed: calls of functions, Python's and C's, are counted."""

from __future__ import annotations

import selectors
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_COUNTED = frozenset(("call", "c_call"))


class CallCounter:
    """Counts the calls of this thread while it is switched on. A turn of a generator is a call, too."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in _COUNTED:
            self.calls += 1


def calls_of(work: Callable[[], T]) -> int:
    """The calls that a piece of work makes."""
    with CallCounter() as counter:
        work()
    return counter.calls


class CountingSelector(selectors.DefaultSelector):
    """The selector of an event loop: counts the calls that each turn of it makes, on its thread alone.

    Runs as ``asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector))``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        """The most calls in one turn since `count_anew`."""
        self._counting = False
        self._counter: CallCounter | None = None

    def count_anew(self) -> None:
        """Count from the next turn on."""
        self.largest, self._counting, self._counter = 0, True, None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The loop's turn ends here, and another begins when this returns."""
        if self._counter is not None:
            self._counter.__exit__()
            self.largest = max(self.largest, self._counter.calls)
            self._counter = None
        found = super().select(timeout)
        if self._counting:
            self._counter = CallCounter().__enter__()
        return found
