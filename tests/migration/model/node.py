"""One controller of the model: the real `Coordinator`, and what waits to be done and to be heard."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

from migrator.image.model import Changes, MetadataImage
from migrator.migration.coordinator import Coordinator
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import Identity
from migrator.migration.translate.entity import EntityWrite
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.multis import EntityBatch, Limits
from migrator.zookeeper import leadership
from tests.migration.model.images import crc_at, derive, recent_changes
from tests.migration.support.builders import CLUSTER_ID

LIMITS = Limits(max_ops=4)


@dataclass(frozen=True, slots=True)
class CopyStage:
    """The copy worker, one reading after the other."""

    ticket: ev.Ticket
    seen: tuple[tuple[str, str, int], ...] | None = None
    sent: int = 0
    relisted: bool = False


@dataclass(frozen=True, slots=True)
class CompareStage:
    """The reconcile worker, before it reads."""

    ticket: ev.Ticket
    image: MetadataImage


Job = ef.Effect | messages.WriteEffect | CopyStage | CompareStage


@dataclass(slots=True)
class Node:
    """Forks share a coordinator, until one of them lets it act."""

    node_id: int
    coordinator: Coordinator
    epoch: int = -1
    jobs: tuple[Job, ...] = ()
    inbox: tuple[messages.Published, ...] = ()
    """Images that are committed; when they are heard of has no order with anything else."""
    timer: ev.Ticket | None = None
    tick: bool = False
    decoded: bool = False
    held_to_the_end: bool = False
    """Whether the claim still stood when the copy read its last."""
    unaware: bool = False
    """It was deposed and has not heard of it."""
    shared: bool = False
    coordinator_key: int | None = None
    """As long as the coordinator does not act."""

    def fork(self) -> Node:
        self.shared = True
        return copy.copy(self)

    def acting(self) -> Coordinator:
        """The node's own coordinator, which the caller may change."""
        if self.shared:
            self.coordinator, self.shared = _fork_coordinator(self.coordinator), False
        self.coordinator_key = None
        return self.coordinator

    @property
    def state(self) -> State:
        return self.coordinator.state

    def plan(self, job: ef.TakeClaim) -> leadership.ClaimPlan | leadership.Claim | leadership.Superseded:
        return leadership.plan_claim(
            job.view,
            controller_id=self.node_id,
            kraft_epoch=self.epoch,
            now_ms=0,
            heal_to=job.heal_to,
            crc_at=crc_at,
        )

    def key(self) -> object:
        """Everything that decides what comes next. Times are left out, and of numbers only whether they are current:
        otherwise two worlds that differ in how often something was tried would never be the same."""
        if self.coordinator_key is None:
            self.coordinator_key = hash(self._key_of_coordinator())
        return (
            self.epoch,
            self.tick,
            self.decoded,
            self.unaware,
            self.timer == self.coordinator._driver._memory.ticket,
            tuple(self._normal(item) for item in (*self.jobs, None, *self.inbox)),
            self.coordinator_key,
        )

    def _key_of_coordinator(self) -> object:
        memory, core = self.coordinator._driver._memory, self.coordinator._write_behind
        term = memory.term
        return (
            (memory.state, memory.before, memory.outstanding, term.failures > 0, term.failures > 1),
            (
                term.record,
                term.base,
                term.claim,
                term.decoded,
                term.had_faults,
                term.deletes_allowed,
                term.ready_ms is None,
                term.has_claimed,
                term.reopened,
            ),
            None if term.standing is None else term.standing.view,
            tuple((key, seen.born, seen.read_ms < memory.now_ms) for key, seen in term.sightings.items()),
            (core._claim, core._mark, core._mark_version, core._written.provenance, core._newest.provenance),
            (core._backlog.key, core._in_sync, core._flight, core._awaited is None, core._stopped),
            min(core._losses.times, 2),
            _batch_key(core._batch),
            _batch_key(core._checkpoint),
            (tuple(core._versions._waiting.items()), core._versions._under_way, core._raised),
            core._comparison and (tuple(sorted(core._comparison.doubts)), core._comparison.ended),
            self.coordinator._recent._known_from,
        )

    def _normal(self, item: object) -> object:
        ticket, number = getattr(item, "ticket", None), getattr(item, "number", None)
        if ticket is None and number is None:
            return item
        current = (
            ticket == self.coordinator._driver._memory.ticket
            if ticket is not None
            else (number == self.coordinator._write_behind._awaited)
        )
        rest = tuple(
            getattr(item, name) for name in getattr(type(item), "__slots__", ()) if name not in {"ticket", "number"}
        )
        return type(item), current, rest


def _batch_key(batch: EntityBatch | None) -> object:
    if batch is None:
        return None
    return (
        batch.target,
        tuple(batch.queue),
        batch.unread,
        batch.complete,
        batch.reconcile,
        batch.raises,
        tuple(sorted(batch.repairs.items())),
    )


def _fork_coordinator(original: Coordinator) -> Coordinator:
    forked = copy.copy(original)
    forked._driver = copy.copy(original._driver)
    forked._driver._memory = copy.copy(original._driver._memory)
    forked._driver._memory.term = copy.copy(original._driver._memory.term)
    core = forked._write_behind = copy.copy(original._write_behind)
    core._changes = list(core._changes)
    core._backlog = copy.copy(core._backlog)
    core._backlog.clock = copy.copy(core._backlog.clock)
    core._losses = copy.copy(core._losses)
    core._versions = copy.copy(core._versions)
    core._versions._waiting = core._versions._waiting.copy()
    if core._comparison is not None:
        core._comparison = replace(core._comparison, doubts=set(core._comparison.doubts))
    forked._recent = copy.copy(original._recent)
    batches: dict[int, EntityBatch | None] = {id(None): None}
    for batch in (core._batch, core._checkpoint, core._flight_batch):
        if batch is not None and id(batch) not in batches:
            batches[id(batch)] = replace(
                batch, queue=copy.copy(batch.queue), repairs=dict(batch.repairs), source=copy.copy(batch.source)
            )
    core._batch, core._checkpoint = batches[id(core._batch)], batches[id(core._checkpoint)]
    core._flight_batch = batches[id(core._flight_batch)]
    return forked


def derive_now(before: MetadataImage, after: MetadataImage, changes: Changes) -> Iterator[EntityWrite]:
    """A list's iterator can be copied, a generator cannot."""
    return iter(list(derive(before, after, changes)))


def new_node(node_id: int) -> Node:
    """A node that has just been started."""
    identity = Identity(node_id, CLUSTER_ID)
    return Node(node_id, Coordinator(identity, derive_now, crc_at, LIMITS, recent_changes()))
