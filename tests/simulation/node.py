"""A simulated node: performs the core's effects on a simulated disk and network, and checks the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from random import Random
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from migrator.errors import InvariantViolation
from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.config import RaftConfig
from migrator.raft.core import RaftNode
from migrator.raft.messages import (
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RaftResponse,
    VoteRequest,
    VoteResponse,
)
from migrator.raft.states import Role
from migrator.raft.voter_set import Membership, ReplicaKey, VoterSet
from migrator.records.control import KRaftVersion, KRaftVoters
from migrator.records.uuid import Uuid
from migrator.values import value
from tests.simulation import invariants as rules
from tests.simulation import watch
from tests.simulation.batches import KEY_BYTES, Batch, BatchStore, Record, opening
from tests.simulation.controller import Controller
from tests.simulation.disk import SimulatedDisk
from tests.simulation.image import Image
from tests.simulation.invariants import Violation, check
from tests.simulation.places import Places
from tests.simulation.planning import Planning, keys
from tests.simulation.sightings import Sightings
from tests.simulation.watch import FETCH_TIMEOUT_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

CLUSTER_ID = "simulated-cluster"
ELECTION_TIMEOUT_MS = 150


class ProcessStopped(Exception):  # noqa: N818 - an event of the simulated world
    """The process ends itself: its disk can't keep a promise."""


@value
class RequestContext:
    """Where a reply goes, and who decides whether it is still wanted."""

    source: int
    source_life: int
    correlation: int
    request: object
    peer: int
    """The node that was asked, under the number that the asker has for it."""


class SimulatedNode:
    """One node through all its lives; ``life`` counts them, ``raft`` is None while its process is down."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.random = Random(f"{world.options.seed} node {node_id}")
        self.clock_rate = self.random.uniform(1 - (skew := world.options.clock_skew), 1 + skew)
        self.clock_offset = self.random.randrange(100_000)
        self.key = ReplicaKey(node_id, world.directory(node_id, 0))
        self.disk = SimulatedDisk()
        self.raft: RaftNode | None = None
        self.life = 0
        self.paused_until = self.without_disk_until = 0.0
        self.disk_slowness = 1.0
        self.disk_is_full = False
        self.epoch_said = 0
        self.role_said = Role.UNATTACHED
        """As of the effects that have been performed; the core may be in another role at the end of its step."""
        self._effects: dict[type, Callable[[Any], None]] = {
            fx.PersistElectionState: self._persist,
            fx.RoleChanged: self._role_changed,
            fx.AddressesMissing: lambda effect: self.places.missing(effect),  # noqa: PLW0108 - anew in each life
            fx.AppendLeaderChange: self._append_leader_change,
            fx.AppendVoters: self._append_voters,
            fx.VotersRefused: lambda _effect: None,
            fx.MembershipChanged: self._membership_changed,
            fx.Append: self._append,
            fx.TruncateTo: self._truncate,
            fx.RequestSync: self._request_sync,
            fx.AdvanceHighWatermark: self._advance,
            fx.QuorumIsNew: lambda _effect: watch.takes_quorum_for_new(self),
            fx.LogIsWhole: lambda _effect: watch.has_whole_log(self),
            fx.Send: self._send,
            fx.Reply: lambda effect: self._reply(effect.context, effect.response),
            fx.ReadLog: self._read_log,
            fx.ReadSnapshot: self._read_snapshot,
            fx.WriteSnapshotChunk: self._write_chunk,
            fx.FinishSnapshot: self._finish_snapshot,
            fx.InstallSnapshot: self._install_snapshot,
            fx.BlamePeer: lambda _effect: self.world.count("peers blamed"),
            fx.ReadyToStop: lambda _effect: self.world.stop_gracefully(self),
        }

    # Life and death

    def boot(self) -> None:
        """Start the process on what its disk has."""
        world = self.world
        self.life += 1
        self.disk.recover()
        self.committed_at_boot = world.history.end.offset
        watch.voters_of(self)
        self.high_watermark = -1
        self.unanswered: dict[RequestContext, int] = {}
        self.parts: dict[EpochOffset, bytes] = {}
        self.contacts: dict[ReplicaKey, float] = {}
        self.hearing: ev.Event = ev.Tick()
        self.leader_since = world.now
        self.leaves_epoch: float = -1
        """The epoch in which it was asked to resign, which takes a moment; every one once it shuts down."""
        self.wanted_generation, self.is_syncing, self.sync_again = 0, False, False
        self.tick_at = math.inf
        self.image = self._newest_snapshot()
        self.controller = Controller(self)
        self.planning = Planning(self)
        self.places = Places(self)
        config = RaftConfig(
            node_id=self.node_id,
            cluster_id=CLUSTER_ID,
            voters=frozenset() if world.options.dynamic else world.voters,
            directory_id=self.key.directory_id,
            bootstrap=world.bootstrap,
            election_timeout_ms=ELECTION_TIMEOUT_MS,
            fetch_timeout_ms=FETCH_TIMEOUT_MS,
            election_backoff_max_ms=ELECTION_TIMEOUT_MS,
            request_timeout_ms=FETCH_TIMEOUT_MS,
            fetch_max_wait_ms=50,
            fetch_max_bytes=world.options.fetch_max_bytes,
            max_parked_fetches=100,
            asks_for_pre_votes=world.options.pre_votes,
            has_address=self.places.is_known,
            must_fetch_first=self.disk.mark_if_empty(),
            may_grant_vote=lambda candidate: not world.is_barred(candidate),
        )
        self.sightings = Sightings(config, self.local_time(), world.count)
        self.raft = RaftNode(config, self.disk.log, self.disk.election, self.random, self.local_time())
        check(rules.epochs_never_fall, self.epoch_said, self.raft.epoch)
        self.role_said = self.raft.role
        self.hear(ev.Tick())

    def format(self, bootstrap: Membership) -> None:
        """Give it an empty disk, before its first life."""
        self.disk = SimulatedDisk(bootstrap)

    def wipe(self, directory_id: Uuid) -> None:
        """Give it another disk between two lives; with that it is another replica."""
        self.key = ReplicaKey(self.node_id, directory_id)
        self.disk = SimulatedDisk()
        self.epoch_said = 0

    @property
    def is_paused(self) -> bool:
        """Whether its process stands still."""
        return self.paused_until > self.world.now

    @property
    def timeouts(self) -> tuple[int, int]:
        """Of fetches and elections."""
        return FETCH_TIMEOUT_MS, ELECTION_TIMEOUT_MS

    @property
    def voter_set(self) -> VoterSet:
        """The voters in force, as its log has it now."""
        voters = self.disk.log.membership().voters
        return VoterSet.static(() if self.world.options.dynamic else self.world.voters) if voters is None else voters

    @property
    def is_voter(self) -> bool:
        """Whether its own log names it, on this disk."""
        return self.voter_set.has(self.node_id, self.key.directory_id)

    def stop(self) -> None:
        """End the process; what it had in memory is gone."""
        self.raft = None
        self.life += 1

    def local_time(self) -> int:
        """This node's own, skewed, monotonic clock."""
        return self.clock_offset + int(self.world.now * self.clock_rate)

    def _newest_snapshot(self) -> Image:
        snapshots = self.disk.log.snapshots()
        return Image.from_bytes(snapshots[-1], self.disk.snapshots[snapshots[-1]][KEY_BYTES:]) if snapshots else Image()

    def ask_for_change(self) -> None:
        """An operator asks this node to change the voters."""
        if self.raft is not None and len(self.voter_set):
            self.planning.asked()

    # Events

    def hear(self, event: ev.Event) -> None:
        """Step the core now, or when the process runs again if it is paused."""
        if self.raft is None:
            return
        if self.is_paused:
            life = self.life
            self.world.at(self.paused_until, lambda: self.hear(event) if self.life == life else None)
            return
        self.world.trace(self, event)
        if isinstance(event, ev.RequestReceived):
            self._note_request(event)
        watch.before_event(self, event)
        is_cut_off = self.raft.role is Role.LEADER and watch.is_cut_off(self)
        was, voters, self.hearing = (self.raft.role, self.raft.epoch, is_cut_off), self.voter_set, event
        try:
            for effect in self.raft.step(event, self.local_time()):
                self.world.trace(self, effect)
                self._effects[type(effect)](effect)
        except ProcessStopped:
            self.world.power_cut(self)
            return
        except InvariantViolation as reason:
            raise Violation("node_stops_itself", f"node {self.node_id} found itself wrong: {reason}", event) from reason
        if self.raft is not None:
            check(rules.core_goes_by_the_log, self.raft.membership.voters, voters)
            watch.stranger(self, event, voters, *was)
            watch.after_event(self, self.raft)
            self._schedule_tick(self.raft)

    def _note_request(self, event: ev.RequestReceived) -> None:
        if isinstance(event.context, RequestContext):
            self.unanswered[event.context] = self.unanswered.get(event.context, 0) + 1
        request = event.request
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            key = ReplicaKey(request.replica_id, request.replica_directory_id)
            is_in_epoch = self.raft is not None and request.leader_epoch == self.raft.epoch
            if is_in_epoch and (isinstance(request, FetchSnapshotRequest) or watch.is_behind(self, request)):
                self.contacts[key] = self.world.now

    def _schedule_tick(self, raft: RaftNode) -> None:
        deadline = raft.deadline()
        if deadline is None:
            return
        due = max(self.world.now, (deadline - self.clock_offset) / self.clock_rate + 1e-6)
        if due < self.tick_at or self.tick_at <= self.world.now:
            self.tick_at, life = due, self.life
            self.world.at(due, lambda: self._tick(due, life))

    def _tick(self, due: float, life: int) -> None:
        if self.life == life and self.tick_at == due:
            self.tick_at = math.inf
            self.hear(ev.Tick())

    # Effects of elections

    def _persist(self, effect: fx.PersistElectionState) -> None:
        if self.disk_is_full:
            self.world.count("stopped by a full disk")
            raise ProcessStopped
        self.disk.election = effect.state

    def _role_changed(self, effect: fx.RoleChanged) -> None:
        world, history = self.world, self.world.history
        check(rules.epochs_never_fall, self.epoch_said, effect.epoch)
        self.epoch_said, self.role_said = effect.epoch, effect.role
        self.controller.role_changed()
        self.places.role_changed(effect.role)
        self.sightings.role_changed(effect)
        if effect.role is Role.CANDIDATE:
            world.count("candidacies")
            check(rules.one_vote_per_epoch, history.vote_of(self.key, effect.epoch, self.key), self.key)
            check(rules.only_voters_stand, self.is_voter, self.disk.log.membership().offset, self.high_watermark)
        if effect.role is Role.LEADER:
            world.count("elections")
            self.leader_since = world.now
            log, end = self.disk.log, history.committed_before(effect.epoch)
            there = log.epoch_at(end.offset - 1)
            voters = keys(self.voter_set)
            elected_by = sum(history.votes.get((voter, effect.epoch)) == self.key for voter in voters)
            check(rules.leader_has_a_majority, elected_by, len(voters))
            check(rules.one_leader_per_epoch, history.leader_of(effect.epoch, self.key), self.key)
            check(rules.leader_is_complete, end, log.end_offset(), there, log.start_offset())
            check(rules.barred_never_lead, world.is_barred(self.node_id))
            check(rules.only_voters_stand, self.is_voter, self.disk.log.membership().offset, self.high_watermark)
        if effect.role is Role.PROSPECTIVE:
            world.count("pre-votes")
        if effect.role is Role.RESIGNED:
            world.count("resignations")
            watch.resigned(self, effect.epoch)

    def _membership_changed(self, effect: fx.MembershipChanged) -> None:
        self.world.count("memberships changed")
        self.leader_since = self.world.now

    # Effects on the log

    def _append_leader_change(self, effect: fx.AppendLeaderChange) -> None:
        records = opening(effect.leader_id, effect.bootstrap)
        batch = self.world.batches.make(self.disk.log.end_offset(), effect.epoch, records)
        self._append(fx.Append(BatchStore.encode([batch])))

    def _append_voters(self, effect: fx.AppendVoters) -> None:
        watch.change(self, effect.voters)
        version = () if effect.kraft_version is None else (KRaftVersion(effect.kraft_version),)
        records: tuple[Record, ...] = (*version, KRaftVoters(effect.voters.voters))
        batch = self.world.batches.make(self.disk.log.end_offset(), effect.epoch, records)
        self._append(fx.Append(BatchStore.encode([batch])))
        self.world.count("changes appended")
        if not self.world.network.is_calm and self.random.random() < self.world.options.crash_after_change:
            life, delay = self.life, self.random.choice((0.0, self.random.uniform(0, 30)))
            self.world.count("crashes after a change")
            self.world.after(delay, lambda: self.world.power_cut(self) if self.life == life else None)

    def _append(self, effect: fx.Append) -> None:
        log = self.disk.log
        for batch in self.world.batches.decode(effect.batches):
            if self.disk_is_full or not log.fits(batch):
                self.world.count("appends refused by a full disk" if self.disk_is_full else "appends that don't fit")
                self.soon(ev.AppendFailed())
                return
            written = (batch.key, log.last_epoch())
            check(rules.logs_match, self.world.history.writing_of(batch, log.last_epoch()), written)
            log.append(batch)
            if isinstance(batch.records[-1], KRaftVoters):
                watch.voters_of(self)

    def _truncate(self, effect: fx.TruncateTo) -> None:
        self.world.count("truncations")
        check(rules.leader_only_appends, self.role_said is Role.LEADER)
        check(rules.truncates_above_high_watermark, effect.offset, self.high_watermark)
        cut = self.disk.log.truncate_to(effect.offset)
        watch.voters_of(self)
        self.world.count_changes("changes truncated", cut)
        removed = [(batch.base_offset, batch.key) for batch in cut]
        known = self.world.history.committed
        committed = [(offset, known[offset].key) for offset, _ in removed if offset in known]
        check(rules.no_truncation_of_committed, removed, committed)

    def _request_sync(self, effect: fx.RequestSync) -> None:
        self.wanted_generation = effect.generation
        if self.is_syncing and not self.world.options.parallel_syncs:
            self.sync_again = True
        else:
            self._begin_sync()

    def _begin_sync(self) -> None:
        self.is_syncing, self.sync_again = True, False
        end, generation, life = self.disk.log.end_offset(), self.wanted_generation, self.life
        self.world.after(self.disk_delay(), lambda: self._sync_done(end, generation, life))

    def disk_delay(self) -> float:
        """How long an fsync takes now."""
        return self.random.uniform(0.1, self.world.options.sync_max_ms) * self.disk_slowness

    def _sync_done(self, end: int, generation: int, life: int) -> None:
        if self.life != life:
            return
        self.is_syncing = False
        if generation == self.wanted_generation:
            self.disk.log.synced_end = max(self.disk.log.synced_end, end)
        if self.sync_again:
            self._begin_sync()
        self.hear(ev.LogSynced(end, generation))

    def _advance(self, effect: fx.AdvanceHighWatermark) -> None:
        offset, log, world = effect.offset, self.disk.log, self.world
        check(rules.high_watermark_rises, self.high_watermark, offset)
        check(rules.high_watermark_within_log, offset, log.end_offset())
        self.high_watermark = offset
        if self.role_said is Role.LEADER:
            check(rules.leader_commits_own_epoch, self.epoch_said, log.epoch_at(offset - 1))
        before = world.history.end
        for batch in log.batches_from(self.image.end.offset):
            if batch.end_offset > offset:
                break
            check(rules.same_record_everywhere, world.history.commit(batch, self.epoch_said), batch)
            self.image.apply(batch)
            point = world.point_at(batch.end_offset)
            check(rules.image_shows_whole_transactions, self.image.digest, point)
            check(rules.targets_agree, self.image.target, point.target if point else None)
        if world.history.end != before:
            world.committing = keys(self.voter_set)
            world.check_majority()
        self.controller.committed(offset)

    # Effects that are messages

    def _send(self, effect: fx.Send) -> None:
        self.sightings.sent(effect)
        context = RequestContext(self.node_id, self.life, effect.correlation, effect.request, effect.peer)
        self.world.send_request(self, effect.peer, context, effect.request)

    def _reply(self, context: Hashable, response: RaftResponse) -> None:
        if not isinstance(context, RequestContext):
            return
        left = self.unanswered.get(context, 0)
        check(rules.every_request_gets_one_answer, left > 0)
        if left > 1:
            self.unanswered[context] = left - 1
        else:
            del self.unanswered[context]
        request = context.request
        is_vote = isinstance(response, VoteResponse) and response.vote_granted
        if isinstance(request, VoteRequest) and request.pre_vote:
            self.sightings.promises(response)
        elif is_vote and isinstance(request, VoteRequest):
            candidate = ReplicaKey(request.candidate_id, request.candidate_directory_id)
            first = self.world.history.vote_of(self.key, request.candidate_epoch, candidate)
            check(rules.one_vote_per_epoch, first, candidate)
        self.world.send_response(self, context, response)

    def _read_log(self, effect: fx.ReadLog) -> None:
        template = effect.response
        records = BatchStore.encode(self.disk.log.read(effect.offset, effect.max_bytes))
        response = FetchResponse(
            template.top_error,
            template.error,
            template.leader_id,
            template.leader_epoch,
            template.high_watermark,
            template.log_start_offset,
            records=records,
        )
        self._reply(effect.context, response)

    def _read_snapshot(self, effect: fx.ReadSnapshot) -> None:
        template = effect.response
        content = self.disk.snapshots[template.snapshot_id]
        data = content[template.position : template.position + max(1, effect.max_bytes)]
        error = ErrorCode.none if template.position < len(content) else ErrorCode.position_out_of_range
        response = FetchSnapshotResponse(
            template.top_error,
            error,
            template.leader_id,
            template.leader_epoch,
            template.snapshot_id,
            len(content),
            template.position,
            data,
        )
        self._reply(effect.context, response)

    # Effects on snapshots

    def _write_chunk(self, effect: fx.WriteSnapshotChunk) -> None:
        if self.disk_is_full:
            self.parts.pop(effect.snapshot_id, None)
            self.soon(ev.SnapshotFailed(effect.snapshot_id))
            return
        self.world.count("snapshot chunks")
        so_far = self.parts.get(effect.snapshot_id, b"")[: effect.position]
        self.parts[effect.snapshot_id] = so_far + effect.data

    def _finish_snapshot(self, effect: fx.FinishSnapshot) -> None:
        data, life = self.parts.pop(effect.snapshot_id, None), self.life
        if data is not None:  # else its last part failed, and SnapshotFailed says so already
            self.world.after(self.disk_delay(), lambda: self._snapshot_done(effect.snapshot_id, data, life))

    def _snapshot_done(self, snapshot_id: EpochOffset, data: bytes, life: int) -> None:
        if self.life != life:
            return
        if self.disk_is_full:
            self.hear(ev.SnapshotFailed(snapshot_id))
            return
        image = Image.from_bytes(snapshot_id, data[KEY_BYTES:])
        point = self.world.point_at(snapshot_id.offset)
        check(rules.snapshot_is_replay, snapshot_id, image.digest, point)
        check(rules.targets_agree, image.target, point.target if point else None)
        self.disk.snapshots[snapshot_id] = data
        self.disk.log.add_snapshot(snapshot_id, self.world.batches.decode_membership(data[:KEY_BYTES]))
        self.hear(ev.SnapshotFinished(snapshot_id))

    def _install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        self.world.count("snapshots fetched")
        check(rules.leader_only_appends, self.role_said is Role.LEADER)
        self.disk.log.restart_at(effect.snapshot_id)
        self.sightings.begins_anew()
        watch.voters_of(self)
        self.image = self._newest_snapshot()

    # Help

    def soon(self, event: ev.Event) -> None:
        """An event of this life, after the current step."""
        life = self.life
        self.world.after(0.0, lambda: self.hear(event) if self.life == life else None)

    def propose(self, epoch: int, records: tuple[Record, ...]) -> Batch:
        """Append as the leader of ``epoch``."""
        batch = self.world.batches.make(self.disk.log.end_offset(), epoch, records)
        self.hear(ev.Propose(epoch, BatchStore.encode([batch])))
        return batch
