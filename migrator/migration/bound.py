"""How far KRaft may run ahead of ZooKeeper. Pure: the node asks, waits, and asks again.

Above the bound only administrative writes wait, and not for ever. Elections, fencing, AlterPartition, registrations and
producer ids never wait: an outage of ZooKeeper must not become an outage of Kafka.
"""

from __future__ import annotations

from enum import Enum


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
    """One per leadership. Times are milliseconds of the caller's clock.

    :param max_records: ``migrator.write.behind.max.records``.
    :param max_block_ms: ``migrator.write.behind.max.block.ms``.
    """

    def __init__(self, max_records: int, max_block_ms: int) -> None:
        self._max_records = max_records
        self._max_block_ms = max_block_ms
        self._lag = 0
        self._applies = False
        self._waiting = 0
        self._waiting_since_ms = 0
        self._blocked_ms = 0

    def measure(self, lag: int, *, applies: bool) -> bool:
        """Take the lag in records; ``applies`` while this leader writes to ZooKeeper, or should.

        :returns: whether who waits may proceed.
        """
        self._lag, self._applies = lag, applies
        return not self._exceeded

    def admit(self, urgency: Urgency, *, waited_ms: int) -> Admission:
        """Decide about a write that has waited so long."""
        if urgency is Urgency.VITAL or not self._exceeded:
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
    def _exceeded(self) -> bool:
        return self._applies and self._lag > self._max_records
