"""How much memory this process and its children take together, at most."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import Self

SAMPLE_SECONDS = 0.25
_PROC = Path("/proc")


class PeakMemory:
    """Samples in a thread of its own, for as long as the context lasts.

    :ivar peak_bytes: resident memory, added up over the processes: pages that they share count once for each.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak-memory", daemon=True)

    def look(self) -> None:
        """Take one sample."""
        self.peak_bytes = max(self.peak_bytes, sum(_resident(pid) for pid in _family(os.getpid())))

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.look()
        if not self.peak_bytes:  # without /proc: this process's own peak, and that of the biggest child
            units = 1 if os.uname().sysname == "Darwin" else 1024
            who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            self.peak_bytes = units * sum(resource.getrusage(each).ru_maxrss for each in who)


def _family(pid: int) -> list[int]:
    """The process and all its descendants, those that end meanwhile left out."""
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        found.append(parent)
        for children in (_PROC / str(parent) / "task").glob("*/children"):
            waiting += map(int, _read(children).split())
    return found


def _resident(pid: int) -> int:
    fields = _read(_PROC / str(pid) / "statm").split()
    return int(fields[1]) * resource.getpagesize() if len(fields) > 1 else 0


def _read(path: Path) -> str:
    """Empty when the process is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""
