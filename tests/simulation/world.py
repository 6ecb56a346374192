"""The world of one seed: its clock, its nodes, its client; `run` makes it happen."""

from __future__ import annotations

import heapq
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from migrator.raft import events as ev
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.states import Role
from migrator.raft.voter_set import DYNAMIC_VERSION, Membership, ReplicaKey, VoterSet
from migrator.raft.votes import majority
from migrator.records.control import KRaftVoters
from migrator.records.uuid import ZERO_UUID, Uuid
from tests.simulation import invariants as rules
from tests.simulation.batches import Batch, BatchStore
from tests.simulation.chaos import Chaos
from tests.simulation.disk import SimulatedDisk
from tests.simulation.doors import Doors
from tests.simulation.history import History, Point
from tests.simulation.invariants import Violation, check
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node import RequestContext, SimulatedNode
from tests.simulation.operator import Operator
from tests.simulation.options import Options
from tests.simulation.planning import entry, keys

CALM_CLIENT_INTERVAL_MS = 250
"""The client leaves everybody room to catch up once faults have ended."""

HEALING_MS_MAX = 15_000
"""Within this time after the last fault everybody has to agree again: 50 fetch time-outs."""

EVENTS_MAX = 400_000
"""A run that needs more has nodes that keep each other busy for nothing."""

FIREWALL_SHARE = 0.1
"""The share of visible losses: a firewall refuses the connection, although the process runs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the broken rule with its demand and facts, or None when every rule held."""

    options: Options
    rule: str | None
    message: str
    coverage: Counter[str]


class World:
    """One simulated cluster; everything in it is a function of the options."""

    def __init__(self, options: Options, show: Callable[[str], None] | None = None) -> None:
        self.options = options
        self.now = 0.0
        self.random = Random(f"world {options.seed}")
        self.history = History()
        self.batches = BatchStore()
        self.coverage: Counter[str] = Counter()
        first = {"grow and shrink": 1, "move": 3}.get(options.journey, options.voters)
        voters = first if options.dynamic else options.voters
        self.voters = frozenset(range(1, voters + 1))
        """At first; for ever if they are configured."""
        others = options.spares if options.dynamic else options.observers
        ids = range(1, voters + others + 1)
        self.bootstrap = tuple(-1 - node_id for node_id in ids) if options.dynamic else ()
        self.network = SimulatedNetwork(options, self.random, self.after)
        self.nodes = {node_id: SimulatedNode(self, node_id) for node_id in ids}
        self.doors = Doors(self)
        self.lost: dict[ReplicaKey, list[SimulatedDisk]] = {}
        """The disks that are gone, as they were at last."""
        self.emptied: set[int] = set()
        """The voters that have lost their disks, and have not yet had again all that was committed."""
        self.committing: list[ReplicaKey] = []
        """The voters that were in force when the high watermark moved last."""
        self.operator = Operator(self)
        if options.dynamic:
            formatted = VoterSet.of(entry(self.nodes[voter].key) for voter in self.voters)
            for voter in self.voters:
                self.nodes[voter].format(Membership(DYNAMIC_VERSION, formatted))
        self.chaos = Chaos(self)
        self._show = show
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._writes = 0

    # Time

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a time; things of one time happen in the order in which they were scheduled."""
        self._scheduled += 1
        heapq.heappush(self._queue, (when, self._scheduled, action))

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self.at(self.now + delay_ms, action)

    def run(self) -> None:
        """Chaos, then healing.

        :raises Violation: at the first event after which a rule doesn't hold.
        """
        for node in self.nodes.values():
            self.after(self.random.uniform(0, 100), node.boot)
        self.chaos.begin()
        self._client_turn()
        self.operator.begin()
        self._run_until(lambda: self.now >= self.options.chaos_ms)
        self.chaos.end()
        self.operator.end()
        acknowledged_before, healed_at = len(self.history.acknowledged), self.now
        self._run_until(lambda: self.now >= healed_at + HEALING_MS_MAX or self._is_whole(acknowledged_before))
        if self.waits_for_an_order():
            self.count("quorums that wait for an order")
            return
        check(rules.progress_after_healing, self.now - healed_at, HEALING_MS_MAX - 1)
        check(rules.acknowledged_is_visible, self.history.acknowledged, self.history.visible)
        changes = self.history.changes[1:]  # the first one is what the directories were formatted with
        self.count("changes committed", len(changes))
        self.count("changes committed by another leader", sum(written != by for written, by in changes))
        self.count("acknowledged writes", len(self.history.acknowledged))
        self.count("skewed clocks", int(self.options.clock_skew > 0))

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        while self._queue and not is_done():
            self.now, _, action = heapq.heappop(self._queue)
            self.coverage["events"] += 1
            if self.coverage["events"] > EVENTS_MAX:
                raise Violation("bounded_work", f"a run takes at most {EVENTS_MAX} events", self.now)
            action()

    def _is_whole(self, acknowledged_before: int) -> bool:
        """Whether all follow one leader and have all that is committed, a new write included."""
        if self.options.dynamic and not self.operator.is_done():
            return False
        known = [node.raft for node in self.nodes.values()]
        epochs = {(raft.epoch, raft.leader_id) for raft in known if raft is not None}
        is_led = len(epochs) == 1 and any(raft is not None and raft.role is Role.LEADER for raft in known)
        return (
            is_led
            and None not in known
            and len(self.history.acknowledged) > acknowledged_before
            and all(node.image.end.offset == self.history.end.offset for node in self.nodes.values())
        )

    def is_barred(self, node_id: int) -> bool:
        """Whether no voter may vote for this node as it runs now: a restart removes or restores the bar."""
        return (
            self.options.barred
            and not self.options.dynamic
            and node_id == max(self.voters)
            and self.nodes[node_id].life % 4 == 1
        )

    # The client

    def next_write(self) -> int:
        """A number that was never written before."""
        self._writes += 1
        return self._writes

    def _client_turn(self) -> None:
        leaders = [node for node in self.nodes.values() if node.raft and node.raft.role is Role.LEADER]
        if leaders:
            self.random.choice(leaders).controller.write()
        interval = CALM_CLIENT_INTERVAL_MS if self.network.is_calm else self.options.client_interval_ms
        self.after(self.random.uniform(0.5, 1.5) * interval, self._client_turn)

    # Between nodes

    def send_request(
        self, source: SimulatedNode, target_id: int, context: RequestContext, request: RaftRequest
    ) -> None:
        """A request travels; when it can't, its sender may or may not be told, and a few are told a lie."""
        target = self.nodes[target_id if target_id > 0 else -1 - target_id]

        def arrive() -> None:
            if target.raft is None and self.doors.is_off(target):
                self.fail_request(target, context, ev.Failure.NO_ANSWER)
            elif self.doors.refuses(source, target):
                self.fail_request(target, context, self.doors.fails(source, target))
            else:
                target.hear(ev.RequestReceived(context, request))

        if target is source:
            return  # its own address among the bootstrap servers: nobody answers there
        if not self.network.send(source.node_id, target.node_id, arrive) and self.random.random() < 0.5:
            how = ev.Failure.REFUSED if self.random.random() < FIREWALL_SHARE else ev.Failure.NO_ANSWER
            self.after(self.random.uniform(1, 100), lambda: self._tell(context, how))

    def fail_request(self, target: SimulatedNode, context: RequestContext, how: ev.Failure) -> None:
        """The target's machine says what becomes of a request, if that message arrives."""
        self.network.send(target.node_id, context.source, lambda: self._tell(context, how))

    def _tell(self, context: RequestContext, how: ev.Failure) -> None:
        asker = self.nodes[context.source]
        if asker.life == context.source_life:
            asker.hear(ev.RequestFailed(context.peer, context.correlation, how))

    def send_response(self, source: SimulatedNode, context: RequestContext, response: RaftResponse) -> None:
        """A response travels back to the life of the process that asked."""
        asker = self.nodes[context.source]
        event = ev.ResponseReceived(context.peer, context.correlation, response)

        def arrive() -> None:
            if asker.life == context.source_life:
                self.doors.answered(asker, source.node_id)
                asker.hear(event)

        self.network.send(source.node_id, context.source, arrive)

    # Faults that need to know everything

    def power_cut(self, node: SimulatedNode) -> None:
        """A node loses its process and what it had not synced; the committed must still be on a majority."""
        self.count("crashes")
        log = node.disk.log
        unsynced = log.batches_from(log.synced_end)
        lost = node.disk.lose_power(self.random)
        self.count("batches lost", lost)
        self.count_changes("changes lost with the power", unsynced[len(unsynced) - lost :])
        self.count("torn batches", int(node.disk.log.has_torn_tail))
        self.doors.process_gone(node, may_be_off=True)
        node.stop()
        self.check_majority()
        self.chaos.restart_later(node.node_id)

    def stop_gracefully(self, node: SimulatedNode) -> None:
        """A process that was ready to stop, or whose patience ended, ends with its log synced and comes back later."""
        self.count("graceful stops")
        node.disk.log.synced_end = node.disk.log.end_offset()
        self.doors.process_gone(node, may_be_off=False)
        node.stop()
        self.chaos.restart_later(node.node_id)

    def check_majority(self) -> None:
        """The committed end is durable where it has to be."""
        end = self.history.end
        if end.offset:
            disks = [(self.nodes[key.node_id].disk, *self.lost.get(key, ())) for key in self.committing]
            copies = sum(any(disk.has_durably(end) for disk in each) for each in disks)
            check(rules.committed_is_on_majority, copies, len(disks))

    def wipe(self, node: SimulatedNode) -> None:
        """A node gets an empty disk, and with that another directory id; what it had is gone for good."""
        self.count("wiped disks")
        self.power_cut(node)
        self.lost.setdefault(node.key, []).append(node.disk)
        node.wipe(self.directory(node.node_id, len(self.lost)))

    def may_empty(self, node: SimulatedNode) -> bool:
        """Whether a configured voter may lose its disk now: another voter has all committed records."""
        others = (self.nodes[voter].disk for voter in self.voters - {node.node_id})
        if self.history.end.offset and not any(disk.has_durably(self.history.end) for disk in others):
            return False
        return len(self.without_log() | {node.node_id}) <= min(self.options.disk_losses_at_once, len(self.voters) - 1)

    def empty(self, node: SimulatedNode) -> None:
        """A configured voter loses its disk; nothing says that the next one is another."""
        self.count("disks lost")
        self.emptied.add(node.node_id)
        self.power_cut(node)
        self.lost.setdefault(node.key, []).append(node.disk)
        node.wipe(node.key.directory_id)

    def waits_for_an_order(self) -> bool:
        """Whether so many configured voters lost their disks that nobody but an operator can say how to go on, or all
        whose logs are good enough for a majority may get no vote: then an operator starts one of them again."""
        whole = self.voters - self.without_log()
        ends = {it: (log.last_epoch(), log.end_offset()) for it in whole for log in [self.nodes[it].disk.log]}
        able = [it for it in whole if sum(end <= ends[it] for end in ends.values()) >= majority(len(self.voters))]
        return bool(whole) and all(self.is_barred(it) for it in able)

    def without_log(self) -> set[int]:
        """The configured voters that have to fetch first: they lost their disks, or have had nothing yet."""
        return self.emptied | {voter for voter in self.voters if self.nodes[voter].disk.must_fetch_first}

    def directory(self, node_id: int, generation: int) -> Uuid:
        """The directory id of a node's disk; static voters have none."""
        return Uuid(f"node {node_id} disk {generation:4}".encode()) if self.options.dynamic else ZERO_UUID

    def would_lock(self, voters: VoterSet, without: ReplicaKey | None = None) -> bool:
        """Whether so many disks of a set are gone that it could never elect anybody again."""
        whole = [key for key in keys(voters) if key not in self.lost and key != without]
        return len(whole) < majority(len(voters))

    def may_lose(self, node: SimulatedNode) -> bool:
        """Whether each set that is or may come in force again could go on without a node's disk."""
        logs = [other.disk.log for other in self.nodes.values()]
        found = [log.membership_at(self.history.end.offset) for log in logs] + [log.membership() for log in logs]
        sets = [membership.voters for membership in found if membership.voters is not None]
        return not any(self.would_lock(voters, without=node.key) for voters in sets)

    # Watching

    def point_at(self, offset: int) -> Point | None:
        """The world as committed up to an offset."""
        return self.history.points.get(offset)

    def count(self, what: str, how_many: int = 1) -> None:
        """Note that something worth testing happened."""
        self.coverage[what] += how_many

    def count_changes(self, what: str, batches: Iterable[Batch]) -> None:
        """Note how many sets of voters are among batches."""
        self.count(what, sum(isinstance(record, KRaftVoters) for batch in batches for record in batch.records))

    def trace(self, node: SimulatedNode, what: object) -> None:
        """Show an event or effect, if anybody looks."""
        if self._show is not None:
            role = node.raft.role.value if node.raft else "down"
            arrow = "<-" if isinstance(what, ev.Event) else "->"
            self._show(f"{self.now:10.2f} node {node.node_id} {role:10} {arrow} {what}")


def simulate(options: Options, show: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed to its end or to its first violation."""
    world = World(options, show)
    try:
        world.run()
    except Violation as violation:
        if show is not None:
            show(f"{world.now:10.2f} {violation}")
        return Outcome(options, violation.rule, str(violation), world.coverage)
    except Exception as error:  # noqa: BLE001 - what a core raises would end its controller; the seed must be told
        return Outcome(options, "a core never raises", "".join(traceback.format_exception(error)), world.coverage)
    return Outcome(options, None, "", world.coverage)
