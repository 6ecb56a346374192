"""Makes administrative writes wait while ZooKeeper is too far behind the log, within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.controller.decision import RefusedError
from migrator.migration.bound import Admission, Urgency, WriteBound
from migrator.node.quorum import monotonic_ms

LOOK_SECONDS = 0.05


class WriteGate:
    """Asked before each administrative write."""

    def __init__(self, settings: Settings) -> None:
        self._bound = WriteBound(
            settings.migrator_write_behind_max_records, settings.migrator_write_behind_max_block_ms
        )
        self._lag: Callable[[], tuple[int, bool]] = lambda: (0, False)

    def measures(self, lag: Callable[[], tuple[int, bool]]) -> None:
        """Where to look: records that ZooKeeper does not hold yet, and whether this node writes to it at all."""
        self._lag = lag

    @property
    def blocked_ms(self) -> int:
        """How long writes have waited so far, together."""
        return self._bound.blocked_ms(monotonic_ms())

    async def admit(self) -> None:
        """Return when the write may go on.

        :raises RefusedError: REQUEST_TIMED_OUT, which clients try again, when it has waited too long.
        """
        if self._look(waited_ms=0) is Admission.PROCEED:
            return
        began_ms = monotonic_ms()
        self._bound.wait_began(began_ms)
        try:
            while (admission := self._look(waited_ms=monotonic_ms() - began_ms)) is Admission.WAIT:
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._bound.wait_ended(monotonic_ms())
        if admission is Admission.REFUSE:
            raise RefusedError(
                ErrorCode.request_timed_out,
                f"ZooKeeper is {self._lag()[0]} records behind; the change was not made. Try again.",
            )

    def _look(self, *, waited_ms: int) -> Admission:
        lag, applies = self._lag()
        self._bound.measure(lag, applies=applies)
        return self._bound.admit(Urgency.ADMINISTRATIVE, waited_ms=waited_ms)
