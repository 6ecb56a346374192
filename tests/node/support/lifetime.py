"""What a cluster of so many topics makes of each turn of its controllers' event loop: lines of Python, by function.

Lines and not seconds, so that the figures are the same on a machine of any speed. They count every loop in Python, also
one that calls nothing. What goes through a map of an image in C (``sorted``, ``set``) is counted as well: the maps of
`immutables` are those in Python here. A turn does few records, so that what grows with a small cluster stands out.

    python -m tests.node.support.lifetime TOPICS [planted]

prints as JSON, by phase and function, the most lines that one turn ran. ``planted`` adds two loops over everything.
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

Most = dict[str, dict[str, int]]
"""Lines of the longest turn, by phase and function."""


class LineCountingSelector(selectors.DefaultSelector):
    """The selector of an event loop: counts the lines that each function runs in each turn, on the loop's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._turn: Counter[CodeType] = Counter()
        self._most: Counter[CodeType] = Counter()
        self._counting = False

    def count_anew(self) -> dict[str, int]:
        """By function, the lines of the turn with most of them since the last time."""
        most, self._most, self._counting = self._most, Counter(), True
        return {f"{Path(code.co_filename).name}:{code.co_qualname}": lines for code, lines in most.most_common()}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The loop's turn ends here, and another begins when this returns."""
        sys.settrace(None)
        self._most |= self._turn  # the larger of the two, of each function
        self._turn = Counter()
        found = super().select(timeout)
        if self._counting:
            sys.settrace(self._called)
        return found

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(ROOTS) else None

    def _line(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self._turn[frame.f_code] += 1
        return self._line


async def _measured(topics: int, directory: Path, selector: LineCountingSelector) -> Most:
    found = {}
    async for name in phases.live(topics, directory):
        await asyncio.sleep(0)  # the turn of what was done last
        most = selector.count_anew()
        if name:
            found[name] = most
    return found


def _main(topics: int, planted: list[str]) -> None:
    if planted:
        phases.plant()
    selector = LineCountingSelector()
    with (
        tempfile.TemporaryDirectory(prefix="migrator-lifetime-") as directory,
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner,
    ):
        sys.stdout.write(json.dumps(runner.run(_measured(topics, Path(directory), selector))))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
