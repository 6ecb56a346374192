"""An event loop whose time passes only when nobody has anything to do: years of time-outs in a second of work."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from migrator.machine import Machine

P = ParamSpec("P")
T = TypeVar("T")

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
    """See the module. Work on the threads of a `VirtualMachine` and of `asyncio.to_thread` (fsyncs, big messages) takes
    no time, however busy the real machine is."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.in_threads = 0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self.set_default_executor(_Threads(self))

    def time(self) -> float:
        return self.now


class _Threads(ThreadPoolExecutor):
    """The loop's time stands still from the moment at which work is submitted until the loop has heard of its end."""

    def __init__(self, loop: VirtualLoop, count: int | None = None, name: str = "") -> None:
        super().__init__(count, thread_name_prefix=name)
        self._loop = loop

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Only the loop's own thread submits. The callbacks of the returned future have run when time goes on."""
        told: Future[T] = Future()

        def work() -> None:
            if told.set_running_or_notify_cancel():
                try:
                    told.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                    told.set_exception(error)

        def ended(done: Future[None]) -> None:
            if done.cancelled():
                told.cancel()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._returned)

        self._loop.in_threads += 1
        super().submit(work).add_done_callback(ended)
        return told

    def _returned(self) -> None:
        self._loop.in_threads -= 1


class VirtualMachine(Machine):
    """Its monotonic clock and its threads are those of a loop; everything else is this machine's."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def monotonic_ns(self) -> int:
        return int(self._loop.now * 1e9)

    def threads(self, count: int, name: str) -> Executor:
        return _Threads(self._loop, count, name)
