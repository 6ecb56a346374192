"""How long one turn of the event loop takes, in wall time and in processor time of its thread, and what it did then."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from migrator.node.quorum import reads
from migrator.observe.loop_health import LoopWork
from migrator.records.batch import BATCH_BYTES_MAX
from tests.bench.pieces_memory import Sample
from tests.node.test_far_behind import AWAY, Quorum, history
from tests.node.test_turns import each_answered

NO_OP_BYTES = 72
LONGEST_SHOWN = 3


class MeasuredLoop(asyncio.SelectorEventLoop):
    """Notes its longest turn, from when it woke up to when it would sleep again."""

    def __init__(self) -> None:
        super().__init__()
        self._began = (0.0, 0.0)
        self.longest = (0.0, 0.0)
        """Wall and processor seconds of the turn that took the most processor time."""

    def _process_events(self, event_list: list[object]) -> None:
        self._began = (time.perf_counter(), time.thread_time())
        super()._process_events(event_list)  # type: ignore[misc]

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        wall, cpu = time.perf_counter() - self._began[0], time.thread_time() - self._began[1]
        if cpu > self.longest[1]:
            self.longest = (wall, cpu)

    def measure_anew(self) -> None:
        """Forget the turns so far."""
        self.longest = (0.0, 0.0)


def follow(_sample: Sample) -> Callable[[], str]:
    """A voter catches up on 8 MiB of the smallest batches, sent at once as a stock leader does; three voters share the
    loop, so that each turn is the work of all."""
    data = history(small=BATCH_BYTES_MAX // NO_OP_BYTES)

    def run() -> str:
        with tempfile.TemporaryDirectory(prefix="migrator-turns-") as directory:
            loop = MeasuredLoop()
            try:
                return loop.run_until_complete(_follow(loop, Path(directory), data))
            finally:
                loop.close()

    return run


async def _follow(loop: MeasuredLoop, directory: Path, data: bytes) -> str:
    quorum = Quorum(directory, data)
    leader = await quorum.lead()
    limit, reads.READ_BYTES_MAX = reads.READ_BYTES_MAX, BATCH_BYTES_MAX
    loop.measure_anew()
    try:
        away = quorum.cluster.start(AWAY)
        away.gauge.counts = True
        while away.metadata.published.provenance.offset < leader.metadata.published.provenance.offset:
            await asyncio.sleep(0.002)
    finally:
        reads.READ_BYTES_MAX = limit
    wall, cpu = loop.longest
    await quorum.close()
    most = ", ".join(f"{away.gauge.largest[work]:,} {work.value}" for work in LoopWork if away.gauge.largest[work])
    return f"longest turn {wall * 1000:.0f} ms wall, {cpu * 1000:.0f} ms CPU; most in one: {most}"


def answer(_sample: Sample) -> Callable[[], str]:
    """A controller answers big requests of every kind, one after the other, each decided, encoded and sent."""

    def run() -> str:
        with tempfile.TemporaryDirectory(prefix="migrator-turns-") as directory:
            loop = MeasuredLoop()
            try:
                return loop.run_until_complete(_answer(loop, Path(directory)))
            finally:
                loop.close()

    return run


async def _answer(loop: MeasuredLoop, directory: Path) -> str:
    async with aclosing(each_answered(directory, loop.measure_anew)) as answered:
        longest = {name: loop.longest async for name in answered}
    shown = sorted(longest.items(), key=lambda item: item[1][1], reverse=True)[:LONGEST_SHOWN]
    return "longest turns: " + "; ".join(
        f"{name} {wall * 1000:.0f} ms wall, {cpu * 1000:.0f} ms CPU" for name, (wall, cpu) in shown
    )
