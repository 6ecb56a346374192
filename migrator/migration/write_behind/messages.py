"""The events and effects of the write-behind, as values.

The coordinator feeds the events to `core`. The executor performs the `Performed` effects; those `ForDriver` go to the
migration driver. An answer carries the number of its effect; an answer with another number is dropped, because it
belongs to an earlier claim or multi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from migrator.image.model import ImageDelta, MetadataImage
from migrator.migration.translate.entity import EntityWrite
from migrator.raft.messages import EpochOffset
from migrator.values import value
from migrator.zookeeper.leadership import Claim
from migrator.zookeeper.ops import MultiOutcome, Op
from migrator.zookeeper.znodes.migration import MigrationState

# Events


@value
class Opened:
    """A claim is won. ``/migration`` first moves to ``at`` if it is not there."""

    claim: Claim
    at: EpochOffset


@value
class Published:
    """A committed image."""

    delta: ImageDelta


@value
class HeldDeletes:
    """Entities that ZooKeeper holds and the image does not, more than ``bound``. ``digest``: the digest of all their
    names."""

    count: int
    bound: int
    examples: tuple[str, ...]
    digest: str = ""


@value
class ReconcileBegun:
    """A worker compares ZooKeeper with this image, the newest published one. Its writes follow as `ReconcileWrites`
    with the same number; writes of an earlier comparison are dropped."""

    image: MetadataImage
    number: int = 0


@value
class Resumed:
    """The mark is the last one of a leader of this quorum, so ZooKeeper holds the image except for ``entities``, which
    have changed since. They are read again and written, and then every change. Meanwhile a worker compares all of
    ZooKeeper with the image: its findings follow as `ReconcileWrites` with the same number."""

    image: MetadataImage
    number: int
    entities: tuple[str, ...]


@value
class ReconcileWrites:
    """Differences that a worker has found. ``last``: no more follow. ``held``: the deletes that were left out; with
    them, ZooKeeper does not equal the image. ``behind``: with the last one, how many sets the states of a topic still
    need to reach their partition epochs, by the name of its entity (`Versions`)."""

    writes: tuple[EntityWrite, ...]
    last: bool = False
    held: HeldDeletes | None = None
    number: int = 0
    behind: Mapping[str, int] = field(default_factory=dict)


@value
class MultiEnded:
    """The answer to `SendMulti`. ``number`` is the number of the effect, here and below; an answer with another number
    is dropped."""

    number: int
    outcome: MultiOutcome


@value
class MultiRefused:
    """ZooKeeper refuses the multi for a reason that no repair can mend."""

    number: int
    reason: str


@value
class MarkRead:
    """The answer to `ReadMark`. ``mark_version`` is None when the znode does not exist; ``mark`` is None when it does
    not exist or has no data."""

    number: int
    epoch_version: int | None
    mark: MigrationState | None
    mark_version: int | None


@value
class Repaired:
    """The answer to `ReadAgain`: the writes that the entities still need; empty if they equal the image. ``behind``
    as in `ReconcileWrites`."""

    number: int
    entities: tuple[str, ...]
    writes: tuple[EntityWrite, ...]
    behind: Mapping[str, int] = field(default_factory=dict)


@value
class TimerExpired:
    """The time that `WakeAt` asked for has come."""


@value
class Closed:
    """The claim or the leadership is lost."""


WriteEvent = (
    Opened
    | Published
    | ReconcileBegun
    | Resumed
    | ReconcileWrites
    | MultiEnded
    | MultiRefused
    | MarkRead
    | Repaired
    | TimerExpired
    | Closed
)


# Effects


@value
class SendMulti:
    """Send one multi: `MultiEnded`."""

    number: int
    ops: tuple[Op, ...]


@value
class ReadMark:
    """Sync and read /controller_epoch and /migration once ZooKeeper answers: `MarkRead`."""

    number: int


@value
class ReadAgain:
    """Read these entities and compare them with this image: `Repaired`. ``sets``: the most sets that only raise
    versions of partition states; `Repaired` counts the others."""

    number: int
    entities: tuple[str, ...]
    image: MetadataImage
    sets: int = 0


@value
class Advanced:
    """ZooKeeper holds everything up to ``at``."""

    at: EpochOffset


@value
class Reconciled:
    """The writes of the reconcile are done (``held``: but for the deletes)."""

    entities: int
    held: HeldDeletes | None


@value
class Stopped:
    """The write-behind writes nothing until the next `Opened` (when ``fenced``) or `ReconcileBegun`."""

    fenced: bool
    reason: str


@value
class WakeAt:
    """Feed `TimerExpired` at that time."""

    time_ms: int


@value
class Unanswered:
    """The connection was lost ``times`` times in a row when the same multi, of so many bytes, was sent."""

    times: int
    bytes: int
    entities: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"the connection was lost {self.times} times in a row when the same write was sent: {self.bytes:,} bytes, "
            f"{', '.join(self.entities) or 'only the mark'}"
        )


@value
class SetAside:
    """``path`` of ``entity`` is not written because of its size in ``bytes``; everything else is written. ``times``:
    how often the connection was lost when it was sent; 0 when it was not sent because it is above ``limit``, the known
    jute.maxbuffer."""

    entity: str
    path: str
    bytes: int
    limit: int
    times: int

    def __str__(self) -> str:
        why = (
            f"the connection was lost {self.times} times when it was sent"
            if self.times
            else f"migrator.zookeeper.jute.maxbuffer is {self.limit:,}"
        )
        return f"ZooKeeper does not hold {self.path}, it is too large: {self.bytes:,} bytes, {why}"


@value
class TakenIn:
    """A change that was set aside is in ZooKeeper now, or no longer has to be written."""

    entity: str
    path: str


Performed = SendMulti | ReadMark | ReadAgain | Advanced | WakeAt | Unanswered | SetAside | TakenIn
"""The effects that the executor performs."""

ForDriver = Reconciled | Stopped
"""The effects that the coordinator hands to the driver; they never leave it."""

WriteEffect = Performed | ForDriver
