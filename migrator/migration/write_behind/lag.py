"""The lag of ZooKeeper behind the log, in records and in time. Pure.

Up to the end of the copy, ZooKeeper is the source, so the copy is no lag. A leader that has not read ``/migration`` yet
does not know what its predecessor has not written: it counts from the start of its own epoch, and reports the total as
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from migrator.image.model import Changes, ImageDelta, MetadataImage
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState
from migrator.values import value

REST_MS = 30_000
"""The time after its last progress in which a reconcile counts as making progress."""


@value
class Lag:
    """``records``: committed records that ZooKeeper lacks; None when unknown. ``own``: those committed under this
    leadership. ``age_ms``: how long the oldest has waited, without the time in which a reconcile made progress; 0 when
    none waits."""

    records: int | None
    own: int
    age_ms: int

    def __str__(self) -> str:
        if self.records is None:
            return (
                f"it is not known yet how far ZooKeeper is behind; {self.own} records of this leadership are not in it"
            )
        return f"ZooKeeper is {self.records} records behind"


class RestingClock:
    """A clock that stops while work makes progress. Times are milliseconds."""

    def __init__(self, now_ms: int) -> None:
        self._elapsed_ms = 0
        """How long the clock had run at the last rest."""
        self._runs_from_ms = now_ms

    def read(self, now_ms: int) -> int:
        """How long the clock has run since it was made."""
        return self._elapsed_ms + max(0, now_ms - self._runs_from_ms)

    def rest(self, now_ms: int, duration_ms: int = REST_MS) -> None:
        """Stop the clock for ``duration_ms`` from now."""
        self._elapsed_ms = self.read(now_ms)
        self._runs_from_ms = now_ms + duration_ms


class Backlog:
    """Counts the lag of one leadership.

    :param last_effect: the offset of the last record with an effect in ZooKeeper before the leadership began, or a
        later offset.
    """

    def __init__(self, last_effect: int, now_ms: int) -> None:
        self.clock = RestingClock(now_ms)
        self._last_effect = last_effect
        self._inherited: int | None = None
        """How many records a predecessor may have left unwritten: an upper bound, which includes records without an
        effect."""
        self._copied_up_to: int | None = None
        """The last offset of the image with which the copy was published, until the offset of EndTransaction is
        known."""
        self.waiting = 0
        self._waits_since: int | None = None
        """The time since which records have waited, by `clock`; the same holds below."""
        self.under_way = 0
        self._under_way_since: int | None = None

    def published(self, delta: ImageDelta, now_ms: int) -> None:
        """Take one more committed image."""
        if _completes_copy(delta):
            self._inherited, self._copied_up_to = 0, delta.after.provenance.offset
        elif has_effect(delta.changes):
            self._add(delta.changes.records, self.clock.read(now_ms))

    def opened(self, at: EpochOffset, now_ms: int) -> None:
        """ZooKeeper is known to hold everything up to ``at``."""
        if self._copied_up_to is not None:
            behind_end = self._copied_up_to - at.offset
            self._copied_up_to = None
            if behind_end > 0:
                self._add(behind_end, self.clock.read(now_ms))
        if self._inherited is None:
            self._inherited = max(0, self._last_effect - at.offset)

    def taken(self) -> None:
        """The waiting records are being written now."""
        self.under_way += self.waiting
        self._under_way_since = _earlier(self._under_way_since, self._waits_since)
        self.waiting, self._waits_since = 0, None

    def requeued(self) -> None:
        """The records that were being written wait again."""
        self.waiting += self.under_way
        self._waits_since = _earlier(self._waits_since, self._under_way_since)
        self.under_way, self._under_way_since = 0, None

    def doubted(self) -> None:
        """ZooKeeper may lack more than is known; a comparison of everything will show it."""
        self._inherited = None

    def written(self) -> None:
        """The records under way are in ZooKeeper, and with them those that a predecessor had not written."""
        self.under_way, self._under_way_since = 0, None
        self._inherited = 0

    def lag(self, now_ms: int) -> Lag:
        """The figures now."""
        now = self.clock.read(now_ms)
        own = self.waiting + self.under_way
        since = 0 if self._inherited != 0 else _earlier(self._waits_since, self._under_way_since)
        records = None if self._inherited is None else self._inherited + own
        return Lag(records, own, 0 if since is None else now - since)

    @property
    def key(self) -> tuple[object, ...]:
        """The part of this state that decides the next step: it has no times and no counts."""
        return self.waiting > 0, self.under_way > 0, self._inherited is None, self._inherited == 0

    @property
    def is_empty(self) -> bool:
        """Whether ZooKeeper is known to hold everything."""
        return self._inherited == 0 and not self.waiting and not self.under_way

    def _add(self, records: int, since: int) -> None:
        self.waiting += records
        self._waits_since = _earlier(self._waits_since, since)


def at_of(image: MetadataImage) -> EpochOffset:
    """Offset (inclusive, as in ``/migration``) and epoch of the last record in an image."""
    return EpochOffset(epoch=image.provenance.epoch, offset=image.provenance.offset)


def has_effect(changes: Changes) -> bool:
    """Whether any of these changes has an effect in ZooKeeper."""
    kept: Iterable[object] = (
        changes.topics,
        changes.partitions,
        changes.configs,
        changes.quotas,
        changes.producer_ids,
        changes.acls,
        changes.scram,
        changes.tokens,
    )
    return any(kept)


def _completes_copy(delta: ImageDelta) -> bool:
    before, after = delta.before.features.zk_migration_state, delta.after.features.zk_migration_state
    return before is ZkMigrationState.PRE_MIGRATION and after is ZkMigrationState.MIGRATION


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
