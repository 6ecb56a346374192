"""A whole cluster small enough to try everything: two controllers, one log, one ZooKeeper, its brokers, its operator.

Each controller runs the real `Coordinator`; what the effects do is played by the model ZooKeeper and by a log in which
an append of the current leader is committed at once and one of a deposed leader never. A *step* of a node performs one
effect or takes in one event; between any two steps anything else may happen: a crash, an election that the old leader
hears of late, a write that gets lost or late, a broker or an operator who writes to ZooKeeper. `successors` lists all
that can come next, and each write is checked against the invariants as it is applied.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from immutables import Map

from migrator.migration.coordinator import AnyEffect
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.finish import FinishInputs
from migrator.migration.machine.readiness import ControllerSignals, Gap, Surroundings, ZooKeeperBrokers
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import STALL_MS
from migrator.migration.write_behind import messages
from migrator.observe.status import Force
from migrator.raft.messages import EpochOffset
from migrator.zookeeper import leadership
from migrator.zookeeper.ops import Check, Delete, MultiOutcome, Op, Unknown
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from migrator.zookeeper.znodes.paths import CLUSTER_ID, CONTROLLER, CONTROLLER_EPOCH
from tests.migration.model.cluster import Budget, ModelCluster, demand
from tests.migration.model.images import Content, content_of, delta, path_of, stored
from tests.migration.model.log import MIGRATION_ON, PRE, Entry
from tests.migration.model.node import CompareStage, CopyStage, Job, Node, new_node
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.builders import CLUSTER_ID as OURS
from tests.migration.support.builders import broker, cluster, controller

NODES = (3001, 3002)
INELIGIBLE = frozenset({State.WAITING_FOR_CONTROLLERS, State.WAITING_FOR_BROKERS, State.DECODING, State.PAUSED})
SETTLED = frozenset({State.DUAL_WRITING, State.REFUSED, State.FINISHED, State.HOLDING, State.INACTIVE})
_CLUSTER = cluster([broker(0)], [controller(node) for node in NODES])
_BROKERS = ZooKeeperBrokers(Map({0: frozenset({"PLAINTEXT"})}), frozenset({0}))
_READY = ControllerSignals(Map(dict.fromkeys(NODES, True)))
_FAULT = Gap("/config/topics/a", "not JSON", "Mend it.")


@dataclass(slots=True)
class World(ModelCluster):
    nodes: dict[int, Node] = field(default_factory=dict)
    epoch: int = 0
    leader: int = 0
    budget: Budget = field(default_factory=Budget)
    enabled: tuple[bool, ...] = (True, True)
    """The migration flag of each node."""
    zk_brokers: tuple[int, ...] = (0,)
    born: int = 1
    """The czxid of the znode of broker 0."""
    broken_znode: bool = False
    remembers_from: int = 0
    """A new leader has followed the records behind this offset, and loaded those before it."""
    late: tuple[Op, ...] | None = None
    late_epoch: int = -1
    now: int = 0
    trail: tuple[str, ...] = ()

    # Set-up

    @staticmethod
    def fresh(budget: Budget, *, content: Content | None = None) -> World:
        """A ZooKeeper cluster that was never migrated, and a new quorum."""
        zookeeper = ModelZooKeeper()
        zookeeper.load({CLUSTER_ID: OURS.encode(), CONTROLLER_EPOCH: b"3", "/config/topics": None})
        zookeeper.load({path_of(name): text.encode() for name, text in (content or {"a": "1", "b": "1"}).items()})
        zookeeper.create(CONTROLLER, encode_controller(ControllerClaim(0, 0)))
        nodes = {node: new_node(node) for node in NODES}
        return World(zookeeper, nodes=nodes, budget=budget)

    def start(self) -> World:
        self.elect(NODES[0])
        return self

    def fork(self, label: str) -> World:
        forked = copy.copy(self)
        forked.zookeeper = self.zookeeper.fork()
        forked.nodes = {node_id: node.fork() for node_id, node in self.nodes.items()}
        forked.trail = (*self.trail, label)
        return forked

    def key(self) -> int:
        nodes = self.zookeeper.dump()
        versions = self.zookeeper.dump_versions()
        return hash(
            (
                tuple(nodes.items()),
                tuple(sorted(versions.items())),
                self.log,
                self.epoch,
                self.leader,
                self.budget,
                self.born,
                self.late,
                self.newest_claim,
                self.tampered,
                self.highest_mark,
                tuple(node.key() for node in self.nodes.values()),
            )
        )

    # The log

    def append(self, node: Node, *entries: Entry) -> bool:
        """Whether it is committed: a deposed leader's never is."""
        if node.epoch != self.epoch:
            return False
        before = self.image()
        self.log = (*self.log, *entries)
        after = self.image()
        if not self.facts.open_transaction:
            node.inbox = (*node.inbox, messages.Published(delta(before, after, len(entries))))
        return True

    def elect(self, node_id: int, *, crashed: bool = False) -> None:
        """A new leader; the old one, if it lives, does not hear of it yet."""
        self.epoch += 1
        old = self.nodes.get(self.leader)
        if old is not None and old.epoch >= 0:
            if crashed or self.leader == node_id:
                self._restart(self.leader)
            else:
                old.unaware = True
        self.leader = node_id
        node = self.nodes[node_id]
        if node.unaware:
            self._deliver(node, ev.LostLeadership(node.epoch))
            node.unaware = False
        node.epoch, node.inbox, node.timer, node.decoded = self.epoch, (), None, False
        if self.facts.open_transaction:
            self.log = (*self.log, Entry(self.epoch, "abort"))
        facts = self.facts
        on, reopened = self.enabled[NODES.index(node_id)], facts.reopened_at > 0
        became = ev.BecameLeader(self.epoch, facts.record, on, facts.completed_at, reopened=reopened)
        node.jobs = ()
        node.acting()._recent = self._remembered(self.remembers_from)
        self._queue(node, node.acting().lead(became, self.image(), self.now))

    def _restart(self, node_id: int) -> None:
        self.nodes[node_id] = new_node(node_id)

    # What can come next

    def successors(self) -> Iterator[World]:
        for node_id in NODES:
            yield from self._node_steps(node_id)
        yield from self._faults()
        yield from self._surroundings()

    def settled(self) -> bool:
        """Nothing moves any more but by a fault or an operator."""
        leader = self.nodes[self.leader]
        rests = leader.coordinator.write_behind.sending and leader.tick
        return (
            leader.state in SETTLED and not rests and not any(node.jobs or node.inbox for node in self.nodes.values())
        )

    def _node_steps(self, node_id: int) -> Iterator[World]:
        node = self.nodes[node_id]
        if node.inbox:
            world = self.fork(f"{node_id} hears of offset {node.inbox[0].delta.after.provenance.offset}")
            own = world.nodes[node_id]
            event, own.inbox = own.inbox[0], own.inbox[1:]
            world._deliver(own, event)
            yield world
        if node.jobs:
            yield from self._perform(node_id)
            behind = next((at for at, job in enumerate(node.jobs) if not isinstance(job, CompareStage)), 0)
            if behind and node.state is State.COMPARING:
                yield from self._perform(node_id, behind)
        elif node.timer is not None and node.state not in SETTLED and not node.inbox:
            yield self._fire(node_id)
        elif node.tick:
            world = self.fork(f"{node_id} ticks")
            world.now += 1_000
            world.nodes[node_id].tick = False
            world._deliver(world.nodes[node_id], messages.TimerExpired())
            yield world
        if node.unaware:
            world = self.fork(f"{node_id} learns that it was deposed")
            own = world.nodes[node_id]
            own.unaware, own.jobs, own.inbox = False, (), ()
            world._deliver(own, ev.LostLeadership(own.epoch))
            yield world

    def _fire(self, node_id: int) -> World:
        world = self.fork(f"{node_id} timer")
        node = world.nodes[node_id]
        memory = node.coordinator._driver._memory
        world.now = max(world.now, memory.progress_ms + STALL_MS if memory.outstanding else memory.due_ms)
        ticket, node.timer = node.timer, None
        if ticket is not None:
            world._deliver(node, ev.Timer(ticket))
        return world

    def _faults(self) -> Iterator[World]:
        budget, leader = self.budget, self.nodes[self.leader]
        busy = bool(leader.jobs or leader.inbox)
        other = NODES[1] if self.leader == NODES[0] else NODES[0]
        if budget.crashes and busy:
            for successor in NODES:
                world = self.fork(f"{self.leader} crashes, {successor} leads")
                world.budget = replace(budget, crashes=budget.crashes - 1)
                world.elect(successor, crashed=True)
                yield world
        if budget.elections and busy:
            world = self.fork(f"{other} leads, {self.leader} does not know")
            world.budget = replace(budget, elections=budget.elections - 1)
            world.elect(other)
            yield world

    def _surroundings(self) -> Iterator[World]:
        controller = self._controller()
        if controller is None:
            world = self.fork("broker 0 is elected")
            world._broker_election()
            yield world
        if self.late is not None:
            world = self.fork("a late multi arrives")
            ops, epoch = world.late, world.late_epoch
            world.late, world.strict = None, False
            if ops is not None:
                world._multi(ops, epoch)
            yield world
        if self.budget.foreign and self._open_to_foreign():
            for op in (("set", "a"), ("drop", "b"), ("add", "c")):
                world = self.fork(f"a broker writes: {op}")
                world.budget = replace(self.budget, foreign=self.budget.foreign - 1)
                world._foreign(*op)
                yield world
        if self.budget.rollbacks and controller is not None and controller.is_kraft:
            world = self.fork("the operator deletes /controller")
            world.budget = replace(self.budget, rollbacks=self.budget.rollbacks - 1)
            world.zookeeper.delete(CONTROLLER)
            yield world
        if self.budget.expiries:
            world = self.fork("the ZooKeeper session of broker 0 expires")
            world.budget = replace(self.budget, expiries=self.budget.expiries - 1)
            world.born += 1
            yield world
        leader = self.nodes[self.leader]
        if self.budget.repairs and leader.state is State.DUAL_WRITING:
            yield from self._orders(leader)
        if self.budget.changes and self.facts.record is MIGRATION_ON:
            world = self.fork("a change is committed")
            world.budget = replace(self.budget, changes=self.budget.changes - 1)
            world.append(world.nodes[leader.node_id], *self._change(self.epoch))
            yield world

    def _orders(self, leader: Node) -> Iterator[World]:
        """The operator orders a reconcile; at rest also because somebody wrote to ZooKeeper."""
        at_rest = self.settled() and leader.coordinator.write_behind.drained
        for op in (None, *((("set", "a"), ("drop", "a"), ("add", "c")) if at_rest else ())):
            world = self.fork(f"the operator orders a reconcile after {op}")
            world.budget = replace(self.budget, repairs=self.budget.repairs - 1)
            if op is not None:
                world._foreign(*op)
            world._deliver(world.nodes[leader.node_id], ev.OperatorForce(Force.RECONCILE))
            yield world

    def _open_to_foreign(self) -> bool:
        """Until the second listing; what comes later is what the audit reports."""
        stages = [job for job in self.nodes[self.leader].jobs if isinstance(job, CopyStage)]
        return self.facts.record is PRE and bool(stages) and not stages[0].relisted

    # One effect of one node

    def _perform(self, node_id: int, at: int = 0) -> Iterator[World]:
        """The first, or one behind the reading of a worker, which takes its time."""
        job = self.nodes[node_id].jobs[at]
        label = f"{node_id}.{self.nodes[node_id].epoch} {type(job).__name__}"
        ops = self._ops_of(self.nodes[node_id], job)
        branches = ["sent"]
        if ops is not None and self.budget.lost:
            branches += ["lost before", "lost after", *(["lost, late"] if self.late is None else [])]
        if isinstance(job, CopyStage) and self.budget.copy_failures:
            branches.append("failed")
        for branch in branches:
            world = self.fork(label if branch == "sent" else f"{label} {branch}")
            node = world.nodes[node_id]
            node.jobs = (*node.jobs[:at], *node.jobs[at + 1 :])
            if branch == "failed":
                assert isinstance(job, CopyStage)
                world.budget = replace(self.budget, copy_failures=self.budget.copy_failures - 1)
                world._deliver(node, ev.CopyFailed(job.ticket, "killed"))
            elif ops is not None:
                world._write(node, job, ops, branch)
            else:
                world._play(node, job)
            yield world

    def _ops_of(self, node: Node, job: Job) -> tuple[Op, ...] | None:
        match job:
            case messages.SendMulti(_, ops):
                return ops
            case ef.ReleaseClaim(_, epoch_version, controller_version):
                return (Check(CONTROLLER_EPOCH, epoch_version), Delete(CONTROLLER, controller_version))
            case ef.TakeClaim():
                plan = node.plan(job)
                return plan.ops if isinstance(plan, leadership.ClaimPlan) else None
        return None

    def _write(self, node: Node, job: Job, ops: tuple[Op, ...], branch: str) -> None:
        outcome: MultiOutcome
        self.strict = node.state is not State.COMPARING
        if not self.strict and any(isinstance(other, ef.CompareAll | CompareStage) for other in node.jobs):
            self._demand_nothing_removed(ops)
        if branch == "sent":
            outcome = self._multi(ops, node.epoch)
        else:
            self.budget = replace(self.budget, lost=self.budget.lost - 1)
            outcome = Unknown("connection loss")
            if branch == "lost after":
                self._multi(ops, node.epoch)
            elif branch == "lost, late":
                self.late, self.late_epoch = ops, node.epoch
        match job:
            case messages.SendMulti(number):
                self._deliver(node, messages.MultiEnded(number, outcome))
            case ef.TakeClaim(ticket):
                migrating = self.facts.record is not PRE
                demand(migrating or (node.decoded and not self.broken_znode), "claimed before everything was decoded")
                plan = node.plan(job)
                assert isinstance(plan, leadership.ClaimPlan)
                result = leadership.conclude_claim(plan, outcome)
                claim = result if isinstance(result, leadership.Claim) else None
                self._deliver(node, ev.ClaimResult(ticket, claim, "lost"))
            case ef.ReleaseClaim(ticket):
                released = leadership.conclude_release(ops, outcome)
                answer = ev.ReleaseResult(ticket, isinstance(released, leadership.Released), "changed")
                self._deliver(node, answer)

    def _play(self, node: Node, job: Job) -> None:  # noqa: C901 - a table, a line or three an effect
        """Everything that is not one multi."""
        answer: ev.Event | messages.WriteEvent | None = None
        match job:
            case ef.Examine(ticket):
                answer = ev.Examined(ticket, self._standing(), surroundings=self._around() if job.brokers else None)
            case ef.ReadReadiness(ticket):
                found = self._around()
                answer = ev.ReadinessInputs(
                    ticket, found.brokers, found.signals, found.cluster, 19, holder=self._controller()
                )
            case ef.LookAgain(ticket, records):
                view = self._standing().view
                answer = ev.CopyDone(ticket, records, view.epoch_version, view.controller_version, self._around())
            case ef.DecodeAll(ticket):
                node.decoded = not self.broken_znode
                answer = ev.DecodeResult(ticket, (_FAULT,) if self.broken_znode else (), 2, holder=self._controller())
            case ef.TakeClaim(ticket):
                plan = node.plan(job)
                held = plan if isinstance(plan, leadership.Claim) else None
                answer = ev.ClaimResult(ticket, held, "superseded")
            case ef.StartCopy(ticket):
                self.append(node, Entry(node.epoch, "begin"))
                node.jobs = (*node.jobs, CopyStage(ticket))
            case CopyStage():
                answer = self._copy_stage(node, job)
            case ef.CancelWork():
                node.jobs = tuple(kept for kept in node.jobs if not isinstance(kept, CopyStage | CompareStage))
            case ef.CompleteTransaction(ticket):
                answer = self._complete(node, ticket)
            case ef.AbortTransaction(ticket):
                answer = self._close_transaction(node, ticket)
            case ef.SendTakeoverRpcs() | ef.SendFullRpcs():
                demand(self.facts.record is MIGRATION_ON, "RPCs before the copy is committed")
                if isinstance(job, ef.SendFullRpcs) and node.epoch == self.epoch:
                    self._demand_compared()
                answer = ev.RpcsQueued(job.ticket) if isinstance(job, ef.SendFullRpcs) else None
            case ef.CompareAll(ticket, image):
                node.jobs = (*node.jobs, CompareStage(ticket, image))
            case CompareStage(ticket, image):
                answer = self._compared(image, ticket.number)
            case messages.ReadMark(number):
                answer = self._read_mark(number)
            case messages.ReadAgain():
                answer = self._read_again(job)
            case ef.AskVoters(ticket):
                migrating = Map(dict(zip(NODES, self.enabled, strict=True)))
                others = tuple(other for other in NODES if other != node.node_id)
                answer = ev.VotersAsked(ticket, FinishInputs(migrating, self.zk_brokers, others))
            case ef.AppendFinished() | ef.AppendReopened() | ef.AppendAdmitted():
                answer = self._say(node, job)
            case ef.TransferLeadership(successor):
                if node.epoch == self.epoch:
                    self.elect(successor)
        if answer is not None:
            self._deliver(node, answer)

    def _around(self) -> Surroundings:
        """Broker 0 lives, and sends heartbeats all the time."""
        brokers, signals = replace(_BROKERS, born=Map({0: self.born})), replace(_READY, alive_ms=Map({0: self.now}))
        return Surroundings(brokers, signals, _CLUSTER, 19)

    def _copy_stage(self, node: Node, stage: CopyStage) -> ev.Event | None:
        """First reading; two batches; second listing; the claim's versions, last of all."""
        if stage.seen is None:
            node.jobs = (*node.jobs, replace(stage, seen=self._listing()))
        elif stage.sent < len(stage.seen):
            name, text, _ = stage.seen[stage.sent]
            self.append(node, Entry(node.epoch, "put", name, text))
            node.jobs = (*node.jobs, replace(stage, sent=stage.sent + 1))
        elif not stage.relisted:
            newest = max((zxid for _, _, zxid in stage.seen), default=0)
            again = self._listing()
            known, present = {name for name, _, _ in stage.seen}, {name for name, _, _ in again}
            for name, text, zxid in again:
                if name not in known or zxid > newest:
                    self.append(node, Entry(node.epoch, "put", name, text))
            for name in sorted(known - present):
                self.append(node, Entry(node.epoch, "drop", name))
            node.jobs = (*node.jobs, replace(stage, relisted=True))
        else:
            view = leadership.read_view(self.zookeeper.read)
            node.held_to_the_end = view.controller is not None and view.controller.kraft_epoch == node.epoch
            return ev.CopyDone(stage.ticket, 2, view.epoch_version, view.controller_version, self._around())
        return None

    def _complete(self, node: Node, ticket: ev.Ticket) -> ev.Event | None:
        if not self.append(node, Entry(node.epoch, "end")):
            return None
        demand(node.held_to_the_end, "End although the claim was lost during the copy")
        demand(self.facts.as_content == stored(self.zookeeper), "End without all data")
        demand(bool(self.facts.content), "End of an empty copy")
        return ev.Committed(ticket, self.facts.completed_at)

    def _close_transaction(self, node: Node, ticket: ev.Ticket) -> ev.Event | None:
        if node.epoch != self.epoch:
            return None
        if self.facts.open_transaction:
            self.append(node, Entry(node.epoch, "abort"))
        return ev.Committed(ticket, EpochOffset(epoch=node.epoch, offset=len(self.log)))

    def _say(self, node: Node, effect: ef.AppendFinished | ef.AppendReopened | ef.AppendAdmitted) -> ev.Event | None:
        kind = {ef.AppendFinished: "post", ef.AppendReopened: "reopen", ef.AppendAdmitted: "admit"}[type(effect)]
        if kind == "post":
            demand(not any(self.enabled), "finished while a voter has the migration on")
            demand(not self.zk_brokers, "finished while brokers are in ZooKeeper mode")
        elif node.epoch == self.epoch:
            self._demand_may_say(kind)
        if not self.append(node, Entry(node.epoch, kind)):
            return None
        return ev.Committed(effect.ticket, EpochOffset(epoch=node.epoch, offset=len(self.log)))

    def _deliver(self, node: Node, event: ev.Event | messages.WriteEvent) -> None:
        self._queue(node, node.acting().step(event, self.now))
        self._check_state(node, event)
        if node.epoch == self.epoch:
            self._demand_may_leave(node.coordinator.write_behind, self.now)

    def _queue(self, node: Node, effects: list[AnyEffect]) -> None:
        """A message to people is no step."""
        for effect in effects:
            match effect:
                case ef.ScheduleTimer(ticket):
                    node.timer = ticket
                case messages.WakeAt():
                    node.tick = True
                case (
                    ef.JournalTransition()
                    | ef.ReportSituation()
                    | messages.Unanswered()
                    | messages.SetAside()
                    | messages.TakenIn()
                ):
                    pass
                case ef.NudgeElection() | messages.Advanced() | ef.StopDualWrite():
                    pass
                case _:
                    node.jobs = (*node.jobs, effect)

    def _check_state(self, node: Node, event: ev.Event | messages.WriteEvent) -> None:
        """A node that has just read that a claim stands does not go on waiting."""
        holder = event.holder if isinstance(event, ev.ReadinessInputs) else None
        if isinstance(event, ev.Examined) and event.standing is not None:
            holder = event.standing.view.controller
        if node.state in INELIGIBLE and holder is not None:
            demand(not holder.is_kraft, f"{node.state.value} while a claim keeps the cluster without a controller")

    # At the end

    def check_end(self) -> None:
        """Check the rules for a quiet cluster."""
        leader = self.nodes[self.leader]
        if leader.state is State.DUAL_WRITING:
            demand(stored(self.zookeeper) == content_of(self.image()), "a change was lost")
            demand(not self.facts.reopened_at, "dual-writing, and brokers in ZooKeeper mode are not admitted")
            demand(leader.coordinator.write_behind.drained, "the write-behind stands still")
            self._demand_raised(leader.coordinator.write_behind.versions_missing(self.now).sets)
            reached = leader.coordinator.write_behind.reached.offset
            demand(self._mark().kraft_metadata_offset == reached, "the mark is not where the write-behind believes it")
