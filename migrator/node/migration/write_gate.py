"""Makes administrative writes wait while ZooKeeper is too far behind, and refuses writes that would be too large for
it.

`ActiveController` calls `admit` before such a write, and `check` with the records of each decision. Elections, fencing,
ISR changes and registrations never wait here: an outage of ZooKeeper must not become an outage of Kafka. A wait that
takes too long ends with REQUEST_TIMED_OUT, after which clients try again. See
docs/adr/0013-bounds-of-the-write-behind.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property

from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms
from migrator.config.settings import Settings
from migrator.controller.decision import RefusedError
from migrator.controller.index import ControllerIndex
from migrator.image.model import MetadataImage
from migrator.migration.write_behind.bound import Admission, WriteBound
from migrator.migration.write_behind.lag import Lag
from migrator.migration.write_behind.multis import limits_of
from migrator.migration.write_behind.sizes import check_sizes, too_large
from migrator.records.metadata import MetadataRecord
from migrator.wire.requests import REQUEST
from migrator.zookeeper.password_encoder import password_encoder
from migrator.zookeeper.znodes.passwords import PasswordEncoder

LOOK_SECONDS = 0.05


class WriteGate:
    """Checks each administrative write before it begins, and the records of each write before they are appended."""

    def __init__(self, settings: Settings) -> None:
        self._bound = WriteBound(
            settings.migrator_write_behind_max_records,
            settings.migrator_write_behind_max_age_ms,
            settings.migrator_write_behind_max_block_ms,
        )
        self._limits = limits_of(settings.migrator_zookeeper_jute_maxbuffer)
        self._settings = settings
        self._lag: Callable[[], Lag | None] = lambda: None
        self._must_follow: Callable[[], bool] = lambda: False

    def measures(self, lag: Callable[[], Lag | None], must_follow: Callable[[], bool]) -> None:
        """Set where the gate gets its figures.

        :param lag: gives what ZooKeeper lacks; None while it need not follow. To be called on the event loop only.
        :param must_follow: gives whether ZooKeeper has to follow, on any thread.
        """
        self._lag = lag
        self._must_follow = must_follow

    @property
    def blocked_ms(self) -> int:
        """How long writes have waited so far, in total."""
        return self._bound.blocked_ms(monotonic_ms())

    async def admit(self) -> None:
        """Return when the write may go on.

        :raises RefusedError: REQUEST_TIMED_OUT, after which clients try again, when the write has waited too long, or
            too many wait.
        """
        if self._look(waited_ms=0) is Admission.PROCEED:
            return
        if not REQUEST.get().park():
            raise RefusedError(
                ErrorCode.request_timed_out,
                "The change was not made: ZooKeeper is behind, and too many other changes wait. Try again later.",
            )
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
                f"The change was not made: {self._bound.exceeded(self._lag()) or 'ZooKeeper is behind'}. Try again "
                f"later.",
            )

    def check(self, image: MetadataImage, index: ControllerIndex, records: Sequence[MetadataRecord]) -> None:
        """Check the records of a decision on this image, on the thread of the decision.

        :raises RefusedError: POLICY_VIOLATION, when a znode would become too large for ZooKeeper.
        """
        if self._must_follow():
            limits, passwords = self._limits, self._passwords
            check_sizes(image, records, acl_bytes=index.acl_bytes, limits=limits, passwords=passwords)

    def too_large(self, image: MetadataImage) -> dict[str, int]:
        """The znodes of all metadata that would be too large for ZooKeeper: bytes by path. On any thread."""
        return too_large(image, limits=self._limits, passwords=self._passwords)

    @cached_property
    def _passwords(self) -> PasswordEncoder:
        return password_encoder(self._settings)

    def _look(self, *, waited_ms: int) -> Admission:
        return self._bound.admit(self._lag(), waited_ms=waited_ms)
