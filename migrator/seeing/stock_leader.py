"""Decides whether a leader of Kafka's own, which has no status to ask for, writes committed changes to ZooKeeper. Pure.

Before Kafka's leader dual-writes, it compares all of ZooKeeper with the log: once after the copy, and again after each
change of leader. Until the comparison is over, it writes no change to ZooKeeper, and sends none to the brokers in
ZooKeeper mode. The comparison does not change the offset in ``/migration``: this stays at the end of the copy, or at
the last change that the leader before has written. In dual-write every record moves the offset, also the NoOp record
of each half second.

Source: ``KRaftMigrationDriver``: its state ``SYNC_KRAFT_TO_ZK`` does not allow dual-write, and ``MetadataChangeEvent``
returns early there.
"""

from __future__ import annotations

from migrator.migration.machine.states import PublicState
from migrator.values import value

BEHIND_SECONDS = 2.0
"""A leader under load is always some records behind. Seconds after which a committed change must be in ZooKeeper."""


class StockLeader:
    """Remembers the offset in ``/migration`` from the first look at a leader."""

    def __init__(self) -> None:
        self._epoch = -1
        self._first = -1
        """The offset in ``/migration`` when the leader of this epoch was first seen in dual-write."""

    def writes(self, state: PublicState | None, epoch: int, written_offset: int, written_epoch: int) -> bool:
        """Take in one more look. Returns whether this leader was seen to write a change to ZooKeeper.

        :param epoch: the leader's; -1 unknown.
        :param written_offset: the offset of the log that ``/migration`` holds; -1 unknown.
        :param written_epoch: the epoch of the record at that offset.
        """
        if state is not PublicState.DUAL_WRITE or epoch < 0 or written_offset < 0:
            return False
        if epoch != self._epoch:
            self._epoch, self._first = epoch, written_offset
        return written_offset > self._first and written_epoch == epoch


@value
class WatermarkSeen:
    """The high watermark at a time, in seconds of a monotonic clock."""

    seconds: float
    committed: int


class CommittedBefore:
    """Remembers the high watermark of some seconds ago."""

    def __init__(self) -> None:
        self._mark: WatermarkSeen | None = None
        self._next: WatermarkSeen | None = None

    def look(self, seconds: float, committed: int) -> int:
        """Take in one more look.

        :param seconds: the time now.
        :param committed: the high watermark now; -1 unknown.
        :returns: the high watermark of a look at least `BEHIND_SECONDS` ago; -1 without such a look.
        """
        if committed < 0:
            return -1
        if self._next is None:
            self._next = WatermarkSeen(seconds, committed)
        elif seconds - self._next.seconds >= BEHIND_SECONDS:
            self._mark, self._next = self._next, WatermarkSeen(seconds, committed)
        return -1 if self._mark is None else self._mark.committed
