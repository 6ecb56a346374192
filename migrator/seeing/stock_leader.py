"""Whether one of Kafka's controllers, which has no status of its own, writes to ZooKeeper what is committed. Pure.

Kafka's leader passes a comparison of all of ZooKeeper with the log before it dual-writes: once behind the copy, and
again whenever another one leads. Until that is over it writes no change to ZooKeeper, and sends none to the brokers in
ZooKeeper mode. The comparison leaves the offset in ``/migration`` as it was: that of the copy's end, or of the last
change that the leader before has written. In dual-write every record moves it, also the NoOp of each half second.

Source: ``KRaftMigrationDriver``: its state ``SYNC_KRAFT_TO_ZK`` does not allow dual-write, and ``MetadataChangeEvent``
returns early there.
"""

from __future__ import annotations

from migrator.migration.machine.states import PublicState
from migrator.values import value

BEHIND_SECONDS = 2.0
"""A leader under load is always some records behind: what was committed so long ago has to be written."""


class StockLeader:
    """What is seen of the leader, look after look."""

    def __init__(self) -> None:
        self._epoch = -1
        self._first = -1
        """The offset in ``/migration`` as the leader of this epoch was first seen in dual-write."""

    def writes(self, state: PublicState | None, epoch: int, written_offset: int, written_epoch: int) -> bool:
        """One more look: whether this leader was seen to write a change to ZooKeeper.

        :param epoch: of the leader, -1 unknown.
        :param written_offset: in ``/migration``, of the log, -1 unknown.
        :param written_epoch: of the record at that offset.
        """
        if state is not PublicState.DUAL_WRITE or epoch < 0 or written_offset < 0:
            return False
        if epoch != self._epoch:
            self._epoch, self._first = epoch, written_offset
        return written_offset > self._first and written_epoch == epoch


@value
class Mark:
    """What was committed at a time of a clock that never jumps, in seconds."""

    seconds: float
    committed: int


class CommittedBefore:
    """What was committed some seconds ago, from look to look."""

    def __init__(self) -> None:
        self._mark: Mark | None = None
        self._next: Mark | None = None

    def look(self, seconds: float, committed: int) -> int:
        """One more look.

        :param seconds: now.
        :param committed: now; -1: nobody says.
        :returns: what was committed at a look at least `BEHIND_SECONDS` before; -1 without one.
        """
        if committed < 0:
            return -1
        if self._next is None:
            self._next = Mark(seconds, committed)
        elif seconds - self._next.seconds >= BEHIND_SECONDS:
            self._mark, self._next = self._next, Mark(seconds, committed)
        return -1 if self._mark is None else self._mark.committed
