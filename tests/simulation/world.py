"""The world of one seed: its clock, its nodes, its client; `run` makes it happen."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from migrator.raft import events as ev
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.states import Role
from tests.simulation import invariants as rules
from tests.simulation.batches import BatchStore
from tests.simulation.chaos import Chaos
from tests.simulation.history import History, Point
from tests.simulation.invariants import Violation, check
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node import RequestContext, SimulatedNode
from tests.simulation.options import Options

CALM_CLIENT_INTERVAL_MS = 250
"""The client leaves everybody room to catch up once faults have ended."""

HEALING_MS_MAX = 15_000
"""Within this time after the last fault everybody has to agree again: 50 fetch time-outs."""

EVENTS_MAX = 400_000
"""A run that needs more has nodes that keep each other busy for nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed: the broken rule with its demand and facts, or None when every rule held."""

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
        self.voters = frozenset(range(1, options.voters + 1))
        self.network = SimulatedNetwork(options, self.random, self.after)
        self.nodes = {
            node_id: SimulatedNode(self, node_id) for node_id in range(1, options.voters + options.observers + 1)
        }
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
        self._run_until(lambda: self.now >= self.options.chaos_ms)
        self.chaos.end()
        acknowledged_before, healed_at = len(self.history.acknowledged), self.now
        self._run_until(lambda: self.now >= healed_at + HEALING_MS_MAX or self._is_whole(acknowledged_before))
        check(rules.progress_after_healing, self.now - healed_at, HEALING_MS_MAX - 1)
        check(rules.acknowledged_is_visible, self.history.acknowledged, self.history.visible)
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
        """Whether a node may get nobody's vote as it runs now: a restart takes the bar away or brings it back."""
        return self.options.barred and node_id == max(self.voters) and self.nodes[node_id].life % 4 == 1

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
        """A request travels; when it can't, its sender may or may not be told."""
        target = self.nodes[target_id]
        failed = ev.RequestFailed(target_id, context.correlation)

        def tell() -> None:
            if source.life == context.source_life:
                source.hear(failed)

        def arrive() -> None:
            if target.raft is None:
                self.network.send(target_id, source.node_id, tell)
            else:
                target.hear(ev.RequestReceived(context, request))

        if not self.network.send(source.node_id, target_id, arrive) and self.random.random() < 0.5:
            self.after(self.random.uniform(1, 100), tell)

    def send_response(self, source: SimulatedNode, context: RequestContext, response: RaftResponse) -> None:
        """A response travels back to the life of the process that asked."""
        asker = self.nodes[context.source]
        event = ev.ResponseReceived(source.node_id, context.correlation, response)

        def arrive() -> None:
            if asker.life == context.source_life:
                asker.hear(event)

        self.network.send(source.node_id, context.source, arrive)

    # Faults that need to know everything

    def power_cut(self, node: SimulatedNode) -> None:
        """A node loses its process and what it had not synced; the committed must still be on a majority."""
        self.count("crashes")
        self.count("batches lost", node.disk.lose_power(self.random))
        self.count("torn batches", int(node.disk.log.has_torn_tail))
        node.stop()
        self.check_majority()
        self.chaos.restart_later(node.node_id)

    def stop_gracefully(self, node: SimulatedNode) -> None:
        """A process that was ready to stop, or whose patience ended, ends with its log synced and comes back later."""
        self.count("graceful stops")
        node.disk.log.synced_end = node.disk.log.end_offset()
        node.stop()
        self.chaos.restart_later(node.node_id)

    def check_majority(self) -> None:
        """The committed end is durable where it has to be."""
        end = self.history.end
        copies = sum(self.nodes[voter].has_durably(end) for voter in self.voters) if end.offset else len(self.voters)
        check(rules.committed_is_on_majority, copies, len(self.voters))

    # Watching

    def point_at(self, offset: int) -> Point | None:
        """The world as committed up to an offset."""
        return self.history.points.get(offset)

    def count(self, what: str, how_many: int = 1) -> None:
        """Note that something worth testing happened."""
        self.coverage[what] += how_many

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
    return Outcome(options, None, "", world.coverage)
