"""The reason for which a controller has to stop, and the end of what it waits for then."""

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
    """The process has to stop, and what it waited for at its start is given up."""


class StopReason:
    """The first reason why this process has to stop."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.not_drained: OperatorError | None = None
        """What ZooKeeper lacks after a stop; no reason for it."""
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
        """Do what may wait for others, and give it up when the process has to stop.

        :raises StoppedError: it was given up.
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
        """The event loop's last resort: what this package raised where nobody waits for it stops the process. What a
        peer did is logged only: no peer may end a controller."""
        error = context.get("exception")
        if isinstance(error, MigratorError) and not isinstance(error, PeerError | TransportError):
            self(error)
        else:
            loop.default_exception_handler(context)
