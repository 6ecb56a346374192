"""How fast a quorum commits and ZooKeeper follows, measured from a controller's statuses, one after the other. Pure.

`migrator top` gives each status to a `RateMeter`. It uses the times in the statuses, not the time of their arrival, and
begins anew when another controller answers.
"""

from __future__ import annotations

from collections import deque

from migrator.observe.status import Status
from migrator.values import value

WINDOW_MS = 5_000
"""A rate is measured over this time: shorter ones jump with every batch."""
HISTORY = 60
"""How many seconds are kept for the graph of the rate."""


@value
class Rates:
    """Records per second; None while too little was seen. ``history``: records committed in each whole second of the
    last minute, oldest first. ``written``: how fast the write-behind advances in the log; None while it is off."""

    committed: float | None = None
    written: float | None = None
    history: tuple[int, ...] = ()


@value
class _Sample:
    time_ms: int
    committed: int
    written: int | None


class RateMeter:
    """Takes each status. It begins anew when another controller answers, or when time or offsets go backwards."""

    def __init__(self) -> None:
        self._node_id = -1
        self._samples: deque[_Sample] = deque()

    def look(self, status: Status) -> Rates:
        """Add a status; returns the rates."""
        if status.quorum.high_watermark < 0:  # a new leader does not know its high watermark yet
            self._samples.clear()
            return Rates()
        behind = status.write_behind
        sample = _Sample(
            status.time_ms, status.quorum.high_watermark, None if behind is None else behind.written_offset
        )
        if self._samples and (status.node_id != self._node_id or not _follows(sample, self._samples[-1])):
            self._samples.clear()
        self._node_id = status.node_id
        if not self._samples or sample.time_ms > self._samples[-1].time_ms:
            self._samples.append(sample)
        while self._samples[0].time_ms < sample.time_ms - HISTORY * 1000:
            self._samples.popleft()
        return self._rates()

    def _rates(self) -> Rates:
        last = self._samples[-1]
        if len(self._samples) < 2:
            return Rates()
        before = [sample for sample in self._samples if sample.time_ms <= last.time_ms - WINDOW_MS]
        first = before[-1] if before else self._samples[0]
        ms = last.time_ms - first.time_ms
        writes = last.written is not None and first.written is not None
        return Rates(
            (last.committed - first.committed) * 1000 / ms,
            ((last.written or 0) - (first.written or 0)) * 1000 / ms if writes else None,
            self._history(last.time_ms),
        )

    def _history(self, now_ms: int) -> tuple[int, ...]:
        """The counts by second. A status after a pause counts for the second in which it came."""
        seconds = [0] * HISTORY
        before = self._samples[0]
        for sample in list(self._samples)[1:]:
            age = min((now_ms - sample.time_ms) // 1000, HISTORY - 1)
            seconds[HISTORY - 1 - age] += sample.committed - before.committed
            before = sample
        seen = min(HISTORY, (now_ms - self._samples[0].time_ms) // 1000 + 1)
        return tuple(seconds[HISTORY - seen :])


def _follows(after: _Sample, before: _Sample) -> bool:
    writes = after.written is None or before.written is None or after.written >= before.written
    return after.time_ms >= before.time_ms and after.committed >= before.committed and writes
