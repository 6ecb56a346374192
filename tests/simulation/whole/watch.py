"""What must hold, looked at from outside after every event; what it costs grows with what has changed."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from migrator.controller.quorum_target import KEY
from migrator.image.model import MetadataImage
from migrator.image.replay import replay
from migrator.node.core import NodeCore
from migrator.raft.config import EPOCH_LIMIT
from migrator.raft.quorum import Quorum
from migrator.raft.states import Role
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.batch import Batch
from migrator.records.metadata import ConfigRecord
from migrator.records.uuid import ZERO_UUID
from migrator.supervision import TaskFailures
from tests.simulation.invariants import Violation as CoreViolation
from tests.simulation.sightings import Sightings, follow
from tests.simulation.whole.breach import Violation, check
from tests.simulation.whole.claims import Claims, Inside
from tests.simulation.whole.committed import Committed, GivenUp, Hashed, written
from tests.simulation.whole.machine import SimulatedMachine
from tests.simulation.whole.promises import Promises
from tests.simulation.whole.replays import check_replay
from tests.simulation.whole.writes import PROOFS, Claim

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.world import World

WAS_LEADER = frozenset((Role.LEADER, Role.RESIGNED))
REFUSED = frozenset(("StorageError", "NoSpaceError", "OperatorError"))
"""What a task ends with when the disk refuses."""


@dataclass
class Shadow:
    """Of one life of a controller: what was seen of it so far."""

    core: NodeCore
    raft: Quorum
    """What its consensus knows."""
    inside: Inside
    sightings: Sightings
    work: Iterator[None] | None = None
    """Of a snapshot that is being loaded."""
    role: Role = Role.UNATTACHED
    epoch: int = 0
    role_since: float = 0.0
    high_watermark: int = 0
    checked_to: int = -1
    """Up to here its log is the committed one."""
    published: Hashed = field(default_factory=Hashed)
    is_replay_due: bool = True
    """At a start and at each change of who leads, as soon as all of the log is applied."""


class Watch:
    """The rules of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.committed = Committed()
        self.claims = Claims(world)
        self.leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._synced: dict[int, int] = {}
        """Up to where the log of each was durable, as it said, when its process ended."""
        self._filling: set[int] = set()
        """Whose disk began empty, and did not have all when its process ended."""
        self._shadows: dict[int, Shadow] = {}
        self._voters = frozenset(ReplicaKey(node_id, ZERO_UUID) for node_id in world.first_voters)
        self._only_validated: set[Claim] = set()
        self._given_up: dict[int, GivenUp] = {}
        """Those that may run on with their disks."""
        self._strays_are: GivenUp | None = None
        """A controller that has met the given-up replicas first, and has records that only they have committed."""
        self._recovered_to = self._recovered_epoch = 0
        """Where the records of the recovery end: who has not come so far has other voters in its log."""
        self.refused: frozenset[ReplicaKey] = frozenset()
        """Replicas that were given up when the majority was lost."""
        self._lost: list[Claim | str] = []
        """What was acknowledged and is not committed: the client's task cannot raise it."""
        self._disagreements: list[str] = []
        """What a leader has said about the images of the controllers."""
        self._broken: list[CoreViolation] = []
        """Rules of the core."""
        self.promises = Promises()

    # What the world tells.

    def formatted_with(self, voters: VoterSet) -> None:
        """The disks of a dynamic quorum name its voters. Whoever asks before a controller has started is told these."""
        self._voters = keys_of(voters)

    def started(self, controller: Controller) -> None:
        """Its process begins."""
        self.world.chaos.changed(controller, "starting")

    def booted(self, controller: Controller, inside: Inside) -> None:
        core = inside.core
        sightings = follow(core.quorum._core, self.world.count, self._broken)
        self._shadows[controller.node_id] = Shadow(core, core.quorum._core._quorum, inside, sightings)
        core.image_comparison.listeners.append(lambda text: self._disagreements.append(f"{controller.name}: {text}"))
        end, synced = core.storage.log.end_offset(), self._synced.get(controller.node_id, 0)
        check("what_is_synced_is_there_at_the_next_start", end >= synced, f"{controller.name}: {synced}, now {end}")
        self.claims.booted(controller, inside)

    def stopped(self, controller: Controller, machine: SimulatedMachine) -> None:
        shadow = self._shadows.pop(controller.node_id, None)
        if shadow is None:
            return
        if shadow.role in WAS_LEADER:
            self.claims.leads_no_longer(shadow.epoch)
            known = self.committed_by(controller.node_id)  # its last turn was not looked at, and followers may know it
            known.counted = max(known.counted, shadow.raft.high_watermark)
        log_end = shadow.core.storage.log.end_offset()
        self._synced[controller.node_id] = min(shadow.raft.synced_end, log_end)
        self._filling.discard(controller.node_id)
        if shadow.raft.must_fetch_first:
            self._filling.add(controller.node_id)
        self.claims.process_gone(machine, shadow.inside)

    def core_of(self, node_id: int) -> NodeCore | None:
        """While it runs and is booted."""
        shadow = self._shadows.get(node_id)
        return None if shadow is None else shadow.core

    def disk_replaced(self, controller: Controller) -> None:
        """It knows nothing any more of the epochs that it has seen."""
        self._epochs.pop(controller.node_id, None)
        self._given_up.pop(controller.node_id, None)
        self._synced.pop(controller.node_id, None)
        self.claims.disk_replaced(controller)
        self.promises.disk_replaced(controller)

    def recovered(self, survivor: Controller, batches: list[Batch], lost: frozenset[ReplicaKey]) -> None:
        """The survivor's log is the quorum's from now on, all of it. What was committed and is not in it is lost; those
        who were given up may have it, and go on by themselves."""
        old, epoch = self.committed, batches[-1].header.leader_epoch
        known = {first: (first, crc, epoch) for first, crc, epoch in old.batches}
        start = next(
            (at for at in map(written, batches) if at[0] >= old.end or known.get(at[0]) != at), written(batches[-1])
        )[0]
        self.committed = old.up_to(start)
        self.refused |= lost
        self._recovered_to, self._recovered_epoch = batches[-1].header.next_offset, epoch
        self._voters = frozenset((survivor.key,))
        self._given_up = {key.node_id: GivenUp(old, epoch) for key in lost}
        self._strays_are = GivenUp(old, EPOCH_LIMIT)
        for batch in batches:
            self._is_committed(survivor, batch)
        self.committed.counted = self.committed.end

    def is_apart(self, controller: Controller) -> bool:
        """Whether it was given up, or follows given-up replicas: it has other leaders."""
        return controller.is_given_up or controller.node_id in self._given_up

    def committed_by(self, node_id: int) -> Committed:
        """What the quorum has committed that a controller belongs to."""
        return self._given_up[node_id].committed if node_id in self._given_up else self.committed

    def ended(self, controller: Controller, machine: SimulatedMachine, error: BaseException | None) -> None:
        """By itself: after an order, or because its disk fails."""
        world = self.world
        if isinstance(error, Violation):
            raise error
        if error is not None:
            is_news = controller.core is not None and "the journal cannot be written" in str(error)
            check("nobody_stops_itself", machine.was_refused and not is_news, f"{controller.name} stopped: {error!r}")
            world.count("stops for a failed disk")
        else:
            check("nobody_stops_itself", controller.is_stopping, f"{controller.name} stopped without an order")
            self.claims.stopped(controller, machine)
        world.chaos.ended(controller)

    def after_event(self, machine: SimulatedMachine | None) -> None:
        """The loop of a controller has turned, or an event of the world has happened."""
        if self._lost:
            raise Violation("what_is_acknowledged_is_committed", f"{self._lost}")
        if self._disagreements:
            raise Violation("the_images_of_the_controllers_are_equal", f"{self._disagreements}")
        for broken in self._broken:
            check(broken.rule, holds=False, what=str(broken))
        if machine is None:
            return
        if machine.complaints:
            raise Violation("nothing_unexpected_is_raised", f"{machine.name}: {machine.complaints}")
        if machine.failures._by_kind and (failed := _failed(machine)):
            raise Violation("nothing_unexpected_is_raised", f"{machine.name}: tasks failed: {failed}")
        shadow = self._shadows.get(machine.number)
        if shadow is not None and machine.is_alive:
            self._look(self.world.controllers[machine.number], shadow)

    # One controller.

    def _look(self, controller: Controller, shadow: Shadow) -> None:
        """After each turn: mostly its consensus has heard nothing, and no snapshot has come or is loaded."""
        raft, core = shadow.raft, shadow.core
        has_changed = shadow.sightings.is_new or core.metadata._work is not shadow.work or controller.is_stopping
        if has_changed:
            shadow.sightings.is_new, shadow.work = False, core.metadata._work
            role, epoch = raft.state.role, raft.epoch
            if role is not shadow.role or epoch != shadow.epoch:
                self._role(controller, shadow, role, epoch)
        if shadow.is_replay_due and not controller.is_ending and core.metadata.is_caught_up:
            shadow.is_replay_due = False
            self._check_replay(controller, shadow)
        if has_changed:
            self.world.chaos.look(controller)
            self.promises.look(controller, shadow)
            if raft.high_watermark != shadow.high_watermark:
                has_failed = controller.is_ending and core.storage.log._failure is not None  # amid a change of it
                if not has_failed:
                    self._high_watermark(controller, shadow, raft.high_watermark)
        published = core.metadata.published
        if published is not shadow.published.image:
            self._published(controller, shadow, published)

    def _role(self, controller: Controller, shadow: Shadow, role: Role, epoch: int) -> None:
        known = self._epochs.get(controller.node_id, 0)
        check("epochs_never_fall", epoch >= known, f"{controller.name} was in epoch {known}, and is in {epoch}")
        if not _was_refused(controller):  # else it may be that the disk does not take it, and nobody hears of it
            self._epochs[controller.node_id] = epoch
        self.world.trace(f"{controller.name} is {role.value} in epoch {epoch}")
        if shadow.role is Role.LEADER and role is Role.RESIGNED:
            refused = shadow.core.quorum.refusals.count
            check(
                "a_leaders_own_records_fit",
                not refused or _was_refused(controller),
                f"{controller.name}: its log refused them",
            )
        if shadow.role in WAS_LEADER:
            self.claims.leads_no_longer(shadow.epoch)
        if role is Role.RESIGNED:
            self.claims.leads_no_longer(epoch)
        if shadow.raft.leader_id == controller.node_id:  # or led: killed between the note of that and its first act
            leader = self.leaders.setdefault(epoch, controller.node_id)
            check("one_leader_an_epoch", leader == controller.node_id, f"{controller.node_id} and {leader} in {epoch}")
        given_up = self._given_up.get(controller.node_id)
        if given_up is not None:
            check(
                "who_was_given_up_hears_of_no_later_epoch",
                epoch < given_up.epoch,
                f"{controller.name} was given up in epoch {given_up.epoch}, and is in {epoch}",
            )
        if role is Role.LEADER:
            self.world.count("elections" if given_up is None else "elections among the given-up")
            if given_up is None:
                self.claims.elected(epoch)
            shadow.is_replay_due = True
            end = controller.in_process(shadow.core.storage.log.end_offset)
            committed = self.committed_by(controller.node_id)
            is_late = bool(committed.batches) and committed.batches[-1][2] > epoch  # its votes took too long
            is_whole = is_late or end >= committed.end
            check("a_leader_has_all", is_whole, f"{controller.name} ends at {end} < {committed.end}")
            self._check_whole(controller.name, shadow.published)
        shadow.role, shadow.epoch, shadow.role_since = role, epoch, self.world.now

    def _high_watermark(self, controller: Controller, shadow: Shadow, high_watermark: int) -> None:
        check(
            "the_high_watermark_rises",
            high_watermark >= shadow.high_watermark,
            f"{controller.name}: {shadow.high_watermark} to {high_watermark}",
        )
        shadow.high_watermark = high_watermark
        known = self.committed_by(controller.node_id)
        if shadow.role in WAS_LEADER:
            known.counted = max(known.counted, high_watermark)
        is_counted = high_watermark <= known.counted or self._may_have_strayed(controller)
        what = f"{controller.name}: {high_watermark}, and no leader beyond {known.counted}"
        check("only_leaders_commit", is_counted, what)
        if shadow.role is Role.LEADER:
            self.promises.check_disks(controller, self._shadows, high_watermark)
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
        header, found = batch.header, written(batch)
        self._note_stray(controller, header.base_offset, header.leader_epoch)
        known = self.committed_by(controller.node_id)
        if header.base_offset == known.end:
            known.batches.append(found)
            known.ends.append(header.next_offset)
            before = known.loader.published
            replay(known.loader, batch)
            records = [] if header.is_control else [record for record, _ in batch.records()]
            known.claims.update(PROOFS[type(it)](it, before) for it in records if type(it) in PROOFS)
            known.targets.update(it.value or "" for it in records if isinstance(it, ConfigRecord) and it.name == KEY)
            self._nothing_is_only_validated(known.claims)
            known.loader.commit(header.next_offset)
            known.image.follow(known.loader.published)
            known.meaning.judge(records, before, known.image.image)
            known.images[known.image.image.provenance.offset] = known.image.image
            known.digests[known.image.image.provenance.offset] = known.image.digest
            return
        index = bisect_left(known.batches, (header.base_offset, 0, 0))
        there = known.batches[index] if index < len(known.batches) else None
        check("what_is_committed_is_the_same_everywhere", there == found, f"{controller.name}: {found}, not {there}")

    def _note_stray(self, controller: Controller, offset: int, epoch: int) -> None:
        """A controller that is new in the quorum may follow those who were given up: then an operator formats it again.
        It has a record of that epoch at that offset. Of an old epoch, the survivor's quorum has only what the
        survivor's log held, and that may go on beyond what the given-up replicas have."""
        strays_are = self._strays_are
        if strays_are is None or not self._may_have_strayed(controller):
            return
        if offset < 0 or epoch >= self._recovered_epoch or epoch == self.committed.epoch_at(offset):
            return
        self._given_up[controller.node_id] = strays_are
        self.world.recoveries.format_again(controller)

    def _may_have_strayed(self, controller: Controller) -> bool:
        is_known = controller.node_id in self._given_up or controller.key in self._voters
        return self._strays_are is not None and not is_known

    def _published(self, controller: Controller, shadow: Shadow, image: MetadataImage) -> None:
        offset = image.provenance.offset
        self._note_stray(controller, offset, image.provenance.epoch)  # by a snapshot
        true = self.committed_by(controller.node_id).hashed_at(offset)
        shadow.published.follow(image, true)
        is_committed = true is not None or offset < 0 or self._may_have_strayed(controller)
        check("what_is_published_is_committed", is_committed, f"{controller.name} publishes at offset {offset}")
        check(
            "the_image_is_a_replay_of_the_log",
            true is None or shadow.published.digest == true.digest,
            f"{controller.name} publishes at offset {offset} another image than the log has",
        )

    def _check_replay(self, controller: Controller, shadow: Shadow) -> None:
        committed = self.committed_by(controller.node_id)
        controller.in_process(partial(check_replay, controller.name, shadow.core, committed))

    def _check_whole(self, name: str, hashed: Hashed) -> None:
        """The long way, now and then: digests that follow do not see what is written into a part that images share."""
        check("an_image_does_not_change", hashed.is_whole, f"{name}: offset {hashed.image.provenance.offset}")

    # Everybody.

    def voter_keys(self) -> frozenset[ReplicaKey]:
        """Who votes, as the one says that has the longest log."""
        voters = self._voters_in_the_log()
        if voters is not None:
            self._voters = keys_of(voters)
        both = self._voters & self.refused
        check("who_was_given_up_never_votes_again", not both, f"{sorted(map(str, both))}")
        return self._voters

    def _voters_in_the_log(self) -> VoterSet | None:
        shadows = [one for one in self.of_the_quorum().values() if one.high_watermark >= self._recovered_to]
        if not shadows:
            return None
        longest = max(shadows, key=lambda shadow: (shadow.high_watermark, shadow.epoch))
        return longest.core.quorum.membership.voters

    def of_the_quorum(self) -> dict[int, Shadow]:
        """All but those that were given up."""
        return {node_id: shadow for node_id, shadow in self._shadows.items() if node_id not in self._given_up}

    def is_dynamic(self) -> bool:
        """Whether the voters are in the log: from the format on, or since an upgrade."""
        return any(key.directory_id != ZERO_UUID for key in self.voter_keys())

    def addresses_are_known(self) -> bool:
        """Whether the log says of each voter in it where that is."""
        voters = self._voters_in_the_log()
        return voters is not None and all(
            voter.endpoints and voter.endpoints[0].port == self.world.controllers[voter.voter_id].port
            for voter in voters.voters
        )

    def some_leader(self) -> Controller | None:
        """The one in the highest epoch."""
        shadows = self.of_the_quorum().items()
        leaders = [(shadow.epoch, node_id) for node_id, shadow in shadows if shadow.role is Role.LEADER]
        return self.world.controllers[max(leaders)[1]] if leaders else None

    def takes_part(self, controller: Controller) -> bool:
        """Whether it follows or leads."""
        shadow = self._shadows.get(controller.node_id)
        return shadow is not None and shadow.core.quorum.leader_id is not None

    def may_lose_disk(self, controller: Controller) -> bool:
        """Whether everybody else of a majority has, durably, what is committed, and no voter is lost already. A
        voter whose disk began empty waits for every voter: if one is lost in a new quorum, a person has to decide.
        While a change of voters is under way, the voters that remain may be too few without this disk."""
        keys = self.voter_keys()
        own = {ReplicaKey(one.node_id, one.directory_id) for one in self.world.controllers.values()}
        if self.is_dynamic() and not (keys <= own and self.addresses_are_known() and self._voters_rest()):
            return False
        voters = {key.node_id for key in keys}
        whole = [
            node_id
            for node_id, shadow in self.of_the_quorum().items()
            if node_id in voters
            and node_id != controller.node_id
            and self._has_all(shadow)
            and not shadow.core.quorum._core._quorum.must_fetch_first
        ]
        return len(whole) > len(voters) // 2

    def _voters_rest(self) -> bool:
        """Whether no log has a change of voters that is not committed, and no operator waits for one."""
        changes = (shadow.core.quorum.membership.offset for shadow in self.of_the_quorum().values())
        return max(changes, default=-1) < self.committed.end and not self.world.operator.is_busy

    def _has_all(self, shadow: Shadow) -> bool:
        """Whether all committed records are on its disk: a log with the last batch has all before it."""
        known, log = self.committed, shadow.core.storage.log
        is_durable = bool(known.batches) and shadow.raft.synced_end >= known.end
        return is_durable and log.epoch_at(known.end - 1) in {known.batches[-1][2], None}

    def role_since(self, node_id: int) -> float:
        shadow = self._shadows.get(node_id)
        return 0.0 if shadow is None else shadow.role_since

    def may_vote(self, node_id: int) -> bool:
        """Whether its disk has had all that a leader had: until then it waits for voters that may never come back."""
        shadow = self._shadows.get(node_id)
        if shadow is not None:
            return shadow.raft.synced_end > 0 and not shadow.raft.must_fetch_first
        return self._synced.get(node_id, 0) > 0 and node_id not in self._filling

    def has_log(self, controller: Controller) -> bool:
        """Whether it runs, and knows of something that is committed."""
        shadow = self._shadows.get(controller.node_id)
        return shadow is not None and shadow.high_watermark > 0

    def roles(self) -> dict[int, tuple[str, int, int | None]]:
        return {
            node_id: (shadow.role.value, shadow.epoch, shadow.core.quorum.leader_id)
            for node_id, shadow in self._shadows.items()
        }

    def acknowledged(self, claim: Claim, node_id: int) -> None:
        """A controller has told the client that this is written."""
        self.world.count("acknowledged writes")
        self.world.count(f"acknowledged: {claim[0]}")
        if claim not in self.committed_by(node_id).claims:
            self._lost.append(claim)

    def validated(self, claim: Claim) -> None:
        """A controller has told the client that this could be written."""
        self.world.count("only validated")
        self._only_validated.add(claim)

    def _nothing_is_only_validated(self, written: set[Claim]) -> None:
        both = self._only_validated & written
        check("what_is_only_validated_is_never_written", not both, f"{sorted(map(str, both))}")

    def retargeted(self, target: str, node_id: int) -> None:
        """A controller has told the operator that this is the target of the voters."""
        if target not in self.committed_by(node_id).targets:
            self._lost.append(f"the target {target or 'none'}")

    def at_the_end(self) -> None:
        """Images hold what they held, and are those of the logs; nothing ran but what the world has let run."""
        check("nothing_runs_beside_the_world", threading.active_count() == 1, f"{threading.enumerate()}")
        self._check_whole("the replay", self.committed.image)
        for node_id, shadow in self._shadows.items():
            controller = self.world.controllers[node_id]
            self._check_whole(controller.name, shadow.published)
            if not controller.is_ending and shadow.core.metadata.is_caught_up:
                self._check_replay(controller, shadow)


def _failed(machine: SimulatedMachine) -> Mapping[str, TaskFailures]:
    """Tasks, but for those that a disk stops, and those whose error stops the process: `ended` judges that."""
    expected = REFUSED if machine.was_refused else {"OperatorError"}
    failed = machine.failures.read().items()
    return {name: failures for name, failures in failed if failures.last_error not in expected}


def _was_refused(controller: Controller) -> bool:
    """By its disk, in this life."""
    return controller.machine is None or controller.machine.was_refused


def keys_of(voters: VoterSet) -> frozenset[ReplicaKey]:
    return frozenset(voters.key(node_id) for node_id in voters.ids)
