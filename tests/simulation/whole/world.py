"""One seed's world: its time, its machines, what happens to them. `simulate` makes it happen."""

from __future__ import annotations

import gc
import heapq
import logging
import math
import traceback
from asyncio import events
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from migrator.node import image_proof, snapshotter
from migrator.raft import snapshot
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.uuid import ZERO_UUID
from tests.simulation.whole.agreement import why_behind, why_not_agreed, why_unfenced
from tests.simulation.whole.breach import Violation, check
from tests.simulation.whole.brokers import FIRST_ID, Broker
from tests.simulation.whole.chaos import Chaos
from tests.simulation.whole.claims import Inside
from tests.simulation.whole.client import Client
from tests.simulation.whole.controller import SESSION_MS, Controller
from tests.simulation.whole.disk import SimulatedDisk
from tests.simulation.whole.loop import SimulatedLoop
from tests.simulation.whole.machine import ProcessGoneError, SimulatedMachine
from tests.simulation.whole.network import Network
from tests.simulation.whole.onlookers import Onlookers
from tests.simulation.whole.operator import Operator
from tests.simulation.whole.options import Options
from tests.simulation.whole.reconfigure import Reconfigurations
from tests.simulation.whole.recover import Recoveries
from tests.simulation.whole.upgrades import Upgrades
from tests.simulation.whole.voters import first_voters
from tests.simulation.whole.watch import Watch

TURNS_A_SECOND_MAX = 40_000
"""A loop that turns more often, in the world's time, is busy with nothing."""
KEPT: list[World] = []
"""Of this process; what is in them is never freed."""
IDLE_SECONDS = 5.0
"""Within so long all that was asked for is answered, or given up."""
FENCING_SECONDS = 3 * SESSION_MS / 1000
"""Within so long after their last heartbeats all brokers are fenced."""
SETTLING_SECONDS = 25.0
"""Within so long after the last fault everybody agrees again."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the broken rule, with the facts; None where every rule held."""

    options: Options
    rule: str | None
    message: str
    coverage: Counter[str]
    seconds: float
    """Of the world."""
    fingerprint: int
    """The same for the same events, each at the same time, that committed the same bytes."""


class World:
    """Everything in it is a function of the options."""

    def __init__(self, options: Options, show: Callable[[str], None] | None = None) -> None:
        self.options = options
        self.now = 0.0
        self.random = Random(f"world {options.seed}")
        self.coverage: Counter[str] = Counter()
        self.faults_go_on = False
        self.majority_is_lost = False
        """Of the disks that held what is committed: only a person can go on from there."""
        self.locks: dict[int, SimulatedMachine] = {}
        self._show = show
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._scheduled = 0
        self.network = Network(self)
        ids = range(1, options.controllers + options.observers + 1)
        self.first_voters = frozenset(ids[: options.controllers])
        self.controllers: dict[int, Controller] = {}
        for node_id in ids:
            self.controllers[node_id] = Controller(self, node_id)
        for node_id in self.random.sample(ids, min(options.without_grpc, len(ids))):
            self.controllers[node_id].has_grpc = False
        self.client = Client(self)
        self._running = [self.client.machine]
        self.operator = Operator(self)
        self.onlookers = Onlookers(self)
        self.recoveries = Recoveries(self)
        self.upgrades = Upgrades(self)
        self.reconfigurations = Reconfigurations(self)
        self.brokers = [Broker(self, FIRST_ID + index) for index in range(options.brokers)]
        self._graves: list[SimulatedMachine] = []
        """Nothing of a killed process is collected while the world lasts: that would run its ``finally``."""
        self.watch = Watch(self)
        self.chaos = Chaos(self)
        self._turns = 0
        self._turns_counted_at = 0.0
        self._runs: SimulatedLoop | None = None
        self.fingerprint = 0
        """Of every event: who turned, and when."""

    # Time.

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Events at one time happen in the order in which they were scheduled."""
        self._scheduled += 1
        heapq.heappush(self._queue, (when, self._scheduled, action))

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self.at(self.now + seconds, action)

    def run_until(self, until: Callable[[], bool], deadline: float) -> bool:
        """Let things happen until something holds, or that time has come; whether it holds."""
        ends = [False]
        self.at(deadline, lambda: ends.__setitem__(0, True))
        while not until():
            if ends[0]:
                return False
            self._step()
        return True

    def run_for(self, seconds: float) -> None:
        self.run_until(lambda: False, self.now + seconds)

    def _step(self) -> None:
        now = self.now
        when = self._queue[0][0] if self._queue else math.inf
        chosen: SimulatedMachine | None = None
        others: list[SimulatedMachine] = []
        for machine in self._running:
            due = machine.next_due
            if due is None:
                due = machine.due()
            if due < now:  # noqa: PLR1730 - thousands of times a second of the world, and max() is a call
                due = now
            if due < when:
                when, chosen, others = due, machine, []
            elif due == when:
                others.append(machine)
        if others:
            chosen = self.random.choice([chosen, *others])
        if when > now:
            self.now = when
        self.fingerprint = hash((self.fingerprint, self.now, 0 if chosen is None else chosen.number))
        try:
            if chosen is None:
                self.let_run(None)
                heapq.heappop(self._queue)[2]()
            else:
                chosen.turn()
                self._count_turn()
        except ProcessGoneError:
            pass
        self.watch.after_event(chosen)

    def let_run(self, loop: SimulatedLoop | None) -> None:
        """Makes this the running loop of asyncio. Setting it is a call of the operating system."""
        if loop is not self._runs:
            self._runs = loop
            events._set_running_loop(loop)

    def _count_turn(self) -> None:
        self._turns += 1
        if self._turns % TURNS_A_SECOND_MAX == 0:
            took = self.now - self._turns_counted_at
            check("nobody_is_busy_with_nothing", took >= 1, f"{TURNS_A_SECOND_MAX} turns within {took:.3f} s")
            self._turns_counted_at = self.now

    def processes_changed(self) -> None:
        """One has begun or ended."""
        machines = [controller.machine for controller in self.controllers.values() if controller.machine is not None]
        self._running = [*machines, self.client.machine]

    # Processes.

    def crash_now(self, machine: SimulatedMachine) -> None:
        """The process ends in the middle of what it does; perhaps the whole machine does."""
        controller = self._owner(machine)
        if controller is None:  # an operator's command
            machine.die()
            return
        self.count("crashes at the disk")
        self.kill(controller, power=self.random.random() < 0.5)
        self.chaos.crashed(controller)

    def _owner(self, machine: SimulatedMachine) -> Controller | None:
        return next((one for one in self.controllers.values() if one.machine is machine), None)

    def kill(self, controller: Controller, *, power: bool) -> None:
        """As kill -9, or as a power cut: no ``finally`` runs."""
        machine = controller.machine
        if machine is None:
            return
        self.trace(f"{controller.name} {'loses its power' if power else 'is killed'}")
        machine.die()
        self._graves.append(machine)
        self.network.process_gone(machine, with_its_machine=power)
        controller.gone()
        self.watch.stopped(controller, machine)
        if power:
            self.network.machines_off.add(controller.host)
            if controller.disk.lose_power(self.random):
                self.count("power cuts that lost something")

    def started(self, controller: Controller) -> None:
        self.trace(f"{controller.name} starts, life {controller.life}")
        self.watch.started(controller)

    def booted(self, controller: Controller, inside: Inside) -> None:
        self.watch.booted(controller, inside)

    def ended(self, controller: Controller, machine: SimulatedMachine, error: BaseException | None) -> None:
        """The process has ended by itself."""
        if not machine.is_alive:
            return
        self.trace(f"{controller.name} has ended: {error!r}")
        self.watch.ended(controller, machine, error)
        machine.die()
        self._graves.append(machine)
        self.network.process_gone(machine, with_its_machine=False)
        controller.gone()
        self.watch.stopped(controller, machine)

    def replace_disk(self, controller: Controller) -> None:
        """By an empty one, formatted for the same node."""
        controller.disk = SimulatedDisk()
        controller.is_given_up = False
        controller.format()
        self.watch.disk_replaced(controller)

    # Telling.

    def count(self, what: str) -> None:
        self.coverage[what] += 1

    def trace(self, text: str) -> None:
        if self._show is not None:
            self._show(f"{self.now:12.6f} {text}")

    # The whole run.

    def wait(self, rule: str, why_not: Callable[[], str], seconds: float) -> None:
        """
        :param why_not: becomes empty within so many seconds.
        :raises Violation: it does not.
        """
        if not self.run_until(lambda: not why_not(), self.now + seconds):
            raise Violation(rule, why_not())

    def begin(self) -> None:
        """Format every disk and start every process."""
        voters: VoterSet | None = first_voters(self) if self.options.dynamic else None
        if voters is not None:
            self.watch.formatted_with(voters)
        for controller in self.controllers.values():
            is_voter = controller.node_id in self.first_voters
            controller.format(voters if is_voter else None)
        for controller in self.controllers.values():
            self.after(self.random.uniform(0, 0.5), controller.start)
        self.client.start()
        for broker in self.brokers:
            broker.start()
        self.watch.claims.begin()

    def run(self) -> None:
        """Faults, then peace; every rule is looked at all the time.

        :raises Violation: one is broken.
        """
        self.begin()
        self.faults_go_on = True
        self.chaos.begin()
        self.run_for(self.options.chaos_seconds)
        self.faults_go_on = False
        self.chaos.end()
        if self.majority_is_lost:
            self.run_for(SETTLING_SECONDS / 2)
        else:
            self.wait("a_majority_that_can_talk_agrees", lambda: why_not_agreed(self.watch), SETTLING_SECONDS)
        self.client.is_done = True
        self.run_for(1.0)
        end = self.watch.committed.image.image.provenance.offset + 1  # control records change no image
        if not self.majority_is_lost:
            self.wait("what_waits_is_gone_when_idle", self.watch.claims.why_busy, IDLE_SECONDS)
            self.wait("images_have_all_that_is_committed", lambda: why_behind(self.watch, end), IDLE_SECONDS)
            self._change_leader()
            self.wait("brokers_without_heartbeats_are_fenced", lambda: why_unfenced(self), FENCING_SECONDS)
        self.watch.at_the_end()
        self.chaos.is_over = True
        self._stop_everybody()

    def _change_leader(self) -> None:
        """In half of the worlds, if the others may elect: it has never heard of brokers that are silent from now on."""
        leader, voters = self.watch.some_leader(), self.watch.voter_keys()
        alive = [
            one
            for one in self.controllers.values()
            if {one.key, ReplicaKey(one.node_id, ZERO_UUID)} & voters  # configured voters have no directories
            and not (one is leader or one.is_given_up or one.node_id in self.chaos.dead)
        ]
        if leader is not None and self.brokers and self.options.seed % 2 and len(alive) > len(voters) // 2:
            self.chaos.is_over = True
            self.count("leaders that end when brokers are silent")
            leader.stop()

    def _stop_everybody(self) -> None:
        for controller in self.controllers.values():
            controller.stop()
        if not self.run_until(lambda: not any(one.runs for one in self.controllers.values()), self.now + 20):
            left = [one.name for one in self.controllers.values() if one.runs]
            raise Violation("who_is_told_to_stop_stops", f"after 20 s these run: {left}")


def simulate(options: Options, show: Callable[[str], None] | None = None) -> Outcome:
    """One run, in a process that ends without any more ado: see `tests.simulation.whole.runner.isolated`. The collector
    is off from here on, so that nothing depends on when it runs, and nothing of a killed process runs at all."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    image_proof.ROUND_SECONDS, image_proof.REPLAY_SECONDS = options.compare_seconds, options.replay_seconds
    snapshotter.CLEAN_SECONDS, snapshot.CHUNK_BYTES_MAX = options.clean_seconds, options.chunk_bytes
    world = World(options, show)
    KEPT.append(world)
    rule, message = None, ""
    try:
        world.run()
    except Violation as violation:
        rule, message = violation.rule, str(violation)
    except Exception as error:  # noqa: BLE001 - a defect of the simulation, or of what it looks at
        rule, message = "nothing_unexpected_is_raised", f"{error!r}\n{traceback.format_exc()}"
    world.let_run(None)
    fingerprint = hash((world.fingerprint, *world.watch.committed.batches))
    return Outcome(options, rule, message, world.coverage, world.now, fingerprint)
