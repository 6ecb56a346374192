"""Bounds how far the log may run ahead of ZooKeeper, in records and in time. Pure: the node asks, waits, and asks
again.

Above the bound only administrative writes wait, for a bounded time. Elections, fencing, AlterPartition, registrations
and producer ids never wait: an outage of ZooKeeper must not become an outage of Kafka.

Only records of this leadership count: a new leader does not know at once what its predecessor has not written, and the
predecessor had the same bound.
"""

from __future__ import annotations

from enum import Enum

from migrator.migration.write_behind.lag import Lag


class Admission(Enum):
    """The decision about a write."""

    PROCEED = "proceed"
    WAIT = "wait"
    REFUSE = "refuse"
    """Refuse it with a retriable error, REQUEST_TIMED_OUT."""


class WriteBound:
    """Bounds the lag of ZooKeeper behind the log; one object per process. Times are milliseconds of the caller's clock.

    :param max_records: ``migrator.write.behind.max.records``.
    :param max_age_ms: ``migrator.write.behind.max.age.ms``.
    :param max_block_ms: ``migrator.write.behind.max.block.ms``.
    """

    def __init__(self, max_records: int, max_age_ms: int, max_block_ms: int) -> None:
        self._max_records = max_records
        self._max_age_ms = max_age_ms
        self._max_block_ms = max_block_ms
        self._waiting = 0
        self._waiting_since_ms = 0
        self._blocked_ms = 0

    def admit(self, lag: Lag | None, *, waited_ms: int) -> Admission:
        """Decide about an administrative write that has waited for ``waited_ms``: a person or a tool asked for it, and
        can ask again. All other writes go on without this check.

        :param lag: None while ZooKeeper need not follow: before the copy, and when the migration is turned off.
        """
        if not self.exceeded(lag):
            return Admission.PROCEED
        return Admission.REFUSE if waited_ms >= self._max_block_ms else Admission.WAIT

    def wait_began(self, now_ms: int) -> None:
        """One more write waits."""
        if not self._waiting:
            self._waiting_since_ms = now_ms
        self._waiting += 1

    def wait_ended(self, now_ms: int) -> None:
        """One of the waiting writes no longer waits, with any result."""
        self._waiting -= 1
        if not self._waiting:
            self._blocked_ms += now_ms - self._waiting_since_ms

    def blocked_ms(self, now_ms: int) -> int:
        """How long writes have waited so far, in total (ZookeeperBlockingKRaftMillis)."""
        return self._blocked_ms + (now_ms - self._waiting_since_ms if self._waiting else 0)

    def exceeded(self, lag: Lag | None) -> str:
        """The bound that the lag exceeds, as a sentence; empty for none."""
        if lag is None:
            return ""
        if lag.own > self._max_records:
            return f"ZooKeeper does not hold {lag.own} changes yet, the bound is {self._max_records}"
        if lag.age_ms > self._max_age_ms:
            return f"ZooKeeper has been behind for {lag.age_ms // 1000} s, the bound is {self._max_age_ms // 1000} s"
        return ""
