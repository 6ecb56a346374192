"""The reason why a controller has to stop. It also ends what the controller waits for at its start.

A fatal error calls a `StopReason`, a signal sets its ``stop``; `run_node` waits for that. Only the first error counts.
An error of a peer never stops the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from migrator.errors import InvariantViolation, MigratorError, OperatorError, PeerError
from migrator.raft.transport import TransportError
from migrator.supervision import OnError, Supervisor, TaskKind

log = logging.getLogger(__name__)

STOPPED = TaskKind("stopped-at-the-start", OnError.STOP)


class StoppedError(MigratorError):
    """The process has to stop, so a step of its start no longer waits."""


class StopReason:
    """The first reason why this process has to stop."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.not_drained: OperatorError | None = None
        """The error that ZooKeeper lacks changes after a stop. It is not a reason to stop."""
        self.farewell = "Stopped"
        self.stop = asyncio.Event()

    def __call__(self, error: BaseException) -> None:
        if self.error is None and isinstance(error, MigratorError):
            self.error = error
            log.critical("This controller stops because of an error: %s", error)
        elif self.error is None:  # a defect of this program
            self.error = InvariantViolation(f"{type(error).__name__}: {error}")
            log.critical("This controller stops because of an unexpected error: %r", error, exc_info=error)
        self.stop.set()

    async def unless_stopped(self, work: Awaitable[None]) -> None:
        """Do work that may wait for other nodes, and give it up when the process has to stop.

        :raises StoppedError: the work was given up.
        """
        supervisor = Supervisor(self)
        try:
            async with asyncio.timeout(None) as limit:
                supervisor.spawn(STOPPED, self._end(limit))
                await work
        except TimeoutError as error:
            if limit.expired():
                raise StoppedError from error
            raise
        finally:
            await supervisor.close()

    async def _end(self, limit: asyncio.Timeout) -> None:
        await self.stop.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The event loop's handler of unhandled errors. An error that this package raised stops the process. The error
        of a peer is only logged: no peer may end a controller."""
        error = context.get("exception")
        if isinstance(error, MigratorError) and not isinstance(error, PeerError | TransportError):
            self(error)
        else:
            loop.default_exception_handler(context)
