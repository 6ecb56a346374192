"""Pieces of work on the event loop, each of which ends with an event for the coordinator, or with nothing.

The executors start all their work here. One thread waits for ZooKeeper, so blocking calls keep their order. Work that
raises has a defect, and stops the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from migrator.machine import machine
from migrator.migration.coordinator import AnyEvent
from migrator.supervision import OnError, Supervisor, TaskKind

T = TypeVar("T")

WORK = TaskKind("migration-work", OnError.STOP)
TIMER = TaskKind("migration-timer", OnError.STOP)

Job = asyncio.Task[AnyEvent | None]
"""A piece of work; its result is the event that it ends with."""


class Background:
    """All work that is under way, and the one thread that waits for ZooKeeper.

    :param feed: takes the events.
    :param on_failure: is called with an error that work raises: such an error is a defect and must stop the process.
    """

    def __init__(self, feed: Callable[[AnyEvent], None], on_failure: Callable[[BaseException], None]) -> None:
        self.feed = feed
        self._supervisor = Supervisor(on_failure)
        self._thread = machine().threads(1, "migration-zookeeper")

    def spawn(self, work: Coroutine[Any, Any, AnyEvent | None]) -> Job:
        """Start the work. To give it up, cancel the task."""
        task = self._supervisor.spawn(WORK, work)
        task.add_done_callback(self._ended)
        return task

    def feed_later(self, seconds: float, event: AnyEvent) -> None:
        """Feed an event after so many seconds."""
        self._supervisor.call_later(TIMER, seconds, self.feed, event)

    def call_from_thread(self, loop: asyncio.AbstractEventLoop, callback: Callable[[T], None], argument: T) -> None:
        """Have the event loop call a function soon; callable from any thread."""
        self._supervisor.call_soon_threadsafe(loop, WORK, callback, argument)

    async def blocking(self, call: Callable[[], Any]) -> Any:
        """Run the call in the thread, after the calls that wait there."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def close(self) -> None:
        """Cancel all work and wait for its end."""
        await self._supervisor.close()
        self._thread.shutdown(wait=False)

    def _ended(self, task: Job) -> None:
        """Feed the event that the work ended with."""
        if task.cancelled() or task.exception() is not None:
            return
        event = task.result()
        if event is not None:
            self._supervisor.call(WORK, self.feed, event)
