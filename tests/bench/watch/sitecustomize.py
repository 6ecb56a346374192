"""Notes the long turns of a controller's event loop: for `python -m tests.bench --turns DIRECTORY`.

The benchmark puts this directory on PYTHONPATH, so that each Python process imports this module. A turn counts from
the selector's answer, in processor time of the loop's thread: what others take of the machine is not in it. A thread
looks at the stack of the loop meanwhile.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from asyncio import base_events, selector_events
from pathlib import Path
from typing import Any

DIRECTORY = os.environ.get("MIGRATOR_BENCH_TURNS")
LONG_SECONDS = 0.1
LOOK_SECONDS = 0.02
FRAMES = 8


class TurnWatch:
    """One per process; `install` replaces the loop's two methods."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._thread = threading.main_thread().ident or 0
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._began: tuple[float, float] | None = None
        self._collecting = self._collected = 0.0
        self._stacks: list[str] = []
        self._longest = 0.0

    def install(self) -> None:
        """Watch from now on."""
        answered = selector_events.BaseSelectorEventLoop._process_events  # type: ignore[attr-defined]
        run_once = base_events.BaseEventLoop._run_once  # type: ignore[attr-defined]

        def begin(loop: Any, events: Any) -> None:
            if threading.get_ident() == self._thread:
                self._began, self._collected, self._stacks = (time.perf_counter(), self._cpu()), 0.0, []
            answered(loop, events)

        def end(loop: Any) -> None:
            run_once(loop)
            if threading.get_ident() == self._thread and self._began is not None:
                wall, cpu = time.perf_counter() - self._began[0], self._cpu() - self._began[1]
                self._began = None
                if cpu > self._longest or wall > LONG_SECONDS:
                    self._note(wall, cpu)

        selector_events.BaseSelectorEventLoop._process_events = begin  # type: ignore[attr-defined]
        base_events.BaseEventLoop._run_once = end  # type: ignore[attr-defined]
        gc.callbacks.append(self._collection)
        threading.Thread(target=self._look, name="turn-watch", daemon=True).start()

    def _cpu(self) -> float:
        return time.clock_gettime(self._clock)

    def _collection(self, phase: str, _info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting = self._cpu()
        else:
            self._collected += self._cpu() - self._collecting

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            began = self._began
            if began is not None and time.perf_counter() - began[0] > LONG_SECONDS / 3:
                self._stacks.append(f"  after {1000 * (time.perf_counter() - began[0]):.0f} ms: {self._stack()}\n")

    def _stack(self) -> str:
        frame, names = sys._current_frames().get(self._thread), list[str]()
        while frame is not None and len(names) < FRAMES:
            where = frame.f_code.co_filename.rpartition("/migrator/")[2]
            names.append(f"{where}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        return " < ".join(names)

    def _note(self, wall: float, cpu: float) -> None:
        self._longest = max(self._longest, cpu)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(
                f"{1000 * cpu:.0f} ms of processor time, {1000 * wall:.0f} ms by the clock, "
                f"{1000 * self._collected:.0f} ms of garbage collection, {time.strftime('%H:%M:%S')}\n"
            )
            file.writelines(self._stacks)


if DIRECTORY and sys.orig_argv[2:3] == ["controller"]:
    TurnWatch(Path(DIRECTORY) / f"{os.getpid()}.txt").install()
