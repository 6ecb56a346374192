"""What goes wrong, when, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from migrator.records.uuid import ZERO_UUID
from tests.simulation.whole import cells
from tests.simulation.whole.calm import Calm
from tests.simulation.whole.disk import Operation, SimulatedDisk

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.machine import SimulatedMachine
    from tests.simulation.whole.world import World

DOWN_SECONDS = (0.05, 6.0)
CUT_SECONDS = (0.1, 8.0)
HANG_SECONDS = (0.1, 8.0)
REFUSED_SECONDS = (0.05, 1.5)
IN_A_STATE = 0.6
"""Of the faults: they wait for a state that is drawn."""
STEADY = frozenset(("leader", "follower", "observer"))
LASTING_SECONDS = {"starting": 0.002} | dict.fromkeys(STEADY, 1.0)
"""About so long these last; others are over in no time, or nothing happens in them."""
SOUGHT_SECONDS = 2.0
"""Between two faults that seek a state, on average; the first in each state does not wait."""
SOUGHT_DISKS = 0.25
"""Of them, where a disk may be lost, as it mostly may not."""
SOUGHT_POINTS = 6
"""Kinds of operations on a disk at which a world that seeks has a crash."""
SEARCHED = 0.5
"""Of the crashes: they wait for an operation that is drawn, as most operations are those of one kind."""
BAD_MOMENTS = 0.7
"""Of the power cuts."""
CRASHES_AFTER = 40
"""Operations on the disk, at most."""


class Chaos:
    """The faults of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._random = world.random
        self.calm = Calm(world)
        self.dead: set[int] = set()
        """Those that stay down to the end."""
        self._waiting: dict[str, Callable[[Controller], None]] = {}
        """Faults, each for the next controller in a state."""
        self._states: dict[int, str] = {}
        """In which each was last."""
        self._crash_points: set[str] = set()
        """Kinds of operations on a disk: the controller that does the next one of such a kind crashes."""
        self._seekers: list[Callable[[Controller], None]] = []
        """Faults, in a world in which each seeks each state."""
        self._tried: Counter[str] = Counter()
        """How often one of them has met each state."""
        self._seeks_again_at = 0.0
        self.is_over = False
        """Who stops now stays down."""

    def begin(self) -> None:
        options = self.world.options
        faults: list[tuple[float, Callable[[Controller], None]]] = [
            (options.kill_rate, self._kill),
            (options.power_rate, self._power_cut),
            (options.stop_rate, self._stop),
            (options.hang_rate, self._hang),
            (options.cut_rate, self._cut),
            (options.slow_rate, self._slow),
            (options.full_rate, self._fill),
            (options.fault_rate, self._fail),
            (options.crash_rate, self._crash),
            (options.wipe_rate, self._wipe),
            (options.settings_rate, self.world.reconfigurations.change),
            (options.reset_rate, self._reset),
        ]
        for rate, fault in faults:
            self._again(rate, partial(self._strike, fault))
        if options.seeks:
            self._seekers = [fault for _, fault in faults[:8]]
            self._seekers[1] = self._cut_power
            begin = options.seed * SOUGHT_POINTS
            self._crash_points = {cells.POINTS[(begin + it) % len(cells.POINTS)] for it in range(SOUGHT_POINTS)}
        self._again(options.blackout_rate, self._blackout)
        self._again(options.alone_rate, self._leave_leader_alone)
        self._again(options.aside_rate, lambda: self._waiting.update(snapshot=self._leave_aside))
        self._again(options.calm_rate, self.calm.begin)
        self._again(options.change_rate, self.world.operator.order)
        self._again(options.look_rate, self.world.onlookers.look)
        self._again(options.recover_rate, self.world.recoveries.lose_majority)
        self._again(options.level_rate, self.world.upgrades.change_metadata_version)
        self._again(options.upgrade_rate, self.world.upgrades.take_voters_into_the_log)

    def _again(self, rate: float, fault: Callable[[], None]) -> None:
        if rate <= 0:
            return

        def strike() -> None:
            if self.world.faults_go_on:
                if not self.calm.is_on:
                    fault()
                self._again(rate, fault)

        self.world.after(self._random.expovariate(rate), strike)

    def _strike(self, fault: Callable[[Controller], None]) -> None:
        """Now, or when a controller enters a state that is drawn: some states are rare and short."""
        if self._random.random() < IN_A_STATE:
            self._waiting[self._random.choice(cells.STATES)] = fault
        else:
            fault(self._anybody())

    def look(self, controller: Controller) -> None:
        """After each turn."""
        state = cells.state_of(controller)
        if state != self._states.get(controller.node_id):
            self.changed(controller, state)

    def changed(self, controller: Controller, state: str) -> None:
        self._states[controller.node_id] = state
        if self.calm.is_on or not self.world.faults_go_on:
            return
        fault = self._waiting.pop(state, None) or self._seeker(controller, state)
        if fault is not None:
            strike = partial(self._strike_late, fault, controller)
            self.world.after(self._random.uniform(0, LASTING_SECONDS.get(state, 0.0)), strike)

    def _strike_late(self, fault: Callable[[Controller], None], controller: Controller) -> None:
        """A fault that waited: the faults may have ended meanwhile, and nothing would mend it."""
        if self.world.faults_go_on and not self.calm.is_on:
            fault(controller)

    def _seeker(self, controller: Controller, state: str) -> Callable[[Controller], None] | None:
        """All faults strike each state in turn. Each seed begins with another one, as some states are met once."""
        tried, world = self._tried[state], self.world
        if not self._seekers or not world.watch.committed.end or (tried and world.now < self._seeks_again_at):
            return None  # a quorum that was never there has few states
        self._tried[state] += 1
        self._seeks_again_at = world.now + self._random.expovariate(1 / SOUGHT_SECONDS)
        if self._random.random() < SOUGHT_DISKS and (state in STEADY or world.watch.may_lose_disk(controller)):
            return self._wipe
        return self._seekers[(world.options.seed + cells.STATES.index(state) + tried) % len(self._seekers)]

    def _met(self, name: str, controller: Controller) -> None:
        self.world.count(cells.fault(name, controller))

    def _anybody(self) -> Controller:
        return self._random.choice(list(self.world.controllers.values()))

    def end(self) -> None:
        """Mend all faults; perhaps a minority stays dead."""
        world = self.world
        self.calm.end()
        if world.options.minority_stays_dead:
            self._bury_a_minority()
        for wire in sorted(world.network.cut):
            world.network.mend_wire(wire)
        self.mend_machines()
        for controller in world.controllers.values():
            if controller.machine is not None:
                controller.machine.hang(until=world.now)
            if not controller.runs and controller.node_id not in self.dead:
                controller.restart_wanted = True
        self.world.reconfigurations.finish()
        self._restart_all()

    def mend_machines(self) -> None:
        """Disks that are full, failing or slow; those that are lost stay so."""
        self.world.network.slow.clear()
        self.world.network.refusing.clear()
        for controller in self.world.controllers.values():
            controller.disk.free = None
            self._mend(controller, controller.disk)
            if controller.machine is not None:
                controller.machine.crash_at_operation = controller.machine.at_next_sync = None
                controller.machine.slowness = 1.0
                controller.machine.sync_seconds_max = self.world.options.sync_ms_max / 1000

    def _bury_a_minority(self) -> None:
        """Of the voters that are in force, if those that are left have the log: else they wait for the dead ones."""
        voters = self.world.watch.voter_keys()
        alive = {key.node_id for key in voters if key.directory_id in (ZERO_UUID, self._directory(key.node_id))}
        most = len(alive) - len(voters) // 2 - 1
        dead = self._random.sample(sorted(alive), max(0, most))
        if sum(self.world.watch.may_vote(node_id) for node_id in alive.difference(dead)) <= len(voters) // 2:
            return
        for node_id in dead:
            self.dead.add(node_id)
            self.world.count("dead to the end")
            self.world.kill(self.world.controllers[node_id], power=True)

    def _directory(self, node_id: int) -> bytes:
        return self.world.controllers[node_id].directory_id

    def _restart_all(self) -> None:
        """Also those that go down only now: a stop, or a crash that was under way."""
        for controller in self.world.controllers.values():
            if self.is_over:
                return
            if controller.restart_wanted and not controller.runs and controller.node_id not in self.dead:
                controller.start()
        self.world.after(0.5, self._restart_all)

    # One fault each.

    def restart_later(self, controller: Controller) -> None:
        controller.restart_wanted = True
        life = controller.life

        def start() -> None:
            if not controller.runs and controller.life == life and not self.is_over:
                controller.start()

        self.calm.later(self._random.uniform(*DOWN_SECONDS), start)

    def _kill(self, controller: Controller) -> None:
        if controller.runs:
            self.world.count("kills")
            self._met("kill", controller)
            self.world.kill(controller, power=False)
            self.restart_later(controller)

    def _power_cut(self, controller: Controller) -> None:
        self._at_a_bad_moment(controller, partial(self._cut_power, controller))

    def _blackout(self) -> None:
        self._at_a_bad_moment(self._anybody(), self._cut_all_power)

    def _at_a_bad_moment(self, controller: Controller, strike: Callable[[], None]) -> None:
        """Mostly right before it makes something durable: when all is durable, a power cut costs nothing."""
        machine = controller.machine
        if machine is not None and self._random.random() < BAD_MOMENTS:
            machine.at_next_sync = strike
        else:
            strike()

    def _cut_power(self, controller: Controller) -> None:
        if controller.runs:
            self.world.count("power cuts")
            self._met("power cut", controller)
            self.world.kill(controller, power=True)
            self.restart_later(controller)

    def _cut_all_power(self) -> None:
        self.world.count("blackouts")
        for controller in self.world.controllers.values():
            self._cut_power(controller)

    def _crash(self, controller: Controller) -> None:
        """Crash at one of the next operations on the disk; the world then starts the controller again."""
        machine = controller.machine
        if self._random.random() < SEARCHED:
            self._crash_points.add(self._random.choice(cells.POINTS))
        elif machine is not None and machine.crash_at_operation is None:
            machine.crash_at_operation = self._random.randrange(CRASHES_AFTER)

    def wants_crash(self, machine: SimulatedMachine, point: str) -> bool:
        """Whether the next operation of this kind shall never happen."""
        if point not in self._crash_points or self.calm.is_on or not self.world.faults_go_on:
            return False
        if not any(one.machine is machine for one in self.world.controllers.values()):
            return False
        self._crash_points.discard(point)
        return True

    def crashed(self, controller: Controller) -> None:
        """That has happened."""
        self.restart_later(controller)

    def _stop(self, controller: Controller) -> None:
        if controller.runs:
            self.world.count("stops")
            self._met("stop", controller)
            controller.stop()

    def ended(self, controller: Controller) -> None:
        """The process has ended in order, or by a fault of its disk."""
        self.restart_later(controller)

    def _hang(self, controller: Controller) -> None:
        if controller.machine is not None:
            self.world.count("hangs")
            self._met("hang", controller)
            controller.machine.hang(until=self.world.now + self._random.uniform(*HANG_SECONDS))

    def _cut(self, controller: Controller) -> None:
        random = self._random
        hosts = [one.host for one in self.world.controllers.values()]
        ours = {controller.host}
        if random.random() < 0.4:
            ours = set(random.sample(hosts, random.randint(1, len(hosts) - 1)))
        wires = [(one, other) for one in hosts for other in hosts if (one in ours) != (other in ours)]
        kind = random.random()
        if kind < 0.3:
            wires = [wire for wire in wires if wire[0] in ours]
        elif kind < 0.5:
            wires = [random.choice(wires)]
        if controller.runs:
            self._met("cut", controller)
        self.world.count("one-way cuts" if kind < 0.5 else "cuts")
        self._cut_wires(wires)

    def _leave_leader_alone(self) -> None:
        """Only clients reach it, no controller does: the records that it appends now will be cut from its log."""
        leader = self.world.watch.some_leader()
        if leader is not None:
            self.world.count("leaders that are left alone")
            self._met("cut", leader)
            others = [one.host for one in self.world.controllers.values() if one is not leader]
            self._cut_wires([wire for other in others for wire in ((leader.host, other), (other, leader.host))])

    def _leave_aside(self, controller: Controller) -> None:
        """One that is sent a snapshot, or loads it, is left alone with its leader: what it gets then is cut again."""
        leader = self.world.watch.some_leader()
        if leader is not None and leader is not controller:
            self.world.count("loads that are left aside")
            ours = {leader.host, controller.host}
            others = [one.host for one in self.world.controllers.values() if one.host not in ours]
            self._cut_wires([wire for our in sorted(ours) for it in others for wire in ((our, it), (it, our))])

    def _cut_wires(self, wires: list[tuple[str, str]]) -> None:
        network = self.world.network
        self.world.trace(f"cut {wires}")
        for wire in wires:
            network.cut_wire(wire)

        def mend() -> None:
            for wire in wires:
                network.mend_wire(wire)

        self.calm.later(self._random.uniform(*CUT_SECONDS), mend)

    def _reset(self, controller: Controller) -> None:
        """A firewall or a proxy in front of the machine starts again."""
        network = self.world.network
        self.world.count("lost connections of a machine")
        network.reset_connections(controller.host)
        if self._random.random() < 0.5:
            network.refusing.add(controller.host)
            self.world.after(self._random.uniform(*REFUSED_SECONDS), partial(network.refusing.discard, controller.host))

    def _slow(self, controller: Controller) -> None:
        self.world.count("slow machines")
        if controller.runs:
            self._met("slow", controller)
        self.world.network.slow[controller.host] = self._random.choice((5.0, 30.0))
        machine = controller.machine
        if machine is not None:
            machine.sync_seconds_max *= self._random.choice((1.0, 10.0))
            machine.slowness = self._random.choice((1.0, 30.0, 300.0))

        def end() -> None:
            self.world.network.slow.pop(controller.host, 0)
            if machine is not None:
                machine.slowness = 1.0

        self.world.after(self._random.uniform(*CUT_SECONDS), end)

    def _fill(self, controller: Controller) -> None:
        self.world.count("full disks")
        if controller.runs:
            self._met("full", controller)
        controller.disk.free = self._random.randrange(5_000)

        def free() -> None:
            controller.disk.free = None

        self.world.after(self._random.uniform(*CUT_SECONDS), free)

    def _fail(self, controller: Controller) -> None:
        disk = controller.disk
        disk.fails_at = Operation(self._random.choice(self.world.options.fails_at.split()))
        if controller.runs:
            self._met("failing", controller)
        self.world.count(f"disks that fail at {disk.fails_at.value}")
        self.world.after(self._random.uniform(*CUT_SECONDS), lambda: self._mend(controller, disk))

    def _mend(self, controller: Controller, disk: SimulatedDisk) -> None:
        """Its machine starts again, if its file system takes nothing any more: no fsync comes there to wait for."""
        disk.fails_at = None
        if disk.is_read_only and disk is controller.disk:
            if controller.runs:
                self._cut_power(controller)
            else:
                disk.lose_power(self._random)

    def _wipe(self, controller: Controller) -> None:
        """The disk is lost, an empty one takes its place: mostly one at a time, and no other before that log is back.
        Sometimes those of a majority, in a quorum that may not begin anew."""
        world, options = self.world, self.world.options
        victims = [controller]
        if controller.is_given_up or world.majority_is_lost:
            return  # with all disks lost, a quorum begins anew
        if options.wiped_at_once > 1 and options.requires_bootstrap and not world.watch.is_dynamic():
            others = [one for one in world.controllers.values() if one is not controller]
            victims += self._random.sample(others, len(world.controllers) // 2)
            if not any(world.watch.has_log(one) for one in others if one not in victims):
                return  # the one that is left was never reached: then all disks are empty
            world.majority_is_lost = True
            world.count("majorities that lost their disks")
        elif not world.watch.may_lose_disk(controller):
            return
        for victim in victims:
            world.count("wiped disks")
            if victim.runs:
                self._met("wipe", victim)
            world.kill(victim, power=True)
            world.replace_disk(victim)
            self.restart_later(victim)
