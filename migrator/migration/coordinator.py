"""The driver and the write-behind as one pure machine: each gets the other's messages.

The node feeds it every event of either kind and performs the effects that come out; the model check does the same
against a model ZooKeeper. Messages between the two never leave this file.
"""

from __future__ import annotations

from collections.abc import Sequence

from migrator.image.model import EMPTY_IMAGE, ImageDelta, MetadataImage
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.driver import MigrationDriver
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import DriverStatus, Identity
from migrator.migration.translate.touched import touched, touched_at_most
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.comparison import are_too_many
from migrator.migration.write_behind.core import LIMITS, WriteBehind
from migrator.migration.write_behind.lag import Backlog
from migrator.migration.write_behind.multis import Derive, Limits
from migrator.migration.write_behind.recent import RecentChanges
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.leadership import CrcAt
from migrator.zookeeper.ops import Applied

AnyEvent = ev.Event | messages.WriteEvent
AnyEffect = ef.Performed | messages.Performed
"""The effects that the caller has to perform."""
Said = ef.Effect | messages.WriteEffect
"""The effects of either half, those for the other half included."""


def remembered(delta: ImageDelta) -> frozenset[str] | None:
    """The entities that a change touches; None without a migration, which has nothing to write of them. A controller
    spends 4 % of the time of a record on them."""
    return touched(delta) if delta.after.features.zk_migration_state.is_under_way else None


class Coordinator:
    """Joins the driver and the write-behind, one per process. Not thread-safe: the node's event loop owns it."""

    def __init__(
        self,
        identity: Identity,
        derive: Derive,
        crc_at: CrcAt,
        limits: Limits = LIMITS,
        recent: RecentChanges | None = None,
    ) -> None:
        self._driver = MigrationDriver(identity)
        self._recent = recent or RecentChanges(remembered, touched_at_most)
        self._derive = derive
        self._crc_at = crc_at
        self._limits = limits
        self._image = EMPTY_IMAGE
        self._write_behind = WriteBehind(EMPTY_IMAGE, derive, crc_at, limits)
        self._epoch = -1
        self._reconcile = ev.Ticket(-1, -1)
        self._needed = EpochOffset(-1, -1)
        """The offset up to which ZooKeeper holds the log; an older image must not be reconciled into it."""
        self._deferred: ef.Reconcile | ef.Resume | None = None

    @property
    def state(self) -> State:
        """The driver's internal state."""
        return self._driver.state

    @property
    def write_behind(self) -> WriteBehind:
        """The write-behind, for its figures: lag, offset reached, whether it is drained."""
        return self._write_behind

    def status(self, now_ms: int) -> DriverStatus:
        """The driver's state, age and sentence."""
        return self._driver.status(now_ms)

    def lead(
        self, event: ev.BecameLeader, image: MetadataImage, now_ms: int, last_effect: int | None = None
    ) -> list[AnyEffect]:
        """This node leads, and ``image`` is the newest committed one.

        :param last_effect: no record after this offset has an effect in ZooKeeper; None when that is unknown.
        """
        backlog = Backlog(image.provenance.offset if last_effect is None else last_effect, now_ms)
        effects = self._driver.step(ev.LostLeadership(self._epoch), now_ms)
        self._epoch, self._image, self._deferred = event.epoch, image, None
        self._write_behind = WriteBehind(image, self._derive, self._crc_at, self._limits, backlog)
        return self._route([*effects, *self._driver.step(event, now_ms)], now_ms)

    def follow(self, delta: ImageDelta) -> None:
        """Take a committed image while another node leads."""
        self._recent.add(delta)

    def step(self, event: AnyEvent, now_ms: int) -> list[AnyEffect]:
        """Take one event; return the effects to perform, in order."""
        if isinstance(event, messages.Published):
            return self._published(event, now_ms)
        if isinstance(event, messages.WriteEvent):
            routed = self._route(self._write_behind.step(event, now_ms), now_ms)
            return [*routed, *self._route(self._alive(event, now_ms), now_ms)]
        compares = self.state in {State.RECONCILING, State.COMPARING}
        if isinstance(event, ev.WorkProgressed) and event.ticket == self._reconcile and compares:
            self._write_behind.progressed(now_ms)
        return self._route(self._driver.step(event, now_ms), now_ms)

    def _published(self, event: messages.Published, now_ms: int) -> list[AnyEffect]:
        self._recent.add(event.delta)
        self._image = event.delta.after
        changes = event.delta.changes
        published = ev.ImagePublished(self._epoch, cluster_changed=bool(changes.brokers or changes.controllers))
        effects: list[Said] = [*self._write_behind.step(event, now_ms), *self._driver.step(published, now_ms)]
        if self._deferred is not None and self._fit_to_reconcile():
            effects.append(self._deferred)
        return self._route(effects, now_ms)

    def _fit_to_reconcile(self) -> bool:
        """Whether the image is as new as the content of ZooKeeper. An empty or early image would erase ZooKeeper
        (KAFKA-15389), and a commit may be known before its image is published."""
        copied = self._image.features.zk_migration_state is ZkMigrationState.MIGRATION
        return copied and self._image.provenance.offset >= self._needed.offset

    def _alive(self, event: messages.WriteEvent, now_ms: int) -> list[ef.Effect]:
        """Report a reconcile that writes as alive. In a comparison beside the writes, only the worker's progress
        counts."""
        writes = self.state is State.RECONCILING or (self.state is State.COMPARING and not self._write_behind.compares)
        if isinstance(event, messages.MultiEnded | messages.ReconcileWrites) and writes:
            if isinstance(event, messages.ReconcileWrites) or isinstance(event.outcome, Applied):
                self._write_behind.progressed(now_ms)
            return self._driver.step(ev.WorkProgressed(self._reconcile, self._write_behind.writing), now_ms)
        return []

    def _route(self, effects: Sequence[Said], now_ms: int) -> list[AnyEffect]:
        """Give each half the effects that are for it, in order, and return the others."""
        passed: list[AnyEffect] = []
        for effect in effects:
            passed += self._route_one(effect, now_ms)
        return passed

    def _route_one(self, effect: Said, now_ms: int) -> list[AnyEffect]:
        match effect:
            case ef.OpenWriteBehind(claim, at):
                self._needed = at
                return self._route(self._write_behind.step(messages.Opened(claim, at), now_ms), now_ms)
            case ef.StopDualWrite():
                self._deferred = None
                return [effect, *self._route(self._write_behind.step(messages.Closed(), now_ms), now_ms)]
            case ef.Reconcile(ticket, deletes_allowed):
                self._reconcile = ticket
                self._deferred = None if self._fit_to_reconcile() else effect
                if self._deferred is not None:
                    return []
                begun = self._write_behind.step(messages.ReconcileBegun(self._image, ticket.number), now_ms)
                return [*self._route(begun, now_ms), ef.CompareAll(ticket, self._image, deletes_allowed)]
            case ef.Resume(ticket):
                self._reconcile = ticket
                self._deferred = None if self._fit_to_reconcile() else effect
                return [] if self._deferred is not None else self._resume(ticket, now_ms)
            case messages.Reconciled():
                return self._route(self._driver.step(self._reconciled(effect), now_ms), now_ms)
            case messages.Stopped(fenced, reason):
                return self._route(self._stopped(fenced=fenced, reason=reason, now_ms=now_ms), now_ms)
            case performed:
                return [performed]

    def _resume(self, ticket: ev.Ticket, now_ms: int) -> list[AnyEffect]:
        """Resume with the entities that have changed since the mark, or reconcile everything if these are unknown."""
        entities = self._recent.since(self._needed.offset)
        if entities is None or are_too_many(self._image, entities):
            since = f"since offset {self._needed.offset} of the log"
            unknown = f"{since}, more has changed than this controller remembers, or can read again beside the writes"
            return self._route(self._stopped(fenced=False, reason=unknown, now_ms=now_ms), now_ms)
        resumed = messages.Resumed(self._image, ticket.number, entities)
        begun = self._route(self._write_behind.step(resumed, now_ms), now_ms)
        return [ef.CompareAll(ticket, self._image, ""), *begun]

    def _reconciled(self, effect: messages.Reconciled) -> ev.ReconcileDone | ev.ReconcileHeld:
        held = effect.held
        if held is None:
            return ev.ReconcileDone(self._reconcile, effect.entities)
        return ev.ReconcileHeld(self._reconcile, held.count, held.bound, held.examples, held.digest)

    def _stopped(self, *, fenced: bool, reason: str, now_ms: int) -> list[ef.Effect]:
        if self.state is State.RECONCILING and not fenced:
            return self._driver.step(ev.ReconcileFailed(self._reconcile, reason), now_ms)
        return self._driver.step(ev.WriteBehindFailed(self._epoch, fenced=fenced, reason=reason), now_ms)
