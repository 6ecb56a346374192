"""An event loop whose time passes only when nobody has anything to do: years of time-outs in a second of work."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

from migrator.machine import Machine

REAL_SECONDS = 30.0


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        """Wait really for threads only; else let the time pass until the next timer."""
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.loop.in_threads:
            return super().select(None)
        if timeout is None:
            ready = super().select(REAL_SECONDS)  # for the thread that ends the other threads
            if not ready:
                raise RuntimeError("everybody waits, and nothing will ever happen")
            return ready
        self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. Threads (fsyncs, big messages) take no time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.in_threads = 0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        self.in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _future: Any) -> None:
        self.in_threads -= 1


class VirtualMachine(Machine):
    """Its monotonic clock is that of a loop; everything else is this machine's."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def monotonic_ns(self) -> int:
        return int(self._loop.now * 1e9)
