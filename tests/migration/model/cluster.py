"""The log and the ZooKeeper that the controllers of the model share, and the invariants of each write."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.image.model import MetadataImage
from migrator.migration.machine.guards import MarkEvidence, Standing
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.core import WriteBehind
from migrator.migration.write_behind.recent import RecentChanges
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper import leadership
from migrator.zookeeper.ops import Applied, Delete, MultiOutcome, Op
from migrator.zookeeper.znodes.controller import ControllerClaim, decode_controller, encode_controller
from migrator.zookeeper.znodes.migration import MigrationState, decode_migration
from migrator.zookeeper.znodes.paths import CLUSTER_ID, CONTROLLER, CONTROLLER_EPOCH, MIGRATION
from tests.migration.model.images import (
    Content,
    compare,
    compare_raising,
    crc_at,
    delta,
    image_of,
    lagging,
    path_of,
    recent_changes,
    stored,
)
from tests.migration.model.log import MIGRATION_ON, POST, PRE, Committed, Entry, committed
from tests.migration.model.zookeeper import ModelZooKeeper


class BrokenInvariantError(AssertionError):
    """The model found what must never happen."""


def demand(condition: bool, message: str) -> None:
    if not condition:
        raise BrokenInvariantError(message)


@dataclass(frozen=True, slots=True)
class Budget:
    """How often each fault may still happen on the way."""

    crashes: int = 0
    elections: int = 0
    lost: int = 0
    """Multis whose outcome is unknown: never applied, applied, or applied later."""
    copy_failures: int = 0
    foreign: int = 0
    """Writes of ZooKeeper brokers, until the second listing of the copy."""
    rollbacks: int = 0
    changes: int = 0
    expiries: int = 0
    """Of the broker's session with ZooKeeper."""
    repairs: int = 0
    """Orders of the operator to reconcile while dual-writing; at rest also after a foreign write."""


@dataclass(slots=True)
class ModelCluster:
    """State and invariants; `World` adds those who act."""

    zookeeper: ModelZooKeeper
    log: tuple[Entry, ...] = ()
    initial: ZkMigrationState = PRE
    untouchable: bool = False
    """No controller may write anything."""
    newest_claim: int = 0
    highest_mark: int = -1
    tampered: frozenset[str] = frozenset()
    """Foreign writes after the copy; only a full comparison finds them."""
    strict: bool = True
    """The next write is that of a reconcile: the mark moves when ZooKeeper was made equal, whoever wrote to it."""
    lags: bool = False
    """Versions matter: those of what ZooKeeper holds are too low until each was raised to `RAISED`."""

    @property
    def facts(self) -> Committed:
        return committed(self.log, self.initial)

    def image(self) -> MetadataImage:
        epoch, facts = self.log[-1].epoch if self.log else 0, self.facts
        return image_of(facts.as_content, len(self.log), epoch, finished=facts.record is POST)

    def _controller(self) -> ControllerClaim | None:
        node = self.zookeeper.get(CONTROLLER)
        return None if node is None else decode_controller(CONTROLLER, node.data)

    def _broker_election(self) -> None:
        epoch = self.zookeeper.get(CONTROLLER_EPOCH)
        self.zookeeper.set(CONTROLLER_EPOCH, b"%d" % (int((epoch and epoch.data) or b"0") + 1))
        self.zookeeper.create(CONTROLLER, encode_controller(ControllerClaim(0, 0)))

    def _foreign(self, what: str, name: str) -> None:
        exists = self.zookeeper.get(path_of(name)) is not None
        if self.facts.record is MIGRATION_ON:
            self.tampered |= {name}
        if what == "drop" and exists:
            self.zookeeper.delete(path_of(name))
        elif what == "set" and exists:
            self.zookeeper.set(path_of(name), b"9")
        elif what == "add" and not exists:
            self.zookeeper.create(path_of(name), b"9")

    def _multi(self, ops: tuple[Op, ...], epoch: int) -> MultiOutcome:
        """Every write of a controller goes through here, and is checked once it is applied."""
        before, held = self._mark(), self._controller()
        outcome = self.zookeeper.multi(ops)
        if not isinstance(outcome, Applied):
            return outcome
        release = any(isinstance(op, Delete) and op.path == CONTROLLER for op in ops) and len(ops) == 2
        demand(not self.untouchable, "something was written to a ZooKeeper that must be left alone")
        if release:
            demand(held is not None and held.is_kraft, "a broker's /controller was deleted")
            demand(held is not None and held.kraft_epoch <= epoch, "the claim of a newer leader was released")
            demand(self.facts.record is PRE, "a claim was released after the copy")
        else:
            demand(epoch >= self.newest_claim, f"epoch {epoch} wrote after the claim of epoch {self.newest_claim}")
        controller = self._controller()
        if controller is not None and controller.is_kraft:
            self.newest_claim = max(self.newest_claim, controller.kraft_epoch)
        mark = self._mark()
        demand(bool(stored(self.zookeeper)) or not self.facts.content, "the cluster in ZooKeeper was erased")
        if mark.copied:
            moved = mark.kraft_metadata_offset
            demand(moved >= self.highest_mark, f"/migration went back from {self.highest_mark} to {moved}")
            demand(self.facts.record is not PRE, "/migration says copied, the log says not")
            self.highest_mark = moved
            if moved > before.kraft_metadata_offset >= 0:
                said = committed(self.log[:moved], self.initial).as_content
                wrong = self.differing(said) - (frozenset() if self.strict else self.tampered)
                demand(not wrong, f"/migration says {moved}, but ZooKeeper does not hold that: {sorted(wrong)}")
        return outcome

    def _change(self, epoch: int) -> list[Entry]:
        """A second one takes the first back."""
        if "x" in self.facts.as_content:
            return [
                Entry(epoch, "put", "a", "2"),
                Entry(epoch, "drop", "x"),
                Entry(epoch, "put", "b", "1"),
            ]
        return [*(Entry(epoch, "put", name, "c") for name in ("a", "x")), Entry(epoch, "drop", "b")]

    def _remembered(self, beginning: int) -> RecentChanges:
        recent, before = recent_changes(), None
        for offset in range(beginning, len(self.log) + 1):
            facts = committed(self.log[:offset], self.initial)
            if facts.open_transaction:
                continue
            after = image_of(facts.as_content, offset, self.log[offset - 1].epoch if offset else 0)
            if before is not None:
                recent.add(delta(before, after))
            before = after
        return recent

    def _compared(self, image: MetadataImage, number: int) -> messages.ReconcileWrites:
        writes, behind = tuple(compare(self.zookeeper, image)), lagging(self.zookeeper, image) if self.lags else {}
        return messages.ReconcileWrites(writes, last=True, number=number, behind=behind)

    def _read_again(self, effect: messages.ReadAgain) -> messages.Repaired:
        entities, behind = effect.entities, dict[str, int]()
        if effect.sets and self.lags:
            writes = compare_raising(self.zookeeper, effect.image, entities)
        else:
            writes = compare(self.zookeeper, effect.image, entities)
            behind = lagging(self.zookeeper, effect.image) if self.lags else {}
        behind = {name: sets for name, sets in behind.items() if name in entities}
        return messages.Repaired(effect.number, entities, tuple(writes), behind)

    def _demand_raised(self, missing: int) -> None:
        """The content of the log at the reopening that is still there."""
        low = {"a", "n"} & lagging(self.zookeeper, self.image()).keys() if self.lags else set()
        demand(not missing and not low, f"versions are too low for a ZooKeeper controller: {sorted(low)}")

    def _demand_nothing_removed(self, ops: tuple[Op, ...]) -> None:
        removed = [op.path for op in ops if isinstance(op, Delete)]
        demand(not removed, f"{removed} removed before all of ZooKeeper was compared")

    def _demand_compared(self) -> None:
        """No foreign write is left."""
        said = committed(self.log[: self._mark().kraft_metadata_offset], self.initial).as_content
        wrong = self.differing(said) & self.tampered
        demand(not wrong, f"full RPCs before the comparison: {sorted(wrong)}")
        self.tampered = frozenset()

    def _demand_may_leave(self, core: WriteBehind, now: int) -> None:
        """The gates of rollback and finish open only if ZooKeeper holds everything."""
        if not core.compared or core.lag(now).records:
            return
        wrong = self.differing(committed(self.log[: core.reached.offset], self.initial).as_content)
        demand(not wrong, f"the way back and the finish are open, but ZooKeeper does not hold {sorted(wrong)}")

    def _demand_may_say(self, kind: str) -> None:
        """That the migration is reopened, or that brokers in ZooKeeper mode are admitted: what is committed meanwhile
        is on its way, what was there before is in ZooKeeper."""
        if kind == "reopen":
            demand(self.facts.record is POST, "reopened what was not finished")
            return
        reached = self._mark().kraft_metadata_offset
        demand(reached >= self.facts.reopened_at > 0, "brokers admitted before the reconcile")
        wrong = self.differing(committed(self.log[:reached], self.initial).as_content)
        demand(not wrong, f"brokers admitted, but ZooKeeper does not hold {sorted(wrong)}")

    def differing(self, said: Content) -> frozenset[str]:
        """The differences in ZooKeeper."""
        held = stored(self.zookeeper)
        return frozenset(name for name in held.keys() | said.keys() if held.get(name) != said.get(name))

    def _mark(self) -> MigrationState:
        node = self.zookeeper.get(MIGRATION)
        found = decode_migration(MIGRATION, node.data) if node is not None else None
        return found or MigrationState(-1, -1, -1, -1)

    def _standing(self) -> Standing:
        view = leadership.read_view(self.zookeeper.read)
        mark = view.migration
        offset = mark.kraft_metadata_offset if mark is not None else -1
        held = 0 < offset <= len(self.log)
        evidence = MarkEvidence()
        if held:  # a mark without a checksum is that of a stock leader of this quorum
            stock_wrote = mark is not None and mark.batch_crc is None
            evidence = MarkEvidence(self.log[offset - 1].epoch, crc_at(offset), stock_wrote=stock_wrote)
        found = self.zookeeper.get(CLUSTER_ID)
        return Standing((found.data or b"").decode() if found else None, view, evidence)

    def _listing(self) -> tuple[tuple[str, str, int], ...]:
        found = []
        for name, text in stored(self.zookeeper).items():
            node = self.zookeeper.get(path_of(name))
            found.append((name, text, node.stat.mzxid if node is not None else 0))
        return tuple(sorted(found))

    def _read_mark(self, number: int) -> messages.MarkRead:
        epoch, mark = self.zookeeper.get(CONTROLLER_EPOCH), self.zookeeper.get(MIGRATION)
        return messages.MarkRead(
            number,
            epoch.stat.version if epoch is not None else None,
            decode_migration(MIGRATION, mark.data) if mark is not None else None,
            mark.stat.version if mark is not None else None,
        )
