"""Watches the event loop: measures how late it runs, and keeps threads and the garbage collector from delaying it.

A node makes one `LoopHealth`; metrics and the health check read it, also from other threads. A late loop means late
heartbeats, and brokers that are fenced. Other processes use only the settings. Settings of threads and of the collector
hold for the whole process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections import Counter, deque
from enum import Enum

from migrator.machine import machine
from migrator.supervision import OnError, Supervisor, TaskKind

log = logging.getLogger(__name__)

PROBE = TaskKind("loop-probe", OnError.DROP)
PROBE_SECONDS = 0.05
"""Time between two looks; each look wakes up an idle controller. A stall seems shorter by at most this time."""
LATE_MS = 100.0
"""A stall of this many milliseconds is logged."""
WINDOW_SECONDS = 60.0
SWITCH_SECONDS = 0.0002
"""How long a thread may keep Python's lock while others wait for it."""
GENERATION_THRESHOLDS = (10_000, 10, 25_000)
"""An image has millions of objects that live for hours; a full collection looks at each, and finds nothing. A
collection of the middle generation looks at 100,000 objects; with 500,000, it took 230 ms of processor time in one
turn."""


class LoopWork(Enum):
    """Kinds of work that a turn of the event loop does on the log and its records, and whose amount a peer decides."""

    CHECKED_BATCHES = "batches checked"
    CHECKED_BYTES = "bytes checked"
    WRITTEN_BYTES = "bytes written"
    READ_BYTES = "bytes read"
    RECORDS = "records decoded or applied"


class TurnGauge:
    """Counts the work in each turn of the event loop, and keeps the largest amounts: a bound that holds on a machine of
    any speed. Counting needs an additional turn for each turn, so it is off until it is asked for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.counts = False
        self._turn: Counter[LoopWork] = Counter()
        self.largest: Counter[LoopWork] = Counter()
        """The most work of one turn, by kind."""

    def count(self, work: LoopWork, amount: int) -> None:
        if not self.counts:
            return
        if not self._turn:
            self._loop.call_soon(self._end)
        self._turn[work] += amount

    def _end(self) -> None:
        self.largest |= self._turn
        self._turn.clear()


class LoopHealth:
    """Measures the longest turn of the event loop by the delay of a timer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._supervisor = Supervisor()
        self._probe: asyncio.TimerHandle | None = None
        self._recent: deque[tuple[float, float]] = deque()
        self._due = self._loop.time()

    def start(self) -> None:
        self._due = self._loop.time() + PROBE_SECONDS
        self._probe = self._supervisor.call_later(PROBE, PROBE_SECONDS, self._look)

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.cancel()

    @property
    def present_stall_ms(self) -> float:
        """How long the loop has not turned now. Any thread may ask."""
        return max(0.0, self._loop.time() - self._due) * 1000

    @property
    def recent_stall_ms(self) -> float:
        """The longest stall of the last minute."""
        self._forget(self._loop.time())
        return max((stall for _, stall in self._recent), default=0.0)

    def _look(self) -> None:
        """Called by a timer, because a task that sleeps would take two turns of the loop for each look."""
        stall_ms = self.present_stall_ms
        self.start()  # first, so that an error below does not end the measuring
        self._measured(stall_ms)

    def _measured(self, stall_ms: float) -> None:
        now = self._loop.time()
        if stall_ms > LATE_MS:
            log.warning("The event loop was blocked for %d ms", stall_ms)
        while self._recent and self._recent[-1][1] <= stall_ms:
            self._recent.pop()
        self._recent.append((now, stall_ms))
        self._forget(now)

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()


def take_short_turns() -> None:
    """Let no thread keep Python's lock for long. The event loop releases the lock in each system call, and gets it back
    only when another thread's time is over. With Python's default of 5 ms, a heartbeat took half a second during a
    large request."""
    sys.setswitchinterval(SWITCH_SECONDS)


def calm_garbage_collector() -> None:
    """Make full collections rare, and exempt the objects of now from all of them."""
    gc.set_threshold(*GENERATION_THRESHOLDS)
    gc.freeze()


def freeze_live_objects() -> None:
    """Exempt the objects of now from collections, for example a part of an image that was just loaded. They are still
    freed when they are dropped, unless they are in a cycle. A frozen cycle is never freed, so the two young generations
    are collected first: at most 100,000 objects (`GENERATION_THRESHOLDS`), however long the process has run. The oldest
    one is frozen as it is. A cycle in it would hardly be freed without this, either: full collections are rare."""
    machine().freeze_live_objects()
