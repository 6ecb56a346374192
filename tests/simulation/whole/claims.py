"""What a controller says of itself, and what it holds, looked at every so often: true, bounded, and gone when idle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrator.config.settings import Settings
from migrator.node.core import NodeCore
from migrator.node.metrics import node_health, reader
from migrator.node.status_source import NodeStatusSource
from migrator.observe.health import NodeHealth
from migrator.observe.journal import Journal
from migrator.observe.loop_health import LoopHealth
from migrator.observe.metrics import MetadataType, Reading
from migrator.observe.status import NodeRole, Status
from migrator.raft.quorum import CHECK_QUORUM_FACTOR
from migrator.raft.states import Role
from migrator.wire.book import Stage
from tests.simulation.whole.breach import check
from tests.simulation.whole.machine import SimulatedMachine

if TYPE_CHECKING:
    from migrator.observe.authorizer_log import AuthorizerLog
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.world import World

LOOK_SECONDS = 0.5
BELIEVED_SECONDS = 6.0
"""For so long at most somebody believes in a leader that leads no longer: the fetch time-out, the time-out of a request
that was under way, and what the clocks differ by."""
LATE_SECONDS = 1.0
"""So much later than the time-out of check quorum a leader resigns at most, since another one was elected: who votes
for that one fetches from it no more."""
QUEUED_MAX = 200
"""Of anything that a controller holds, in a world with 20 writes at a time and 7 controllers."""


@dataclass(frozen=True)
class Inside:
    """The parts of one life of a controller that make claims or hold something."""

    core: NodeCore
    source: NodeStatusSource
    read: Callable[[], Reading]
    health: Callable[[], NodeHealth]
    journal: Journal

    def say(self) -> tuple[Status, Reading, NodeHealth]:
        """What operators and the metrics endpoint are told now."""
        return self.source.status(), self.read(), self.health()

    def queues(self, machine: SimulatedMachine) -> dict[str, int]:
        """What is in each of them."""
        core, book = self.core, machine.book
        rooms = [] if book is None else book.rooms.values()
        return {
            "requests that wait for the quorum": len(core.quorum._replies),
            "events of the quorum": len(core.quorum._inbox),
            "reads for followers": len(core.quorum._reads._waiting),
            "who waits for an offset": len(core.metadata._stable._heap) + len(core.metadata._committed._heap),
            "records that are not applied": core.metadata._loader.backlog,
            "errands": len(core.keeper.sessions._errands) if core.keeper.leads else 0,
            "requests that wait for room": sum(room.is_contested for room in rooms),
            "requests that are worked on or answered": sum(
                len(room.charges) for room in rooms if room.stage in {Stage.WORKING, Stage.ANSWERING}
            ),
            "entries of the journal": len(self.journal._waiting),
        }


def inside_of(settings: Settings, services: Any, audit_log: AuthorizerLog) -> Inside:
    """Of what the gRPC server would serve."""
    source, orders = services[0]._source, services[1]._source
    core, health = source._core, LoopHealth()
    read = reader(settings, core, source._migration, orders._reassignment, health, audit_log)
    return Inside(core, source, read, lambda: node_health(core, health), source._lock._journal)


class Claims:
    """The rules about them, in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._elected_at: dict[int, float] = {}
        self._ended_at: dict[int, float] = {}
        self._replaced_in: dict[int, int] = {}
        """In which epoch the last disk of each was lost: its leader has heard the old one."""
        self._no_voter_since: dict[tuple[int, int], float] = {}
        """By controller and epoch: it leads, and is no voter."""
        self._journals: dict[int, list[tuple[int, str]]] = {}
        """What the journal of each disk held when its process ended."""

    def begin(self) -> None:
        self._look()

    # What the watch tells.

    def elected(self, epoch: int) -> None:
        """By those who voted for it: once more after a start, if its disk refused to note that it leads."""
        self._elected_at.setdefault(epoch, self._world.now)
        self._ended_at.pop(epoch, None)

    def leads_no_longer(self, epoch: int) -> None:
        """Neither it nor its next process, which says for a while who led last."""
        self._ended_at[epoch] = self._world.now

    def booted(self, controller: Controller, inside: Inside) -> None:
        before = self._journals.get(controller.node_id, [])
        held = {(event.sequence, event.text) for event in inside.journal.after(-1)}
        lost = [entry for entry in before if entry not in held]
        check("the_journal_keeps_what_is_durable", not lost, f"{controller.name} lost {lost}, and has {sorted(held)}")

    def process_gone(self, machine: SimulatedMachine, inside: Inside) -> None:
        """An entry has its number once it is durable."""
        self._journals[machine.number] = [(event.sequence, event.text) for event in inside.journal.after(0)]

    def disk_replaced(self, controller: Controller) -> None:
        self._journals.pop(controller.node_id, None)
        self._replaced_in[controller.node_id] = max(self._elected_at, default=0)

    # Every so often.

    def _look(self) -> None:
        for controller in self._world.controllers.values():
            machine, inside = controller.machine, controller.inside
            if machine is not None and inside is not None and not controller.is_ending and not _hangs(machine):
                status, reading, health = controller.in_process(inside.say)
                self._status(controller, machine, status)
                self._metrics(controller, inside, reading, health)
                self._bounded(controller, machine, inside)
        self._world.after(LOOK_SECONDS, self._look)

    def _status(self, controller: Controller, machine: SimulatedMachine, status: Status) -> None:
        name, quorum, committed = controller.name, status.quorum, self._world.watch.committed_by(controller.node_id)
        epoch, leader = quorum.leader_epoch, quorum.leader_id
        is_leader = quorum.role is NodeRole.LEADER
        if leader >= 0:
            led = self._world.watch.leaders.get(epoch)
            check("status_names_the_leader", led == leader, f"{name} says that {leader} leads in {epoch}, it is {led}")
            ended_at = self._ended_at.get(epoch, self._world.now)
            heard_at = self._world.watch.role_since(controller.node_id)  # perhaps of somebody who still believes in it
            since = max(ended_at, heard_at, self._undisturbed_since(machine))
            check(
                "status_names_the_leader",
                self._world.now - since <= BELIEVED_SECONDS,
                f"{name} says that {leader} leads in {epoch}, which is over since {self._ended_at.get(epoch)}",
            )
        if is_leader and not self._world.watch.is_apart(controller):
            check("who_says_that_it_leads_leads", leader == controller.node_id, f"{name} leads, and names {leader}")
            newer = min((at for later, at in self._elected_at.items() if later > epoch), default=self._world.now)
            since = max(newer, self._undisturbed_since(machine))
            fetch_seconds = controller.settings().controller_quorum_fetch_timeout_ms / 1000
            check(
                "who_says_that_it_leads_leads",
                self._world.now - since <= CHECK_QUORUM_FACTOR * fetch_seconds + LATE_SECONDS,
                f"{name} leads in {epoch}, and another one in a later epoch since {newer:.3f}",
            )
        core = controller.inside.core if controller.inside is not None else None
        if is_leader and core is not None and core.quorum.membership.offset < quorum.high_watermark:
            voters = core.quorum.membership.voters
            if voters is not None and voters.voters and controller.node_id not in voters.ids:
                since = self._no_voter_since.setdefault((controller.node_id, epoch), self._world.now)
                since = max(since, self._undisturbed_since(machine))
                held = self._world.now - since <= BELIEVED_SECONDS
                check("who_is_no_voter_leads_no_longer", held, f"{name} leads in {epoch}, and is none of {voters.ids}")
        end = quorum.high_watermark
        check("status_tells_what_is_committed", end <= committed.end, f"{name} says {end} of {committed.end}")
        wrong = [row for row in quorum.voters if is_leader and row.log_end_offset > quorum.log_end_offset]
        check(
            "status_tells_how_far_voters_are", not wrong, f"{name} ends at {quorum.log_end_offset}, and tells {wrong}"
        )
        for row in quorum.voters if is_leader else ():
            self._row(name, epoch, row.node_id, row.log_end_offset)
        migration = status.migration
        no_migration = not migration.active or migration.public_state not in {"DualWrite", "MigrateZkData"}
        check("nobody_says_that_it_migrates", no_migration, f"{name}: {migration}")

    def _row(self, name: str, epoch: int, node_id: int, told: int) -> None:
        """A follower of the same epoch and leader is never cut below what it has told."""
        follower = self._world.controllers.get(node_id)
        if follower is None or follower.inside is None or epoch <= self._replaced_in.get(node_id, 0):
            return
        quorum, log = follower.inside.core.quorum, follower.inside.core.storage.log
        if quorum.role is Role.FOLLOWER and quorum.epoch == epoch:
            end = log.end_offset()
            check("status_tells_how_far_voters_are", told <= end, f"{name} says {told} of {node_id}, which has {end}")

    def _metrics(self, controller: Controller, inside: Inside, reading: Reading, health: NodeHealth) -> None:
        name, core, committed = controller.name, inside.core, self._world.watch.committed_by(controller.node_id)
        active = core.controller.epoch is not None
        check("metrics_tell_who_is_active", reading.active == active, f"{name}: {reading.active}, and is {active}")
        if reading.active:
            led = self._world.watch.leaders.get(reading.epoch)
            is_leader = core.quorum.role is Role.LEADER and core.quorum.epoch == reading.epoch
            check(
                "metrics_tell_who_is_active",
                led == controller.node_id and is_leader,
                f"{name} is active in {reading.epoch} of {led}, and is {core.quorum.role} in {core.quorum.epoch}",
            )
        check("metrics_tell_the_role", reading.role == core.quorum.role.value == health.role, f"{name}: {reading.role}")
        end = max(reading.high_watermark, reading.last_applied_offset + 1)
        check("metrics_tell_what_is_committed", end <= committed.end, f"{name} says {end} of {committed.end}")
        check("metrics_tell_what_is_committed", end <= reading.log_end_offset, f"{name}: {end} of its own log")
        quiet = not reading.migration.dual_writing and reading.metadata_type is MetadataType.KRAFT
        check("nobody_says_that_it_migrates", quiet, f"{name}: {reading.migration}, {reading.metadata_type}")

    def _bounded(self, controller: Controller, machine: SimulatedMachine, inside: Inside) -> None:
        queues = inside.queues(machine)
        queues["tasks"] = len(machine.loop.tasks)
        large = {
            name: size for name, size in queues.items() if size > (QUEUED_MAX if "records" not in name else 10_000)
        }
        check("what_waits_is_bounded", not large, f"{controller.name}: {large}")

    def _undisturbed_since(self, machine: SimulatedMachine) -> float:
        """What was under way for long may have arrived then; and its disk says who led when it starts."""
        return max(self._world.network.mended_at.get(machine.host, 0.0), machine.hangs_until, machine.began_at)

    # When nobody asks for anything.

    def why_busy(self) -> str:
        """Every other controller may wait for records, with one fetch; what the journal could not write waits for its
        next entry."""
        controllers = self._world.controllers.values()
        fetches = len(controllers) - 1
        for controller in controllers:
            machine, inside = controller.machine, controller.inside
            if machine is not None and inside is not None:
                left = {name: size for name, size in inside.queues(machine).items() if size}
                left.pop("entries of the journal", None)
                if left.pop("requests that wait for the quorum", 0) > fetches or left:
                    return f"{controller.name}: {inside.queues(machine)}"
        return ""

    def stopped(self, controller: Controller, machine: SimulatedMachine) -> None:
        """In order: nothing is left of it."""
        listening = self._world.network.listening.items()
        left = {
            "tasks": [task.get_name() for task in machine.loop.tasks if task is not controller.run],
            "threads": [name for name, threads in machine.asked_for.items() if not threads.is_shut_down],
            "files": [machine.open_files] if machine.open_files else [],
            "listeners": [at for at, sock in listening if sock.machine is machine],
        }
        check("a_stop_leaves_nothing", not any(left.values()), f"{controller.name} left {left}")
        rooms = [] if machine.book is None else machine.book.rooms.values()
        charges = [charge.held for room in rooms for charge in room.charges]
        check("a_stop_leaves_nothing", not charges, f"{controller.name} left these charges: {charges}")


def _hangs(machine: SimulatedMachine) -> bool:
    return machine.hangs_until > machine.world.now
