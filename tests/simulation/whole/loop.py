"""The event loop of one controller, which the world turns when it is that controller's turn.

Everything that asyncio promises is kept, `call_soon` in the order of the calls above all. The seed decides what asyncio
leaves open: when what comes from outside arrives, and the order of timers that are due at the same time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import Context, copy_context
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from migrator.wire.frames import FrameStream

if TYPE_CHECKING:
    from tests.simulation.whole.machine import SimulatedMachine

T = TypeVar("T")
RESOLUTION = 1e-6
"""Timers that are due within it are due."""
ENDED_TASKS = 100
"""So many are kept before they are forgotten."""


class Ready(asyncio.Handle):
    """As asyncio's own, but begun without a look at whether the loop debugs: thousands are made for each second."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: SimulatedLoop, context: Context | None = None) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None


class SimulatedLoop(asyncio.BaseEventLoop):
    """Of one life of one machine."""

    _ready: Any
    _scheduled: Any

    def __init__(self, machine: SimulatedMachine) -> None:
        super().__init__()
        self.set_debug(False)
        self.slow_callback_duration = 1e9
        self._clock_resolution = RESOLUTION
        self._machine = machine
        self._thread_id = threading.get_ident()
        self._timers = itertools.count()
        self._tasks: list[asyncio.Task[Any]] = []
        """In the order of their beginnings, those among them that have not ended. Nothing may collect one of a killed
        process, which would run its ``finally``."""
        self._tasks_max = ENDED_TASKS
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # the stubs want more of a task
        self.set_exception_handler(machine.unhandled)

    def _make_task(self, _: Any, work: Coroutine[Any, Any, Any], **kwargs: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, **kwargs)
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks_max = len(self.tasks) + ENDED_TASKS
        return task

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Those that have not ended."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return self._tasks

    def time(self) -> float:
        return self._machine.monotonic_ns() / 1e9

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """As asyncio's own, which looks first whether the loop is closed or debugs."""
        handle = Ready(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As asyncio's own, but its heap compares handles, which is a call of Python for each."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, next(self._timers), handle))
        return handle

    def next_timer(self) -> float | None:
        """When the next one is due, on the loop's clock; None without one."""
        scheduled = self._scheduled
        while scheduled and scheduled[0][2]._cancelled:
            heapq.heappop(scheduled)
        return scheduled[0][0] if scheduled else None

    def turn(self) -> None:
        """One turn: the timers that are due, and all that was ready at its beginning."""
        machine, ready = self._machine, self._ready
        if self._scheduled:
            self._take_timers()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not machine.is_alive:
                return
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except BaseException as error:  # noqa: BLE001 - as asyncio's own
                    self.call_exception_handler({"message": "a callback", "exception": error, "handle": handle})

    def _take_timers(self) -> None:
        until = self._machine.monotonic_ns() / 1e9 + RESOLUTION
        if self._scheduled[0][0] > until:
            return
        due = []
        while (when := self.next_timer()) is not None and when <= until:
            due.append(heapq.heappop(self._scheduled)[2])
        if len(due) < 2:
            self._ready.extend(due)
            return
        for _, group in groupby(due, key=asyncio.TimerHandle.when):
            together = list(group)
            if len(together) > 1:
                self._machine.chance.shuffle(together)
            self._ready.extend(together)

    # What comes from outside.

    def from_outside(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call as the operating system does: without the context of the running controller."""
        self._write_to_self()
        self.call_soon(callback, *args, context=self._machine.context)

    def _write_to_self(self) -> None:
        """Somebody else than its own turn gives it something to do; `call_soon` from a thread wakes no loop."""
        self._machine.next_due = None

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """The work is done some time later, on a thread of its own, and its result arrives some time after that."""
        if executor is None:
            executor = Threads(self._machine)  # the default one has threads for everybody
        if not isinstance(executor, Threads):
            raise NotImplementedError("threads that nobody has asked the machine for")
        return super().run_in_executor(executor, func, *args)

    # The network.

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("ssl") is not None:
            raise NotImplementedError("TLS is not simulated")
        end = await self._machine.network.connect(self._machine, host, port)
        return await _attached(end, protocol_factory())

    async def sock_accept(self, sock: Any) -> Any:
        return await sock.accept()

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **kwargs: Any) -> Any:
        if kwargs.get("ssl") is not None:
            raise NotImplementedError("TLS is not simulated")
        protocol = protocol_factory()
        if isinstance(protocol, FrameStream):
            self._machine.book = protocol._account.book
        return await _attached(sock, protocol)


async def _attached(end: Any, protocol: Any) -> tuple[Any, Any]:
    transport = end.attach(protocol)
    await asyncio.sleep(0)  # the protocol is told of its connection first
    return transport, protocol


class Threads(Executor):
    """What a controller gets for a `ThreadPoolExecutor` of one thread: one piece of work after the other, each at one
    moment. The time that an fsync may take passes before that moment: until its end nothing is durable."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = False
        self.is_shut_down = False

    def submit(self, func: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self.is_shut_down:
            raise RuntimeError("there is no thread any more")
        future: Future[T] = Future()
        self._waiting.append(lambda: self._work(future, partial(func, *args, **kwargs)))
        if not self._is_busy:
            self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do at once what waits: the caller waits for it."""
        self.is_shut_down = True
        if cancel_futures:
            self._waiting.clear()
        while self._waiting:
            self._waiting.popleft()()

    def _work(self, future: Future[T], func: Callable[[], T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            tell = partial(future.set_result, self._machine.new_context().run(func))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it, whatever it is
            tell = partial(future.set_exception, error)
        self._machine.later(5e-6, 100e-6, tell)

    def _begin(self) -> None:
        self._is_busy = True
        machine = self._machine
        at_most = machine.world.options.thread_ms_max / 1000 + machine.sync_seconds_max
        machine.later(20e-6, at_most, self._do)

    def _do(self) -> None:
        if self._waiting:
            self._machine.has_waited_for_disk = True
            took = self._machine.measured(self._waiting.popleft())
            self._machine.has_waited_for_disk = False
            self._machine.later(took, took, self._go_on)
        else:
            self._is_busy = False

    def _go_on(self) -> None:
        if self._waiting:
            self._begin()
        else:
            self._is_busy = False
