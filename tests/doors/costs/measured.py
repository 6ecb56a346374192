"""`python -m tests.doors.costs.measured FILE ARGUMENTS`: `migrator ARGUMENTS`, and a line in FILE for each longer turn.

A turn of the event loop is what it does between two looks at its sockets. A line holds when the turn ended (monotonic
seconds), the processor time of the loop's thread in it, and how long it took, both in milliseconds.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from migrator.cli.main import main

LONGER_MS = 5.0


class Noting(selectors.DefaultSelector):
    """Notes each turn that takes longer than `LONGER_MS`."""

    file: TextIO
    _began: tuple[float, float] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._began is not None:
            ended = time.monotonic()
            wall = (ended - self._began[0]) * 1000
            if wall > LONGER_MS:
                processor = (time.thread_time() - self._began[1]) * 1000
                self.file.write(f"{ended:.4f} {processor:.2f} {wall:.2f}\n")
        found = super().select(timeout)
        self._began = time.monotonic(), time.thread_time()
        return found


class Policy(asyncio.DefaultEventLoopPolicy):
    """Gives loops that note their turns."""

    def new_event_loop(self) -> Any:
        return asyncio.SelectorEventLoop(Noting())


if __name__ == "__main__":
    with Path(sys.argv[1]).open("a", buffering=1, encoding="ascii") as file:
        Noting.file = file
        asyncio.set_event_loop_policy(Policy())
        sys.argv[1:2] = []
        main()
