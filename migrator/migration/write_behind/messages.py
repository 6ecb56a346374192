"""What the write-behind is told and what it asks for. Answers carry the number of the effect that asked."""

from __future__ import annotations

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
    """Entities that ZooKeeper holds and the image does not, more than ``bound``. ``digest``: of the names of all."""

    count: int
    bound: int
    examples: tuple[str, ...]
    digest: str = ""


@value
class ReconcileBegun:
    """A worker compares ZooKeeper with this image, the newest published; its writes follow as `ReconcileWrites`
    with the same number; those of an earlier comparison are dropped."""

    image: MetadataImage
    number: int = 0


@value
class Resumed:
    """The mark is what a leader of this quorum wrote last, so ZooKeeper holds the image but for ``entities``, which
    have changed since. They are read again and written, and then every change, while a worker compares all of ZooKeeper
    with the image: what it finds follows as `ReconcileWrites` with the same number."""

    image: MetadataImage
    number: int
    entities: tuple[str, ...]


@value
class ReconcileWrites:
    """``last``: nothing follows. ``held``: deletes were left out, so ZooKeeper does not equal the image."""

    writes: tuple[EntityWrite, ...]
    last: bool = False
    held: HeldDeletes | None = None
    number: int = 0


@value
class MultiEnded:
    """``number`` is that of the effect that asked, here and below; another one's answer is dropped."""

    number: int
    outcome: MultiOutcome


@value
class Refused:
    """ZooKeeper refuses the multi for a reason that no repair can mend."""

    number: int
    reason: str


@value
class MarkRead:
    """What `ReadMark` found; ``mark_version`` None: no such znode, ``mark`` None: absent or null."""

    number: int
    epoch_version: int | None
    mark: MigrationState | None
    mark_version: int | None


@value
class Repaired:
    """What is left to write for entities after they were read again; nothing at all if they are as they should be."""

    number: int
    entities: tuple[str, ...]
    writes: tuple[EntityWrite, ...]


@value
class TimerExpired:
    """The time that `WakeAt` asked for has come."""


@value
class Closed:
    """The claim is not ours any more, or the leadership."""


WriteEvent = (
    Opened
    | Published
    | ReconcileBegun
    | Resumed
    | ReconcileWrites
    | MultiEnded
    | Refused
    | MarkRead
    | Repaired
    | TimerExpired
    | Closed
)


# Effects


@value
class SendMulti:
    """`MultiEnded`."""

    number: int
    ops: tuple[Op, ...]


@value
class ReadMark:
    """Sync, then read /controller_epoch and /migration, as soon as ZooKeeper answers: `MarkRead`."""

    number: int


@value
class ReadAgain:
    """Compare these entities with this image: `Repaired`."""

    number: int
    entities: tuple[str, ...]
    image: MetadataImage


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
    """Nothing is written any more until the next `Opened` (``fenced``) or `ReconcileBegun`."""

    fenced: bool
    reason: str


@value
class WakeAt:
    """`TimerExpired` at that time."""

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
    """``path`` of ``entity`` is not written, because of its size in ``bytes``; everything else is. ``times``: how often
    the connection was lost when it was sent; 0: it is above ``limit``, the jute.maxbuffer that we know of."""

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
    """ZooKeeper holds what was set aside, or it is not wanted any more."""

    entity: str
    path: str


Performed = SendMulti | ReadMark | ReadAgain | Advanced | WakeAt | Unanswered | SetAside | TakenIn
"""What the executor performs."""

ForDriver = Reconciled | Stopped
"""What the write-behind says to the driver; it never leaves the coordinator."""

WriteEffect = Performed | ForDriver
