"""Owns all tasks and timers that run for long, so that no error of a task stays unnoticed.

A component has one `Supervisor` and starts its tasks and timers with it. Each has a `TaskKind`, which decides the
effect of an unexpected error: it stops the process, it ends that one task, or the task runs again after a back-off.
Each such error is logged and counted in the `FailureBook` of the controller, which the metrics show. A task handles the
errors that it expects.

A task or timer belongs to its component, not to the request that begins it: its context holds the machine and nothing
else.

Two errors stop the process even where the kind says that a task runs again: an `InvariantViolation`, because going on
does harm, and an `OperatorError`, because only a person can mend it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from migrator.clock import wall_ms
from migrator.errors import InvariantViolation, OperatorError
from migrator.machine import context_on, machine
from migrator.values import value

log = logging.getLogger(__name__)

T = TypeVar("T")
OnFailure = Callable[[BaseException], None]
"""Told of the error for which the process has to stop."""

BACKOFF_MIN_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 10.0
HEALTHY_SECONDS = 60.0
"""A task that ran for so long begins its back-off anew."""


class OnError(Enum):
    """The effect of an unexpected error."""

    STOP = "the process stops"
    RESTART = "the task runs again after a back-off"
    DROP = "only this task ends, and the code that depends on it is informed"


_FATAL: Mapping[OnError, tuple[type[BaseException], ...]] = {
    OnError.STOP: (BaseException,),
    OnError.RESTART: (InvariantViolation, OperatorError),
    OnError.DROP: (InvariantViolation,),
}
"""Which errors stop the process."""


@value
class TaskKind:
    """A sort of task; ``name`` is its label in metrics."""

    name: str
    on_error: OnError


@value
class TaskFailures:
    """The failures of one kind of task since the controller began. ``last_ms``: milliseconds since 1970."""

    count: int
    last_error: str
    last_ms: int


class FailureBook:
    """The failures of every kind of task of one controller; may be read from any thread."""

    def __init__(self) -> None:
        self._by_kind: dict[str, TaskFailures] = {}

    def note(self, kind: TaskKind, error: BaseException) -> None:
        """One more."""
        before = self._by_kind.get(kind.name)
        count = 1 if before is None else before.count + 1
        self._by_kind[kind.name] = TaskFailures(count, type(error).__name__, wall_ms())

    def read(self) -> Mapping[str, TaskFailures]:
        """The failures of each kind that has failed, by its name."""
        return dict(self._by_kind)


class AbandonedError(Exception):
    """The awaited work was cancelled, but the task itself was not."""


class Supervisor:
    """Owns the tasks and timers of one component, on one event loop.

    :param on_failure: called with an error that must stop the process; without it such an error is only logged and
        counted.
    """

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        self._on_failure = on_failure
        self._machine = machine()
        self._failures = self._machine.own(FailureBook)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """The tasks in the order in which they began, so that `close` does the same each time."""

    def spawn(self, kind: TaskKind, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Start work that ends by itself or is cancelled; it is never repeated.

        :param name: of the task, for the log; that of the kind otherwise.
        """
        task = asyncio.get_running_loop().create_task(work, name=name or kind.name, context=self._context())
        self._tasks[task] = None
        task.add_done_callback(partial(self._ended, kind))
        return task

    def keep(
        self,
        kind: TaskKind,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str = "",
        on_error: Callable[[Exception], None] = lambda _: None,
    ) -> asyncio.Task[None]:
        """Start work that lasts, and start it again, after a back-off, whenever an error ends it.

        :param on_error: called with each such error, before the back-off.
        """
        name = name or kind.name
        kept = self._keep(kind, work, name, on_error)
        task = asyncio.get_running_loop().create_task(kept, name=name, context=self._context())
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call(self, kind: TaskKind, callback: Callable[..., None], *args: Any) -> None:
        """Call it now, from where nobody above would notice its error: e.g. at the end of a task."""
        self._call(kind, callback, args)

    def call_later(
        self, kind: TaskKind, seconds: float, callback: Callable[..., None], *args: Any
    ) -> asyncio.TimerHandle:
        """Like `asyncio.loop.call_later`."""
        return asyncio.get_running_loop().call_later(seconds, self._call, kind, callback, args, context=self._context())

    def call_soon(self, kind: TaskKind, callback: Callable[..., None], *args: Any) -> asyncio.Handle:
        """Like `asyncio.loop.call_soon`."""
        return asyncio.get_running_loop().call_soon(self._call, kind, callback, args, context=self._context())

    def call_soon_threadsafe(
        self, loop: asyncio.AbstractEventLoop, kind: TaskKind, callback: Callable[..., None], *args: Any
    ) -> None:
        """Like `asyncio.loop.call_soon_threadsafe`, from any thread."""
        loop.call_soon_threadsafe(self._call, kind, callback, args, context=self._context())

    async def close(self) -> None:
        """Cancel every task and wait for its end."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _context(self) -> Context:
        return context_on(self._machine)

    def _ended(self, kind: TaskKind, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(kind, error, task.get_name())

    async def _keep(
        self,
        kind: TaskKind,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        on_error: Callable[[Exception], None],
    ) -> None:
        clock, pause = asyncio.get_running_loop().time, BACKOFF_MIN_SECONDS
        while True:
            began = clock()
            try:
                await _not_abandoned(work())
            except Exception as error:  # noqa: BLE001 - the top of a task: it runs again
                if not self._failed(kind, error, name):
                    return
                on_error(error)
            else:
                return
            pause = BACKOFF_MIN_SECONDS if clock() - began >= HEALTHY_SECONDS else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACKOFF_MAX_SECONDS)

    def _call(self, kind: TaskKind, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            callback(*args)
        except Exception as error:  # noqa: BLE001 - the top of a timer: nobody above it would stop the process
            self._failed(kind, error, kind.name)

    def _failed(self, kind: TaskKind, error: BaseException, name: str) -> bool:
        """Count, log and pass on; whether the task may run again."""
        self._failures.note(kind, error)
        stops = isinstance(error, _FATAL[kind.on_error])
        if stops and self._on_failure is not None:
            self._on_failure(error)
            return False
        log.error("%s failed: %s: %s (%s)", name, type(error).__name__, error, kind.on_error.value, exc_info=error)
        return not stops and kind.on_error is OnError.RESTART


async def _not_abandoned(work: Coroutine[Any, Any, None]) -> None:
    """Report a cancellation that was meant for another task; otherwise it would end this task silently.

    :raises AbandonedError: the awaited work was cancelled, but this task was not.
    """
    try:
        await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise AbandonedError("what it waited for was cancelled") from error
