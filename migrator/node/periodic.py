"""Runs the periodic tasks of the active controller, for one leader epoch.

`Leadership` starts it and cancels it at the end of the epoch. `migrator.controller.schedule` says which task is due;
each is a write like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from migrator.clock import monotonic_ms
from migrator.config.settings import Settings
from migrator.controller.decision import RefusedError
from migrator.controller.migration_gate import Operation
from migrator.controller.schedule import Schedule
from migrator.node.active import ActiveController
from migrator.turns import give_back

log = logging.getLogger(__name__)

SLEEP_MAX_MS = 500
"""The longest wait before the next look: a broker that registers meanwhile changes what is due."""


class PeriodicTasks:
    """Performs the due tasks of the active controller, from the activation of an epoch to its end."""

    def __init__(self, settings: Settings, controller: ActiveController) -> None:
        self._settings = settings
        self._controller = controller

    async def run(self, epoch: int) -> None:
        """Run until cancelled, or until the epoch is over."""
        schedule = Schedule(self._settings, monotonic_ms())
        try:
            while True:
                self._controller.has_errands.clear()
                done = await self._controller.run_due(schedule, epoch)
                await give_back()
                if done is None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._pause_ms(schedule) / 1000):
                            await self._controller.has_errands.wait()
                elif done[0] is Operation.FENCE_BROKER and done[1] is not None:
                    log.warning("Broker %s sends no heartbeats and is fenced", done[1])
        except RefusedError as error:
            log.debug("The periodic tasks of epoch %d have ended: %s", epoch, error)

    def _pause_ms(self, schedule: Schedule) -> int:
        due = self._controller.next_due_ms(schedule)
        return SLEEP_MAX_MS if due is None else min(SLEEP_MAX_MS, max(1, due - monotonic_ms()))
