"""Measures what processes use: memory with that of their children, processor time, and the share that others use.

The rehearsal and benchmarks use it. A sampler runs in a thread for as long as its context lasts. Processes that end
meanwhile are left out of a sample, and are no error.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

import psutil

SAMPLE_SECONDS = 0.25


class Sampler(ABC):
    """Takes samples in a thread of its own, as long as the context lasts.

    :param seconds: the time between two samples.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Take one sample."""

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self.look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class PeakMemory(Sampler):
    """
    :param pid: of the process; None for this one.
    :ivar peak_bytes: resident memory, added up over the processes; shared pages count once for each process.
    """

    def __init__(self, pid: int | None = None) -> None:
        super().__init__(SAMPLE_SECONDS)
        self.peak_bytes = 0
        self._pid = pid

    def look(self) -> None:
        """Take one sample (see `Sampler`)."""
        self.peak_bytes = max(self.peak_bytes, _resident_bytes(self._pid))

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        self.look()


def _resident_bytes(pid: int | None) -> int:
    """The resident bytes of a process and all its descendants; those that end meanwhile are left out."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return total


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
