"""What must hold, looked at from outside after every event; what it costs grows with what has changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrator.controller.quorum_target import KEY, target_of
from migrator.image.digest import MODULUS, digest, digest_steps
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.replay import replay
from migrator.node.core import NodeCore
from migrator.raft.states import Role
from migrator.raft.voter_set import ReplicaKey
from migrator.records.batch import Batch
from migrator.records.metadata import ConfigRecord
from migrator.records.uuid import ZERO_UUID
from migrator.supervision import FAILURES
from tests.simulation.whole.machine import SimulatedMachine
from tests.simulation.whole.writes import PROOFS, Claim

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.world import World


class Violation(Exception):  # noqa: N818 - as in the simulation of the core
    """A rule is broken."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def check(rule: str, holds: object, what: str) -> None:
    if not holds:
        raise Violation(rule, what)


@dataclass
class Hashed:
    """An image with its digest, which follows it by what differs from the image before: from the empty one on, so that
    the first image of a life, and one that a snapshot brings, are hashed as a whole."""

    image: MetadataImage = EMPTY_IMAGE
    digest: int = 0

    def follow(self, image: MetadataImage) -> None:
        self.digest = (self.digest + sum(digest_steps(self.image, image))) % MODULUS
        self.image = image

    @property
    def is_whole(self) -> bool:
        """Whether nothing has been written into what images share."""
        return self.digest == digest(self.image)


@dataclass
class Shadow:
    """Of one life of a controller: what was seen of it so far."""

    core: NodeCore
    role: Role = Role.UNATTACHED
    epoch: int = 0
    high_watermark: int = 0
    checked_to: int = -1
    """Up to here its log is the committed one."""
    published: Hashed = field(default_factory=Hashed)


@dataclass
class Committed:
    """What was ever committed, as the first who said so had it."""

    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First offset, checksum, epoch."""
    ends: list[int] = field(default_factory=list)
    targets: set[str] = field(default_factory=lambda: {""})
    """Of voters, that were ever set; empty for none."""
    image: Hashed = field(default_factory=Hashed)
    """What a replay comes to."""
    digests: dict[int, int] = field(default_factory=dict)
    """Of it, by its last offset, at the ends of batches outside of transactions."""
    claims: set[Claim] = field(default_factory=set)
    """What its records prove of what the client has asked for."""
    loader: ImageLoader = field(default_factory=lambda: ImageLoader(EMPTY_IMAGE))

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0


class Watch:
    """The rules of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.committed = Committed()
        self.leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._shadows: dict[int, Shadow] = {}
        self._voters = frozenset(ReplicaKey(node_id, ZERO_UUID) for node_id in world.first_voters)
        self._only_validated: set[Claim] = set()
        self._lost: list[Claim | str] = []
        """What was acknowledged and is not committed: the client's task cannot raise it."""
        self._disagreements: list[str] = []
        """What a leader has said about the images of the controllers."""
        self._failures = dict(FAILURES.read())

    # What the world tells.

    def started(self, controller: Controller) -> None:
        """Its process begins."""

    def booted(self, controller: Controller, core: NodeCore) -> None:
        self._shadows[controller.node_id] = Shadow(core)
        core.image_comparison.listeners.append(lambda text: self._disagreements.append(f"{controller.name}: {text}"))

    def stopped(self, controller: Controller) -> None:
        self._shadows.pop(controller.node_id, None)

    def disk_replaced(self, controller: Controller) -> None:
        """It knows nothing any more of the epochs that it has seen."""
        self._epochs.pop(controller.node_id, None)

    def ended(self, controller: Controller, machine: SimulatedMachine, error: BaseException | None) -> None:
        """By itself: after an order, or because its disk fails."""
        world = self.world
        if error is not None:
            may_fail = controller.disk.free is not None or machine.fails_syncs or not machine.is_alive
            check("nobody_stops_itself", may_fail, f"{controller.name} stopped: {error!r}")
            world.count("stops for a failed disk")
        else:
            check("nobody_stops_itself", controller.is_stopping, f"{controller.name} stopped without an order")
            left = [task.get_name() for task in machine.loop.tasks if task is not controller.run]
            check("a_stop_leaves_nothing", not left, f"{controller.name} left these tasks: {left}")
            check("a_stop_leaves_nothing", not machine.open_files, f"{controller.name} left {machine.open_files} files")
            listening = [at for at, sock in world.network.listening.items() if sock.machine is machine]
            check("a_stop_leaves_nothing", not listening, f"{controller.name} still listens on {listening}")
        world.chaos.ended(controller)

    def after_event(self, machine: SimulatedMachine | None) -> None:
        """Somebody's loop has turned, or something of the world has happened."""
        if self._lost:
            raise Violation("what_is_acknowledged_is_committed", f"{self._lost}")
        if self._disagreements:
            raise Violation("the_images_of_the_controllers_are_equal", f"{self._disagreements}")
        if machine is None:
            return
        if machine.complaints:
            raise Violation("nothing_unexpected_is_raised", f"{machine.name}: {machine.complaints}")
        shadow = self._shadows.get(machine.number)
        if shadow is not None and machine.is_alive:
            self._look(self.world.controllers[machine.number], shadow)

    # One controller.

    def _look(self, controller: Controller, shadow: Shadow) -> None:
        quorum = shadow.core.quorum
        role, epoch = quorum.role, quorum.epoch
        if (role, epoch) != (shadow.role, shadow.epoch):
            self._role(controller, shadow, role, epoch)
        if quorum.high_watermark != shadow.high_watermark:
            self._high_watermark(controller, shadow, quorum.high_watermark)
        published = shadow.core.metadata.published
        if published is not shadow.published.image:
            self._published(controller, shadow, published)

    def _role(self, controller: Controller, shadow: Shadow, role: Role, epoch: int) -> None:
        known = self._epochs.get(controller.node_id, 0)
        check("epochs_never_fall", epoch >= known, f"{controller.name} was in epoch {known}, and is in {epoch}")
        if controller.disk.free is None:  # else it may be that the disk does not take it, and nobody hears of it
            self._epochs[controller.node_id] = epoch
        self.world.trace(f"{controller.name} is {role.value} in epoch {epoch}")
        if shadow.role is Role.LEADER and role is Role.RESIGNED:
            refused = shadow.core.quorum.refusals.count
            may_refuse = not refused or controller.disk.free is not None
            check("a_leaders_own_records_fit", may_refuse, f"{controller.name}: its log refused them")
        if role is Role.LEADER:
            self.world.count("elections")
            leader = self.leaders.setdefault(epoch, controller.node_id)
            check("one_leader_an_epoch", leader == controller.node_id, f"{controller.node_id} and {leader} in {epoch}")
            end = controller.in_process(shadow.core.storage.log.end_offset)
            check(
                "a_leader_has_all", end >= self.committed.end, f"{controller.name} ends at {end} < {self.committed.end}"
            )
            self._check_whole(controller.name, shadow.published)
        shadow.role, shadow.epoch = role, epoch

    def _high_watermark(self, controller: Controller, shadow: Shadow, high_watermark: int) -> None:
        check(
            "the_high_watermark_rises",
            high_watermark >= shadow.high_watermark,
            f"{controller.name}: {shadow.high_watermark} to {high_watermark}",
        )
        shadow.high_watermark = high_watermark
        for batch in controller.in_process(lambda: list(self._batches(shadow, high_watermark))):
            self._is_committed(controller, batch)

    def _batches(self, shadow: Shadow, end: int) -> Iterator[Batch]:
        log = shadow.core.storage.log
        check("the_high_watermark_is_in_the_log", end <= log.end_offset(), f"{end} > {log.end_offset()}")
        start = max(shadow.checked_to, log.start_offset())
        for batch in shadow.core.storage.batches_from(min(start, log.end_offset())):
            if batch.header.next_offset > end:
                break
            if batch.header.base_offset >= start:
                yield batch
                shadow.checked_to = batch.header.next_offset

    def _is_committed(self, controller: Controller, batch: Batch) -> None:
        header, known = batch.header, self.committed
        written = (header.base_offset, header.crc, header.leader_epoch)
        if header.base_offset == known.end:
            known.batches.append(written)
            known.ends.append(header.next_offset)
            before = known.loader.published
            replay(known.loader, batch)
            records = [] if header.is_control else [record for record, _ in batch.records()]
            known.claims.update(PROOFS[type(it)](it, before) for it in records if type(it) in PROOFS)
            known.targets.update(it.value or "" for it in records if isinstance(it, ConfigRecord) and it.name == KEY)
            self._nothing_is_only_validated()
            known.loader.commit(header.next_offset)
            known.image.follow(known.loader.published)
            known.digests[known.image.image.provenance.offset] = known.image.digest
            return
        index = bisect_left(known.batches, (header.base_offset, 0, 0))
        there = known.batches[index] if index < len(known.batches) else None
        check(
            "what_is_committed_is_the_same_everywhere", there == written, f"{controller.name}: {written}, not {there}"
        )

    def _published(self, controller: Controller, shadow: Shadow, image: MetadataImage) -> None:
        shadow.published.follow(image)
        offset = image.provenance.offset
        true = self.committed.digests.get(offset)
        check(
            "the_image_is_a_replay_of_the_log",
            true is None or shadow.published.digest == true,
            f"{controller.name} publishes at offset {offset} another image than the log has",
        )

    def _check_whole(self, name: str, hashed: Hashed) -> None:
        """The long way, now and then: digests that follow do not see what is written into a part that images share."""
        check("an_image_does_not_change", hashed.is_whole, f"{name}: offset {hashed.image.provenance.offset}")

    # Everybody.

    def voter_keys(self) -> frozenset[ReplicaKey]:
        """Who votes, as the one says that has the longest log."""
        shadows = self._shadows.values()
        if self.world.options.dynamic and shadows:
            longest = max(shadows, key=lambda shadow: (shadow.core.quorum.high_watermark, shadow.epoch))
            voters = longest.core.quorum.membership.voters
            if voters is not None:
                self._voters = frozenset(
                    ReplicaKey(voter.voter_id, voter.voter_directory_id) for voter in voters.voters
                )
        return self._voters

    def may_lose_disk(self, controller: Controller) -> bool:
        """Whether everybody else of a majority has, durably, what is committed, and no voter is lost already."""
        keys = self.voter_keys()
        own = {ReplicaKey(one.node_id, one.directory_id) for one in self.world.controllers.values()}
        if self.world.options.dynamic and not keys <= own:
            return False
        voters = {key.node_id for key in keys}
        whole = [
            node_id
            for node_id, shadow in self._shadows.items()
            if node_id in voters
            and node_id != controller.node_id
            and shadow.core.quorum.high_watermark >= self.committed.end
        ]
        return len(whole) > len(voters) // 2

    def everybody_agrees(self) -> bool:
        return not self.why_not_agreed()

    def why_not_agreed(self) -> str:
        world = self.world
        leaders = [node_id for node_id, shadow in self._shadows.items() if shadow.role is Role.LEADER]
        if len(leaders) != 1:
            return f"the leaders are {leaders}: {self._roles()}"
        leader = self._shadows[leaders[0]].core
        if leader.controller.epoch is None:
            return f"controller {leaders[0]} leads and is not active"
        for node_id, controller in world.controllers.items():
            if node_id in world.chaos.dead:
                continue
            shadow = self._shadows.get(node_id)
            if shadow is None:
                return f"{controller.name} does not run"
            if shadow.core.quorum.leader_id != leaders[0]:
                return f"{controller.name} follows {shadow.core.quorum.leader_id}: {self._roles()}"
            if shadow.published.image.provenance.offset + 1 < self.committed.end - 50:
                return (
                    f"{controller.name} is at {shadow.published.image.provenance.offset}, not at {self.committed.end}"
                )
        target = target_of(leader.metadata.published)
        if target is not None and not world.chaos.dead:
            return f"the voters are {sorted(map(str, self.voter_keys()))}, and shall be {sorted(map(str, target))}"
        return ""

    def _roles(self) -> dict[int, tuple[str, int, int | None]]:
        return {
            node_id: (shadow.role.value, shadow.epoch, shadow.core.quorum.leader_id)
            for node_id, shadow in self._shadows.items()
        }

    def acknowledged(self, claim: Claim) -> None:
        """A controller has told the client that this is written."""
        self.world.count("acknowledged writes")
        self.world.count(f"acknowledged: {claim[0]}")
        if claim not in self.committed.claims:
            self._lost.append(claim)

    def validated(self, claim: Claim) -> None:
        """A controller has told the client that this could be written."""
        self.world.count("only validated")
        self._only_validated.add(claim)

    def _nothing_is_only_validated(self) -> None:
        both = self._only_validated & self.committed.claims
        check("what_is_only_validated_is_never_written", not both, f"{sorted(map(str, both))}")

    def retargeted(self, target: str) -> None:
        """A controller has told the operator that this is the target of the voters."""
        if target not in self.committed.targets:
            self._lost.append(f"the target {target or 'none'}")

    def at_the_end(self) -> None:
        """Nothing failed that was not expected, and images hold what they held."""
        self._check_whole("the replay", self.committed.image)
        for node_id, shadow in self._shadows.items():
            self._check_whole(self.world.controllers[node_id].name, shadow.published)
        new = {
            name: failures.last_error
            for name, failures in FAILURES.read().items()
            if failures.count > (self._failures[name].count if name in self._failures else 0)
        }
        check("nothing_unexpected_is_raised", not new, f"tasks failed: {new}")
