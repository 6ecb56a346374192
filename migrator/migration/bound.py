"""How far KRaft may run ahead of ZooKeeper, in records and in time. Pure: the node asks, waits, and asks again.

Above the bound only administrative writes wait, and not for ever. Elections, fencing, AlterPartition, registrations and
producer ids never wait: an outage of ZooKeeper must not become an outage of Kafka.

Of the records only those of this leadership count: a new leader does not know at once what its predecessor left
behind, and its predecessor was bound as well.
"""

from __future__ import annotations

from enum import Enum

from migrator.migration.lag import NO_LAG, Lag


class Urgency(Enum):
    """What a write is for."""

    ADMINISTRATIVE = "administrative"
    """Topics, configs, quotas, ACLs, credentials, tokens: a person or a tool asked for it and can ask again."""
    VITAL = "vital"
    """What keeps the cluster going."""


class Admission(Enum):
    """What becomes of a write now."""

    PROCEED = "proceed"
    WAIT = "wait"
    REFUSE = "refuse"
    """With a retriable error, REQUEST_TIMED_OUT."""


class WriteBound:
    """One per process. Times are milliseconds of the caller's clock.

    :param max_records: ``migrator.write.behind.max.records``.
    :param max_age_ms: ``migrator.write.behind.max.age.ms``.
    :param max_block_ms: ``migrator.write.behind.max.block.ms``.
    """

    def __init__(self, max_records: int, max_age_ms: int, max_block_ms: int) -> None:
        self._max_records = max_records
        self._max_age_ms = max_age_ms
        self._max_block_ms = max_block_ms
        self._lag = NO_LAG
        self._waiting = 0
        self._waiting_since_ms = 0
        self._blocked_ms = 0

    def measure(self, lag: Lag | None) -> bool:
        """Take the lag; None while ZooKeeper need not follow: before the copy, and when the migration is turned off.

        :returns: whether who waits may proceed.
        """
        self._lag = NO_LAG if lag is None else lag
        return not self.exceeded

    def admit(self, urgency: Urgency, *, waited_ms: int) -> Admission:
        """Decide about a write that has waited so long."""
        if urgency is Urgency.VITAL or not self.exceeded:
            return Admission.PROCEED
        return Admission.REFUSE if waited_ms >= self._max_block_ms else Admission.WAIT

    def wait_began(self, now_ms: int) -> None:
        """One more write waits."""
        if not self._waiting:
            self._waiting_since_ms = now_ms
        self._waiting += 1

    def wait_ended(self, now_ms: int) -> None:
        """One of them does not any more, whatever became of it."""
        self._waiting -= 1
        if not self._waiting:
            self._blocked_ms += now_ms - self._waiting_since_ms

    def blocked_ms(self, now_ms: int) -> int:
        """How long writes have been waiting so far, together (ZookeeperBlockingKRaftMillis)."""
        return self._blocked_ms + (now_ms - self._waiting_since_ms if self._waiting else 0)

    @property
    def exceeded(self) -> str:
        """Which bound is exceeded, as a sentence; empty for none."""
        if self._lag.own > self._max_records:
            return f"ZooKeeper does not hold {self._lag.own} changes yet, the bound is {self._max_records}"
        if self._lag.age_ms > self._max_age_ms:
            return (
                f"ZooKeeper has not followed for {self._lag.age_ms // 1000} s, "
                f"the bound is {self._max_age_ms // 1000} s"
            )
        return ""
