"""The faults, each at its own random rate, each undone after a random while."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from migrator.raft import events as ev
from migrator.raft.states import Role

if TYPE_CHECKING:
    from tests.simulation.node import SimulatedNode
    from tests.simulation.world import World


DISK_CHANGE_MS = (1_200, 2_000)
"""Nobody replaces a disk before the leader of that moment has missed its voter: for 1.5 fetch time-outs (450 ms)."""

SHUTDOWN_PATIENCE_MS = 500
"""So long a node waits for `ReadyToStop`."""


class Chaos:
    """Schedules faults until `end`; then everything is whole again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._is_over = False

    def begin(self) -> None:
        """Let each kind of fault come at its rate."""
        options = self._world.options
        rates: dict[Callable[[], None], float] = {
            self._crash: options.crash_rate,
            self._partition: options.partition_rate,
            self._pause: options.pause_rate,
            self._slow_disk: options.slow_disk_rate,
            self._full_disk: options.full_disk_rate,
            self._hand_over: options.handover_rate,
            self._close_door: options.door_rate,
            self._wipe: options.wipe_rate if options.dynamic else 0.0,
            self._lose_disk: 0.0 if options.dynamic or options.barred else options.disk_loss_rate,
        }
        for fault, rate in rates.items():
            if rate > 0:
                self._again(fault, rate)

    def _again(self, fault: Callable[[], None], rate: float) -> None:
        def strike() -> None:
            if not self._is_over:
                fault()
                self._again(fault, rate)

        self._world.after(self._random.expovariate(rate) * 1000, strike)

    def end(self) -> None:
        """Heal: links, disks, processes."""
        world = self._world
        self._is_over = True
        world.network.is_calm = True
        world.doors.open_all()
        for node in world.nodes.values():
            self._world.after(max(0.0, node.without_disk_until - world.now), partial(self._restart, node))
            node.disk_is_full, node.disk_slowness, node.paused_until = False, 1.0, world.now

    def _later(self, action: Callable[[], None], longest_ms: float) -> None:
        self._world.after(self._random.uniform(1, longest_ms), lambda: None if self._is_over else action())

    def _crash(self) -> None:
        """Power cuts: mostly one node, sometimes several at once."""
        count = self._random.choice((1, 1, 1, 2, len(self._world.nodes)))
        for node in self._random.sample(list(self._world.nodes.values()), min(count, len(self._world.nodes))):
            if node.raft is not None:
                self._world.power_cut(node)

    def restart_later(self, node_id: int) -> None:
        """The process comes back after a while."""
        node = self._world.nodes[node_id]
        longest = 10 if self._is_over else 800
        self._world.after(self._random.uniform(1, longest), lambda: self._restart(node))

    def _restart(self, node: SimulatedNode) -> None:
        if node.raft is None and self._world.now >= node.without_disk_until:
            node.boot()

    def _partition(self) -> None:
        """Two groups, or the leader against all; in a third of the cases in one direction only."""
        world, ids = self._world, list(self._world.nodes)
        if len(ids) < 2:
            return
        leaders = [node.node_id for node in world.nodes.values() if node.raft and node.raft.role is Role.LEADER]
        if leaders and self._random.random() < 0.5:
            group = {self._random.choice(leaders)}
        else:
            group = set(self._random.sample(ids, self._random.randint(1, len(ids) - 1)))
        outward = [(inner, outer) for inner in group for outer in ids if outer not in group]
        inward = [(outer, inner) for inner, outer in outward]
        links = self._random.choice((outward + inward, outward + inward, outward, inward))
        world.count("partitions" if len(links) > len(outward) else "one-way partitions")
        world.network.block(links)
        self._later(lambda: world.network.unblock(links), 1200)

    def _close_door(self) -> None:
        """Mostly a leader, and mostly for less than a fetch time-out."""
        world = self._world
        running = [node for node in world.nodes.values() if node.raft is not None]
        leaders = [node for node in running if node.raft and node.raft.role is Role.LEADER]
        node = self._random.choice(leaders if leaders and self._random.random() < 0.7 else running or [None])
        others = [other for other in world.nodes if node is not None and other != node.node_id]
        if node is not None and others:
            world.count("doors closed")
            to = self._random.sample(
                others, self._random.choice((1, self._random.randint(1, len(others)), len(others)))
            )
            world.doors.close(node, to)
            self._later(lambda: world.doors.open(node, to), self._random.choice((60, 200, 600)))

    def _pause(self) -> None:
        """SIGSTOP: the process misses its time, then hears everything at once."""
        node = self._random.choice(list(self._world.nodes.values()))
        self._world.count("pauses")
        node.paused_until = self._world.now + self._random.uniform(1, 900)

    def _slow_disk(self) -> None:
        node = self._random.choice(list(self._world.nodes.values()))
        self._world.count("slow disks")
        node.disk_slowness = self._random.choice((10.0, 50.0))

        def recover() -> None:
            node.disk_slowness = 1.0

        self._later(recover, 1000)

    def _full_disk(self) -> None:
        node = self._random.choice(list(self._world.nodes.values()))
        self._world.count("full disks")
        node.disk_is_full = True

        def recover() -> None:
            node.disk_is_full = False

        self._later(recover, 600)

    def _hand_over(self) -> None:
        """An operator stops a node gently, or the leader renounces."""
        nodes = [node for node in self._world.nodes.values() if node.raft is not None]
        leaders = [node for node in nodes if node.raft and node.raft.role is Role.LEADER]
        node = self._random.choice(leaders if leaders and self._random.random() < 0.5 else nodes or [None])
        if node is None or node.raft is None:
            return
        if node.raft.role is Role.LEADER and self._random.random() < 0.6:
            self._world.count("hand-overs")
            successor = self._random.choice((None, *sorted(node.voter_set.ids - {node.node_id})))
            node.hear(ev.Resign(node.raft.epoch, successor))
        else:
            self._world.count("shutdowns")
            node.hear(ev.Shutdown())
            life = node.life
            self._world.after(
                SHUTDOWN_PATIENCE_MS, lambda: self._world.stop_gracefully(node) if node.life == life else None
            )

    def _wipe(self) -> None:
        """A disk breaks and another one takes its place, unless the quorum could never go on without it."""
        node = self._random.choice(list(self._world.nodes.values()))
        if node.raft is not None and self._world.may_lose(node):
            self._world.wipe(node)

    def _lose_disk(self) -> None:
        """A configured voter comes back with an empty disk, under its old name."""
        world = self._world
        node = world.nodes[self._random.choice(sorted(world.voters))]
        if node.raft is not None and world.may_empty(node):
            away_ms = self._random.uniform(*DISK_CHANGE_MS)
            node.without_disk_until = world.now + away_ms
            world.empty(node)
            world.after(away_ms, lambda: self._restart(node))
