"""What a cluster of so many topics makes of each callback of its controllers' event loop: lines of Python, by function.

Lines and not seconds, so that the figures are the same on a machine of any speed. They count every loop in Python, also
one that calls nothing. What goes through a map of an image in C (``sorted``, ``set``) is counted as well: the maps of
`immutables` are those in Python here. A slice is few records, so that what grows with a small cluster stands out.

One callback (a step of one task) does one slice of one node at most. How many callbacks fall into one turn of the loop
is chance, for three nodes share it; the number of callbacks in a turn is counted, too, so that nothing grows there.

    python -m tests.node.support.lifetime TOPICS

prints as JSON, by phase and function, the most lines that one callback ran.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

if __name__ == "__main__":  # before anybody imports the maps in C, or the size of a turn
    sys.modules["immutables._map"] = None  # type: ignore[assignment]
    from migrator import turns

    turns.TURN_RECORDS, turns.TURN_BYTES = 10, 1024

from tests.node.support import phases

ROOTS = tuple(str(Path(sys.modules[name].__file__ or "").parent) for name in ("migrator", "immutables"))

CALLBACK = asyncio.Handle._run.__code__
CALLBACKS = "callbacks in one turn"

Most = dict[str, dict[str, int]]
"""By phase and function, the lines of the callback that ran most of them; `CALLBACKS` is one of the functions."""


class LineCountingSelector(selectors.DefaultSelector):
    """The selector of an event loop: counts the lines of each function in each callback, on the loop's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._callback: Counter[CodeType] = Counter()
        self._most: Counter[CodeType] = Counter()
        self._callbacks = self._most_callbacks = 0
        self._counting = False

    def count_anew(self) -> dict[str, int]:
        """By function, the lines of the callback with most of them since the last time."""
        most, self._most, self._counting = self._most, Counter(), True
        callbacks, self._most_callbacks = self._most_callbacks, 0
        found = {f"{Path(code.co_filename).name}:{code.co_qualname}": lines for code, lines in most.most_common()}
        return found | {CALLBACKS: callbacks}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The loop's turn ends here, and another begins when this returns."""
        sys.settrace(None)
        self._callback_ends()
        self._most_callbacks = max(self._most_callbacks, self._callbacks)
        self._callbacks = 0
        found = super().select(timeout)
        if self._counting:
            sys.settrace(self._called)
        return found

    def close(self) -> None:
        sys.settrace(None)
        super().close()

    def _callback_ends(self) -> None:
        self._most |= self._callback  # the larger of the two, of each function
        self._callback = Counter()

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_code is CALLBACK:
            self._callback_ends()
            self._callbacks += 1
        return self._line if frame.f_code.co_filename.startswith(ROOTS) else None

    def _line(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self._callback[frame.f_code] += 1
        return self._line


async def _measured(topics: int, directory: Path, selector: LineCountingSelector) -> Most:
    found = {}
    async for name in phases.live(topics, directory):
        await asyncio.sleep(0)  # the callback of what was done last
        most = selector.count_anew()
        if name:
            found[name] = most
    return found


def _main(topics: int) -> None:
    selector = LineCountingSelector()
    with (
        tempfile.TemporaryDirectory(prefix="migrator-lifetime-") as directory,
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner,
    ):
        sys.stdout.write(json.dumps(runner.run(_measured(topics, Path(directory), selector))))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
