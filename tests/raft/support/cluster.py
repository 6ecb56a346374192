"""Nodes without faults or chance, driven by hand: for scripts and for tests that follow a paper's claim step by step.

Messages wait in one queue until somebody delivers them; time stands still until somebody lets it pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from random import Random
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.config import RaftConfig
from migrator.raft.core import RaftNode
from migrator.raft.events import Failure
from migrator.raft.messages import (
    EpochOffset,
    FetchResponse,
    FetchSnapshotResponse,
    RaftRequest,
    RaftResponse,
    VoteRequest,
)
from migrator.raft.states import ElectionState, Role
from migrator.raft.voter_set import DYNAMIC_VERSION, NO_MEMBERSHIP, Membership, ReplicaKey, VoterSet
from migrator.records.control import KRaftVersion, KRaftVoters
from migrator.records.uuid import Uuid
from migrator.values import value
from migrator.wire.raft_transport import NO_PRE_VOTES
from tests.raft.support.words import describe
from tests.simulation.batches import BatchStore, opening
from tests.simulation.disk import SimulatedDisk
from tests.simulation.planning import entry

CLUSTER_ID = "test-cluster"
DELIVERIES_MAX = 2_000


@value
class Envelope:
    """A message on its way: a request, or the response to the request of a correlation."""

    source: int
    target: int
    correlation: int
    body: Any


class Member:
    """One node. ``lines`` of the cluster gets a sentence for every effect worth reading."""

    def __init__(self, cluster: Cluster, config: RaftConfig, formatted: Membership = NO_MEMBERSHIP) -> None:
        self.cluster = cluster
        self.config = config
        self.disk = SimulatedDisk(formatted)
        self.log = self.disk.log
        self.raft: RaftNode
        self.holds_syncs = False
        self.syncs: list[ev.LogSynced] = []
        self.effects: list[fx.Effect] = []
        self.asked: dict[int, int] = {}
        """The correlation of the last request to each peer."""
        self._parts: dict[EpochOffset, bytes] = {}
        self._soon: deque[ev.Event] = deque()

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def key(self) -> ReplicaKey:
        """Its id and directory."""
        return ReplicaKey(self.node_id, self.config.directory_id)

    @property
    def voters(self) -> list[int]:
        """The ids of the voters in force, as its log has it."""
        found = self.log.membership().voters
        return [] if found is None else sorted(found.ids)

    def boot(self, *, as_found: bool = False) -> None:
        """Start the process anew on its disk."""
        if not as_found:
            self.disk.recover()
        self.syncs.clear()
        self.raft = RaftNode(self.config, self.log, self.disk.election, Random(self.node_id), self.cluster.now)

    def lose_power(self) -> None:
        """Lose all that is not synced, and start again."""
        self.log.truncate_to(self.log.synced_end)
        self.cluster.queue = deque(
            envelope for envelope in self.cluster.queue if self.node_id not in {envelope.source, envelope.target}
        )
        self.boot()

    def write(self, *runs: tuple[int, int]) -> None:
        """Fill the log by hand: (epoch, number of records), each record its own batch."""
        for epoch, count in runs:
            for _ in range(count):
                self.log.append(self.cluster.batch(self.log.end_offset(), epoch))
        self.log.synced_end = self.log.end_offset()
        self.disk.election = ElectionState(max(self.log.last_epoch(), self.disk.election.epoch))

    def take_snapshot(self, offset: int) -> EpochOffset:
        """Take a snapshot at a batch's end, and let the log begin there."""
        snapshot_id = EpochOffset(self.log.epoch_at(offset - 1) or 0, offset)
        self.disk.snapshots[snapshot_id] = f"all before {offset}".encode()
        self.log.add_snapshot(snapshot_id)
        self.log.delete_before(snapshot_id)
        return snapshot_id

    def epochs(self) -> list[int]:
        return [batch.epoch for batch in self.log.batches]

    def step(self, event: ev.Event) -> list[fx.Effect]:
        """One event, and those of its own disk that follow at once."""
        self._soon.append(event)
        effects: list[fx.Effect] = []
        while self._soon:
            for effect in self.raft.step(self._soon.popleft(), self.cluster.now):
                effects.append(effect)
                self.cluster.say(describe(self.node_id, effect, self.cluster.batches))
                handler = self._HANDLERS.get(type(effect))
                if handler is not None:
                    handler(self, effect)
        self.effects.extend(effects)
        return effects

    def finish_syncs(self) -> None:
        """Let the fsyncs end that were held back."""
        waiting, self.syncs = self.syncs, []
        for event in waiting:
            self._synced(event)
        if self._soon:
            self.step(self._soon.popleft())

    # Effects

    def _synced(self, event: ev.LogSynced) -> None:
        self.log.synced_end = max(self.log.synced_end, min(event.end_offset, self.log.end_offset()))
        self._soon.append(event)

    def _persist(self, effect: fx.PersistElectionState) -> None:
        self.disk.election = effect.state

    def _append(self, effect: fx.Append) -> None:
        for batch in self.cluster.batches.decode(effect.batches):
            assert self.log.fits(batch), f"{batch} does not fit at {self.log.end_offset()}"
            self.log.append(batch)

    def _quorum_is_new(self, _effect: fx.QuorumIsNew) -> None:
        self.disk.must_fetch_first = False

    def _log_is_whole(self, _effect: fx.LogIsWhole) -> None:
        self.disk.must_fetch_first = None

    def _append_leader_change(self, effect: fx.AppendLeaderChange) -> None:
        records = opening(effect.leader_id, effect.bootstrap)
        self.log.append(self.cluster.batches.make(self.log.end_offset(), effect.epoch, records))

    def _append_voters(self, effect: fx.AppendVoters) -> None:
        version = () if effect.kraft_version is None else (KRaftVersion(effect.kraft_version),)
        records = (*version, KRaftVoters(effect.voters.voters))
        self.log.append(self.cluster.batches.make(self.log.end_offset(), effect.epoch, records))

    def _truncate(self, effect: fx.TruncateTo) -> None:
        self.log.truncate_to(effect.offset)
        assert self.log.end_offset() == effect.offset >= self.raft.high_watermark, "a cut keeps what is committed"

    def _request_sync(self, effect: fx.RequestSync) -> None:
        event = ev.LogSynced(self.log.end_offset(), effect.generation)
        if self.holds_syncs:
            self.syncs.append(event)
        else:
            self._synced(event)

    def _send(self, effect: fx.Send) -> None:
        self.asked[effect.peer] = effect.correlation
        self.cluster.queue.append(Envelope(self.node_id, effect.peer, effect.correlation, effect.request))

    def _answer(self, context: Hashable, response: RaftResponse) -> None:
        if isinstance(context, Envelope):
            self.cluster.queue.append(Envelope(context.target, context.source, context.correlation, response))

    def _reply(self, effect: fx.Reply) -> None:
        self._answer(effect.context, effect.response)

    def _read_log(self, effect: fx.ReadLog) -> None:
        found = effect.response
        records = BatchStore.encode(self.log.read(effect.offset, effect.max_bytes))
        leader = (found.leader_id, found.leader_epoch, found.high_watermark, found.log_start_offset)
        self._answer(effect.context, FetchResponse(found.top_error, found.error, *leader, records=records))

    def _read_snapshot(self, effect: fx.ReadSnapshot) -> None:
        found = effect.response
        content = self.disk.snapshots[found.snapshot_id]
        data = content[found.position : found.position + effect.max_bytes]
        leader = (found.leader_id, found.leader_epoch)
        size, position = len(content), found.position
        self._answer(
            effect.context,
            FetchSnapshotResponse(found.top_error, found.error, *leader, found.snapshot_id, size, position, data),
        )

    def _write_chunk(self, effect: fx.WriteSnapshotChunk) -> None:
        self._parts[effect.snapshot_id] = self._parts.get(effect.snapshot_id, b"")[: effect.position] + effect.data

    def _finish_snapshot(self, effect: fx.FinishSnapshot) -> None:
        self.disk.snapshots[effect.snapshot_id] = self._parts.pop(effect.snapshot_id)
        self.log.add_snapshot(effect.snapshot_id)
        self._soon.append(ev.SnapshotFinished(effect.snapshot_id))

    def _install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        self.log.restart_at(effect.snapshot_id)

    _HANDLERS: ClassVar[dict[type, Callable[[Member, Any], None]]] = {
        fx.PersistElectionState: _persist,
        fx.QuorumIsNew: _quorum_is_new,
        fx.LogIsWhole: _log_is_whole,
        fx.Append: _append,
        fx.AppendLeaderChange: _append_leader_change,
        fx.AppendVoters: _append_voters,
        fx.TruncateTo: _truncate,
        fx.RequestSync: _request_sync,
        fx.Send: _send,
        fx.Reply: _reply,
        fx.ReadLog: _read_log,
        fx.ReadSnapshot: _read_snapshot,
        fx.WriteSnapshotChunk: _write_chunk,
        fx.FinishSnapshot: _finish_snapshot,
        fx.InstallSnapshot: _install_snapshot,
    }


class Cluster:
    """Members by id, the messages between them, and what was said so far."""

    def __init__(
        self, voters: int, observers: int = 0, *, dynamic: bool = False, disks: bool = False, **settings: Any
    ) -> None:
        self.now = 0
        self.batches = BatchStore()
        self.queue: deque[Envelope] = deque()
        self.lines: list[str] = []
        self.cut: set[int] = set()
        self.gone: set[int] = set()
        """Ended: who asks them is told so."""
        self.kept_apart: set[tuple[int, int]] = set()
        """The second of each refuses the first, though it runs: a firewall, or a listener that is opened anew."""
        self.without_pre_votes: set[int] = set()
        """Like Kafka before 4.0, they know none."""
        ids = frozenset(range(1, voters + 1))
        everybody = range(1, voters + observers + 1)
        named = {node_id: Uuid(f"disk of node {node_id:3}".encode()) for node_id in everybody}
        if dynamic:
            formatted = Membership(DYNAMIC_VERSION, VoterSet.of(entry(ReplicaKey(it, named[it])) for it in ids))
            settings = {"bootstrap": tuple(-1 - node_id for node_id in everybody)} | settings
            self.members = {
                it: Member(
                    self,
                    RaftConfig(it, CLUSTER_ID, frozenset(), directory_id=named[it], **settings),
                    formatted if it in ids else NO_MEMBERSHIP,
                )
                for it in everybody
            }
        else:
            own: dict[int, dict[str, Any]] = {it: {"directory_id": named[it]} if disks else {} for it in everybody}
            self.members = {
                it: Member(self, RaftConfig(it, CLUSTER_ID, ids, **own[it], **settings)) for it in everybody
            }
        for member in self.members.values():
            member.boot()

    def __getitem__(self, node_id: int) -> Member:
        return self.members[node_id if node_id > 0 else -1 - node_id]

    def say(self, line: str | None) -> None:
        """Note a line of the transcript."""
        if line is not None:
            self.lines.append(line)

    def batch(self, base_offset: int, epoch: int) -> Any:
        """A batch of one record; the same one for the same place and epoch, as log matching has it."""
        known = [b for b in self.batches._batches if (b.base_offset, b.epoch) == (base_offset, epoch)]
        return known[0] if known else self.batches.make(base_offset, epoch, (base_offset,))

    def end(self, node_id: int) -> None:
        """The process of a node ends; its connections break."""
        self.gone.add(node_id)
        for member in self.members.values():
            self.break_connection(member.node_id, node_id)

    def break_connection(self, source: int, target: int) -> None:
        """The second node closes the first one's connection."""
        member = self[source]
        for peer in sorted({target, -1 - target} & set(member.asked)):
            member.step(ev.RequestFailed(peer, member.asked[peer], Failure.CONNECTION_LOST))

    def tick(self, node_id: int) -> None:
        """Let time pass until a node's deadline, for this node only."""
        deadline = self[node_id].raft.deadline()
        assert deadline is not None, f"node {node_id} waits for nothing"
        self.now = max(self.now, deadline)
        self[node_id].step(ev.Tick())

    def wait(self, milliseconds: int) -> None:
        """Let time pass for everybody, with every message delivered."""
        end = self.now + milliseconds
        for _ in range(DELIVERIES_MAX):
            self.deliver()
            due = {node_id: member.raft.deadline() for node_id, member in self.members.items()}
            soonest = min((when, node_id) for node_id, when in due.items() if when is not None)
            if soonest[0] > end:
                self.now = end
                return
            self.tick(soonest[1])
        raise AssertionError("the cluster has too much to do")

    def campaign(self, node_id: int) -> None:
        """Let time pass until a node stands for election."""
        for _ in range(10):
            before = self[node_id].raft.epoch
            self.tick(node_id)
            if self[node_id].raft.role in {Role.CANDIDATE, Role.LEADER} and self[node_id].raft.epoch > before:
                return
        raise AssertionError(f"node {node_id} does not stand for election")

    def deliver(self, want: Callable[[Envelope], bool] = lambda _envelope: True) -> None:
        """Deliver what waits, and what comes of it, until nothing is left; what nobody wants is lost."""
        for _ in range(DELIVERIES_MAX):
            if not self.queue:
                return
            envelope = self.queue.popleft()
            ends = {self[envelope.source].node_id, self[envelope.target].node_id}
            if not want(envelope) or self.cut & ends or len(ends) == 1:
                continue
            target = self[envelope.target].node_id
            if target not in self.gone and (envelope.source, target) not in self.kept_apart:
                self.hand_over_message(envelope)
            elif isinstance(envelope.body, RaftRequest):
                refused = ev.RequestFailed(envelope.target, envelope.correlation, Failure.REFUSED)
                self[envelope.source].step(refused)
        raise AssertionError("the cluster does not come to rest")

    def hand_over_message(self, envelope: Envelope) -> list[fx.Effect]:
        body, target = envelope.body, self[envelope.target]
        if isinstance(body, VoteRequest) and body.pre_vote and target.node_id in self.without_pre_votes:
            return self[envelope.source].step(ev.ResponseReceived(envelope.target, envelope.correlation, NO_PRE_VOTES))
        if isinstance(body, RaftRequest):
            return target.step(ev.RequestReceived(envelope, body))
        response = ev.ResponseReceived(envelope.source, envelope.correlation, envelope.body)
        return self[envelope.target].step(response)

    def elect(self, node_id: int) -> Member:
        """Have a node elected by all that can be reached."""
        self.campaign(node_id)
        self.deliver()
        assert self[node_id].raft.role is Role.LEADER, f"node {node_id} was not elected"
        return self[node_id]

    def propose(self, node_id: int, records: int = 1) -> None:
        """Append a batch at the leader."""
        member = self[node_id]
        batch = self.batches.make(member.log.end_offset(), member.raft.epoch, tuple(range(records)))
        member.step(ev.Propose(member.raft.epoch, BatchStore.encode([batch])))

    def ask(self, node_id: int, request: RaftRequest) -> RaftResponse:
        """A request from outside, and its answer."""
        before = len(self.queue)
        self[node_id].step(ev.RequestReceived(Envelope(99, node_id, 0, request), request))
        answers = [e for e in list(self.queue)[before:] if e.target == 99]
        self.queue = deque(e for e in self.queue if e.target != 99)
        assert len(answers) == 1, "a request gets one answer"
        body: RaftResponse = answers[0].body
        return body


NONE = ErrorCode.none
