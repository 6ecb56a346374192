"""Measures the most memory that a process and its children take together."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from typing import Self

import psutil

SAMPLE_SECONDS = 0.25


class Sampler(ABC):
    """Takes samples in a separate thread, as long as the context lasts.

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
