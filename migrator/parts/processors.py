"""Measures the processor time of processes, and the share that others use."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

import psutil


class ProcessorMeter:
    """Processor time since the meter was made: of process trees with their ended children, and of all processes."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._begin = time.monotonic()
        self._trees = self._tree_seconds()
        self._machine = _machine_seconds()
        self._own = _own_seconds()

    @property
    def seconds(self) -> float:
        """The processor time of the trees."""
        return self._tree_seconds() - self._trees

    @property
    def others_share(self) -> float:
        """The share of all processors that other processes used: 0 when this process and its children are alone."""
        cores = psutil.cpu_count() or 1
        foreign = (_machine_seconds() - self._machine) - (_own_seconds() - self._own)
        return max(0.0, foreign / (time.monotonic() - self._begin) / cores)

    def _tree_seconds(self) -> float:
        return sum(_tree_seconds_of(pid) for pid in self._pids)


def _tree_seconds_of(pid: int) -> float:
    """Processor time of a process and all its descendants so far, with children that have ended."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0.0
    total = 0.0
    for member in family:
        with contextlib.suppress(psutil.Error):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _own_seconds() -> float:
    return _tree_seconds_of(os.getpid())


def _machine_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
