"""A write-behind, a model ZooKeeper, and the thin executor between them, for the tests of the core."""

from __future__ import annotations

from collections.abc import Callable

from migrator.migration.write_behind import messages
from migrator.migration.write_behind.core import LIMITS, WriteBehind
from migrator.migration.write_behind.multis import Limits
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.leadership import Claim, ClaimPlan, conclude_claim, plan_claim, read_view
from migrator.zookeeper.ops import Failed, MultiOutcome, Op, Unknown, ZkError
from migrator.zookeeper.znodes.migration import INITIAL_STATE, MigrationState, decode_migration
from migrator.zookeeper.znodes.paths import CONTROLLER_EPOCH, MIGRATION
from tests.migration.model.images import compare, content_of, crc_at, delta, derive, image_of, path_of, stored
from tests.migration.model.zookeeper import ModelZooKeeper

Fault = Callable[["Rig", tuple[Op, ...]], MultiOutcome | None]
EPOCH = 5
HELD = messages.HeldDeletes(1, 0, ("a",))


def claim_of(zookeeper: ModelZooKeeper, epoch: int) -> Claim:
    plan = plan_claim(read_view(zookeeper.read), controller_id=3001, kraft_epoch=epoch, now_ms=0)
    assert isinstance(plan, ClaimPlan)
    claim = conclude_claim(plan, zookeeper.multi(plan.ops))
    assert isinstance(claim, Claim)
    return claim


def no_fault(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome | None:
    return None


def always_missing(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome | None:
    return Failed(2, ZkError.NO_NODE)


class Rig:
    """A write-behind, a model ZooKeeper, and the thin executor between them. ``fault`` may decide a multi's outcome."""

    def __init__(self, content: dict[str, str], limits: Limits = LIMITS) -> None:
        self.zookeeper = ModelZooKeeper()
        self.zookeeper.load(
            {CONTROLLER_EPOCH: b"3", **{path_of(name): text.encode() for name, text in content.items()}}
        )
        if not content:
            self.zookeeper.load({"/config/topics": None})
        self.image = image_of(content, 100, EPOCH)
        self.core = WriteBehind(self.image, derive, crc_at, limits)
        self.fault: Fault = no_fault
        self.effects: list[messages.WriteEffect] = []
        self.multis: list[tuple[Op, ...]] = []
        self.now = 0
        self.claim = claim_of(self.zookeeper, EPOCH)

    def open(self) -> Rig:
        """Claimed, at the image's offset, reconciled."""
        self(messages.Opened(self.claim, EpochOffset(EPOCH, 100)))
        self(messages.ReconcileBegun(self.image))
        return self(messages.ReconcileWrites(tuple(compare(self.zookeeper, self.image)), last=True))

    def publish(self, content: dict[str, str], *, by: int = 1) -> Rig:
        before = self.image
        self.image = image_of(content, before.provenance.offset + by, EPOCH)
        return self(messages.Published(delta(before, self.image, by)))

    def __call__(self, event: messages.WriteEvent) -> Rig:
        events = [event]
        while events:
            for effect in self.core.step(events.pop(0), self.now):
                self.effects.append(effect)
                answer = self.perform(effect)
                if answer is not None:
                    events.append(answer)
        return self

    def perform(self, effect: messages.WriteEffect) -> messages.WriteEvent | None:
        match effect:
            case messages.SendMulti(number, ops):
                self.multis.append(ops)
                return messages.MultiEnded(number, self.fault(self, ops) or self.zookeeper.multi(ops))
            case messages.ReadMark(number):
                epoch, mark = self.zookeeper.get(CONTROLLER_EPOCH), self.zookeeper.get(MIGRATION)
                return messages.MarkRead(
                    number,
                    epoch.stat.version if epoch else None,
                    decode_migration(MIGRATION, mark.data) if mark else None,
                    mark.stat.version if mark else None,
                )
            case messages.ReadAgain(number, entities, image):
                return messages.Repaired(number, entities, tuple(compare(self.zookeeper, image, entities)))
        return None

    @property
    def mark(self) -> MigrationState:
        found = self.zookeeper.get(MIGRATION)
        assert found is not None
        return decode_migration(MIGRATION, found.data) or INITIAL_STATE

    @property
    def lag(self) -> int | None:
        return self.core.lag(self.now).records

    def wait(self) -> Rig:
        """Until nothing is under way any more: each time that was asked for comes."""
        while self.core.sending:
            self.now += 60_000
            self(messages.TimerExpired())
        return self

    def stops(self) -> list[messages.Stopped]:
        return [effect for effect in self.effects if isinstance(effect, messages.Stopped)]

    def equal(self) -> bool:
        return stored(self.zookeeper) == content_of(self.image) and self.mark.kraft_metadata_offset == self.offset

    @property
    def offset(self) -> int:
        return self.image.provenance.offset


def once(fault: Fault) -> Fault:
    """That fault for the first multi only."""
    spent: list[bool] = []

    def first(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome | None:
        if spent:
            return None
        spent.append(True)
        return fault(rig, ops)

    return first


def lost_after(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome:
    rig.zookeeper.multi(ops)
    return Unknown("ConnectionLoss")


def lost_before(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome:
    return Unknown("ConnectionLoss")
