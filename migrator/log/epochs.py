"""The table of leader epochs and the offsets at which they begin. It shows where two logs diverge.

`recovery` makes one, and `metadata_log` keeps it for its log and stores it as ``leader-epoch-checkpoint``, as Kafka
does. Epochs and offsets both rise strictly. `end_of` answers a follower's question where an epoch ended here, which
decides how far the follower truncates. Source: ``org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache``.
"""

from __future__ import annotations

from bisect import bisect_right

from migrator.errors import require
from migrator.values import value

CHECKPOINT_FILE = "leader-epoch-checkpoint"
_CHECKPOINT_VERSION = 0


@value
class EpochStart:
    """The first offset of a leader epoch in this log."""

    epoch: int
    start_offset: int


class EpochTable:
    """The epochs of a log in order. Epochs and offsets both rise strictly."""

    def __init__(self, starts: tuple[EpochStart, ...] = ()) -> None:
        self._epochs = [start.epoch for start in starts]
        self._offsets = [start.start_offset for start in starts]

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(map(EpochStart, self._epochs, self._offsets))

    @property
    def latest(self) -> int | None:
        """The highest epoch; None when the table is empty."""
        return self._epochs[-1] if self._epochs else None

    @property
    def earliest(self) -> EpochStart | None:
        return EpochStart(self._epochs[0], self._offsets[0]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that a batch of that epoch is appended at that offset. Returns whether the epoch is new."""
        if self._epochs and self._epochs[-1] == epoch:
            return False
        require(
            not self._epochs or (epoch > self._epochs[-1] and start_offset >= self._offsets[-1]),
            f"leader epoch {epoch} at offset {start_offset} does not follow {self.starts[-1:]}",
        )
        self.truncate_from_end(start_offset)  # drop an epoch whose records were all removed from the log's start
        self._epochs.append(epoch)
        self._offsets.append(start_offset)
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at ``end_offset`` or above."""
        while self._offsets and self._offsets[-1] >= end_offset:
            del self._epochs[-1], self._offsets[-1]

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end at or below ``start_offset``. The epoch that holds it begins there from now on."""
        spanning = bisect_right(self._offsets, start_offset) - 1
        if spanning >= 0:
            del self._epochs[:spanning], self._offsets[:spanning]
            self._offsets[0] = start_offset

    def clear(self) -> None:
        self._epochs.clear()
        self._offsets.clear()

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at the offset; None below the first epoch."""
        index = bisect_right(self._offsets, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def end_of(self, epoch: int, end_offset: int) -> EpochStart | None:
        """The largest known epoch <= ``epoch``, with its end offset; None when all are larger.

        :param end_offset: the end of the log, where its last epoch ends.
        """
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            return None
        end = self._offsets[index + 1] if index + 1 < len(self._offsets) else end_offset
        return EpochStart(self._epochs[index], end)

    def to_text(self) -> str:
        """Content of ``leader-epoch-checkpoint``."""
        starts = self.starts
        lines = [str(_CHECKPOINT_VERSION), str(len(starts))]
        lines += [f"{start.epoch} {start.start_offset}" for start in starts]
        return "\n".join(lines) + "\n"
