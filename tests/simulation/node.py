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
from migrator.values import value
from tests.simulation import invariants as rules
from tests.simulation.batches import Batch, BatchStore, LeaderChange, Record
from tests.simulation.controller import Controller
from tests.simulation.disk import SimulatedDisk
from tests.simulation.image import Image
from tests.simulation.invariants import Violation, check

if TYPE_CHECKING:
    from tests.simulation.world import World

CLUSTER_ID = "simulated-cluster"
ELECTION_TIMEOUT_MS = 150
FETCH_TIMEOUT_MS = 300
CHECK_QUORUM_MS = 1.5 * FETCH_TIMEOUT_MS


class ProcessStopped(Exception):  # noqa: N818 - an event of the simulated world
    """The process ends itself: its disk can't keep a promise."""


@value
class RequestContext:
    """Where a reply goes, and who decides whether it is still wanted."""

    source: int
    source_life: int
    correlation: int
    request: object


class SimulatedNode:
    """One node through all its lives; ``life`` counts them, ``raft`` is None while its process is down."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.random = Random(f"{world.options.seed} node {node_id}")
        skew = world.options.clock_skew
        self.clock_rate = self.random.uniform(1 - skew, 1 + skew)
        self.clock_offset = self.random.randrange(100_000)
        self.disk = SimulatedDisk()
        self.raft: RaftNode | None = None
        self.life = 0
        self.paused_until = 0.0
        self.disk_slowness = 1.0
        self.disk_is_full = False
        self.epoch_said = 0
        self._effects: dict[type, Callable[[Any], None]] = {
            fx.PersistElectionState: self._persist,
            fx.RoleChanged: self._role_changed,
            fx.AppendLeaderChange: self._append_leader_change,
            fx.Append: self._append,
            fx.TruncateTo: self._truncate,
            fx.RequestSync: self._request_sync,
            fx.AdvanceHighWatermark: self._advance,
            fx.Send: self._send,
            fx.Reply: lambda effect: self._reply(effect.context, effect.response),
            fx.ReadLog: self._read_log,
            fx.ReadSnapshot: self._read_snapshot,
            fx.WriteSnapshotChunk: self._write_chunk,
            fx.FinishSnapshot: self._finish_snapshot,
            fx.InstallSnapshot: self._install_snapshot,
            fx.BlamePeer: self._blame,
            fx.ReadyToStop: lambda _effect: self.world.stop_gracefully(self),
        }

    # Life and death

    def boot(self) -> None:
        """Start the process on what its disk has."""
        world = self.world
        self.life += 1
        self.disk.recover()
        self.high_watermark = -1
        self.unanswered: dict[RequestContext, int] = {}
        self.parts: dict[EpochOffset, bytes] = {}
        self.contacts: dict[int, float] = {}
        self.leader_since = world.now
        self.wanted_generation = 0
        self.is_syncing = self.sync_again = False
        self.tick_at = math.inf
        self.image = self._newest_snapshot()
        self.controller = Controller(self)
        config = RaftConfig(
            node_id=self.node_id,
            cluster_id=CLUSTER_ID,
            voters=world.voters,
            election_timeout_ms=ELECTION_TIMEOUT_MS,
            fetch_timeout_ms=FETCH_TIMEOUT_MS,
            election_backoff_max_ms=ELECTION_TIMEOUT_MS,
            request_timeout_ms=FETCH_TIMEOUT_MS,
            fetch_max_wait_ms=50,
            fetch_max_bytes=world.options.fetch_max_bytes,
            max_parked_fetches=100,
            asks_for_pre_votes=world.options.pre_votes,
            may_grant_vote=lambda candidate: not world.is_barred(candidate),
        )
        self.raft = RaftNode(config, self.disk.log, self.disk.election, self.random, self.local_time())
        check(rules.epochs_never_fall, self.epoch_said, self.raft.epoch)
        self.hear(ev.Tick())

    def stop(self) -> None:
        """End the process; what it had in memory is gone."""
        self.raft = None
        self.life += 1

    def local_time(self) -> int:
        """This node's own, skewed, monotonic clock."""
        return self.clock_offset + int(self.world.now * self.clock_rate)

    def _newest_snapshot(self) -> Image:
        snapshots = self.disk.log.snapshots()
        return Image.from_bytes(snapshots[-1], self.disk.snapshots[snapshots[-1]]) if snapshots else Image()

    # Events

    def hear(self, event: ev.Event) -> None:
        """Step the core now, or when the process runs again if it is paused."""
        if self.raft is None:
            return
        if self.paused_until > self.world.now:
            life = self.life
            self.world.at(self.paused_until, lambda: self.hear(event) if self.life == life else None)
            return
        self.world.trace(self, event)
        if isinstance(event, ev.RequestReceived):
            self._note_request(event)
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
            self._check_after_event(self.raft)
            self._schedule_tick(self.raft)

    def _note_request(self, event: ev.RequestReceived) -> None:
        if isinstance(event.context, RequestContext):
            self.unanswered[event.context] = self.unanswered.get(event.context, 0) + 1
        if isinstance(event.request, FetchRequest | FetchSnapshotRequest):
            self.contacts[event.request.replica_id] = self.world.now

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

    def _check_after_event(self, raft: RaftNode) -> None:
        log = self.disk.log
        check(rules.snapshot_covers_log_start, log.start_offset(), log.snapshots())
        check(rules.high_watermark_within_log, raft.high_watermark, log.end_offset())
        others = len(self.world.voters) // 2
        if raft.role is Role.LEADER and others:
            heard = sorted((self.contacts.get(voter, 0.0) for voter in self.world.voters), reverse=True)
            since = max(self.leader_since, heard[others - 1])
            # Twice: each voter of a majority may have been heard just after the last time-out began.
            check(rules.cut_off_leader_resigns, self.world.now - since, 2 * CHECK_QUORUM_MS / self.clock_rate + 50)

    # Effects of elections

    def _persist(self, effect: fx.PersistElectionState) -> None:
        if self.disk_is_full:
            self.world.count("stopped by a full disk")
            raise ProcessStopped
        self.disk.election = effect.state

    def _role_changed(self, effect: fx.RoleChanged) -> None:
        world, history = self.world, self.world.history
        check(rules.epochs_never_fall, self.epoch_said, effect.epoch)
        self.epoch_said = effect.epoch
        self.controller.role_changed()
        if effect.role is Role.CANDIDATE:
            world.count("candidacies")
            check(rules.one_vote_per_epoch, history.vote_of(self.node_id, effect.epoch, self.node_id), self.node_id)
        if effect.role is Role.LEADER:
            world.count("elections")
            self.leader_since = world.now
            log, end = self.disk.log, history.committed_before(effect.epoch)
            there = log.epoch_at(end.offset - 1)
            voters = world.voters
            elected_by = sum(history.votes.get((voter, effect.epoch)) == self.node_id for voter in voters)
            check(rules.leader_has_a_majority, elected_by, len(voters))
            check(rules.one_leader_per_epoch, history.leader_of(effect.epoch, self.node_id), self.node_id)
            check(rules.leader_is_complete, end, log.end_offset(), there, log.start_offset())
            check(rules.barred_never_lead, world.is_barred(self.node_id))
        if effect.role is Role.RESIGNED:
            world.count("resignations")

    # Effects on the log

    def _append_leader_change(self, effect: fx.AppendLeaderChange) -> None:
        batch = self.world.batches.make(self.disk.log.end_offset(), effect.epoch, (LeaderChange(effect.leader_id),))
        self._append(fx.Append(BatchStore.encode([batch])))

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

    def _truncate(self, effect: fx.TruncateTo) -> None:
        self.world.count("truncations")
        check(rules.leader_only_appends, self.raft is not None and self.raft.role is Role.LEADER)
        check(rules.truncates_above_high_watermark, effect.offset, self.high_watermark)
        removed = [(batch.base_offset, batch.key) for batch in self.disk.log.truncate_to(effect.offset)]
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

    def has_durably(self, end: EpochOffset) -> bool:
        """Whether this node's disk holds everything up to a committed end, also after a power cut."""
        log = self.disk.log
        snapshots = log.snapshots()
        if snapshots and snapshots[-1].offset >= end.offset:
            return True
        return log.synced_end >= end.offset and log.epoch_at(end.offset - 1) == end.epoch

    def _advance(self, effect: fx.AdvanceHighWatermark) -> None:
        offset, log, world = effect.offset, self.disk.log, self.world
        check(rules.high_watermark_rises, self.high_watermark, offset)
        check(rules.high_watermark_within_log, offset, log.end_offset())
        self.high_watermark = offset
        if self.raft is not None and self.raft.role is Role.LEADER:
            check(rules.leader_commits_own_epoch, self.raft.epoch, log.epoch_at(offset - 1))
        before = world.history.end
        for batch in log.batches_from(self.image.end.offset):
            if batch.end_offset > offset:
                break
            check(rules.same_record_everywhere, world.history.commit(batch, self.epoch_said), batch)
            self.image.apply(batch)
            check(rules.image_shows_whole_transactions, self.image.digest, world.point_at(batch.end_offset))
        if world.history.end != before:
            world.check_majority()
        self.controller.committed(offset)

    # Effects that are messages

    def _send(self, effect: fx.Send) -> None:
        context = RequestContext(self.node_id, self.life, effect.correlation, effect.request)
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
        if is_vote and isinstance(request, VoteRequest) and not request.pre_vote:
            epoch, candidate = request.candidate_epoch, request.candidate_id
            first = self.world.history.vote_of(self.node_id, epoch, candidate)
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

    def _blame(self, effect: fx.BlamePeer) -> None:
        self.world.count("peers blamed")

    # Effects on snapshots

    def _write_chunk(self, effect: fx.WriteSnapshotChunk) -> None:
        if self.disk_is_full:
            self.soon(ev.SnapshotFailed(effect.snapshot_id))
            return
        self.world.count("snapshot chunks")
        so_far = self.parts.get(effect.snapshot_id, b"")[: effect.position]
        self.parts[effect.snapshot_id] = so_far + effect.data

    def _finish_snapshot(self, effect: fx.FinishSnapshot) -> None:
        snapshot_id, life = effect.snapshot_id, self.life
        self.world.after(self.disk_delay(), lambda: self._snapshot_done(snapshot_id, life))

    def _snapshot_done(self, snapshot_id: EpochOffset, life: int) -> None:
        if self.life != life:
            return
        if self.disk_is_full or snapshot_id not in self.parts:
            self.hear(ev.SnapshotFailed(snapshot_id))
            return
        data = self.parts.pop(snapshot_id)
        image = Image.from_bytes(snapshot_id, data)
        check(rules.snapshot_is_replay, snapshot_id, image.digest, self.world.point_at(snapshot_id.offset))
        self.disk.snapshots[snapshot_id] = data
        self.disk.log.add_snapshot(snapshot_id)
        self.hear(ev.SnapshotFinished(snapshot_id))

    def _install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        self.world.count("snapshots fetched")
        check(rules.leader_only_appends, self.raft is not None and self.raft.role is Role.LEADER)
        self.disk.log.restart_at(effect.snapshot_id)
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
