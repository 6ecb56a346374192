"""Performs the effects of the consensus core on a real log, clock and transport.

The contract is in the docstring of `migrator.raft`: one step at a time, every effect in order, and an effect that must
be durable is durable before the next one. Fsyncs of the log run in a thread, and waiting appends share them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms, wall_ms
from migrator.errors import require
from migrator.log.errors import NoSpaceError, StorageError
from migrator.log.snapshots import SnapshotReceiver
from migrator.machine import machine
from migrator.node.quorum.given_up import GivenUpNotes
from migrator.node.quorum.intake import CheckedRecords, check_records
from migrator.node.quorum.observer import QuorumObserver
from migrator.node.quorum.reads import CONTESTED_BYTES_MAX, READ_BYTES_MAX, FetchReads
from migrator.node.quorum.refusals import Refusals
from migrator.node.quorum.storage import NodeStorage
from migrator.observe.loop_health import LoopWork, TurnGauge
from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.config import EPOCH_LIMIT, EPOCHS_USED_UP
from migrator.raft.core import QuorumInfo, RaftNode
from migrator.raft.messages import (
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    RaftRequest,
    RaftResponse,
    VoteRequest,
)
from migrator.raft.states import Role
from migrator.raft.telling import Asker
from migrator.raft.transport import ForeignClusterError, RaftTransport, TransportError
from migrator.raft.voter_changes import Refusal, VoterChange, VotersNotChangedError
from migrator.raft.voter_set import Membership, VoterSet
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import MetadataRecord
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.wire.requests import REQUEST

log = logging.getLogger(__name__)

TICK = TaskKind("quorum-timer", OnError.STOP)
SYNC = TaskKind("log-sync", OnError.STOP)
DOWNLOAD = TaskKind("snapshot-download", OnError.STOP)
EXCHANGE = TaskKind("quorum-exchange", OnError.DROP)
"""One exchange with a peer. After an error it counts as not answered, and consensus asks again."""

CHECK_SHARE = 0.75
"""The share of the request time-out for checking a fetched response, after which consensus forgets the request."""
NO_ROOM = Refusal(ErrorCode.kafka_storage_error, "The leader's log refuses new records, and the leader resigns.")
IS_CLOSED = Refusal(ErrorCode.not_leader_or_follower, "This controller is about to stop.")


class QuorumRunner:
    """One node's part in the quorum.

    :param before_vote: awaited with the candidate's id before the core gets a Vote; takes a bounded time.
    :param on_failure: called when the disk fails or an invariant is broken; then this process has to stop.
    :param gauge: gets how much each turn of the event loop reads, checks and writes.
    """

    def __init__(
        self,
        core: RaftNode,
        storage: NodeStorage,
        transport: RaftTransport,
        observer: QuorumObserver,
        *,
        request_timeout_ms: int,
        before_vote: Callable[[int], Awaitable[None]],
        on_failure: Callable[[BaseException], None],
        gauge: TurnGauge,
    ) -> None:
        self._before_vote = before_vote
        self._request_timeout_seconds = request_timeout_ms / 1000
        self._core = core
        self._storage = storage
        self._transport = transport
        self._observer = observer
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[ev.Event] = deque()
        self._is_stepping = False
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._replies: dict[Hashable, asyncio.Future[RaftResponse | fx.ReadLog | fx.ReadSnapshot]] = {}
        self._contexts = itertools.count()
        self._changes: list[int | Refusal] = []
        """The result of the change of the voters in this step: its record's offset, or why there is none."""
        self._supervisor = Supervisor(self._fail)
        self._syncer = machine().threads(1, "log-sync")
        self._sync_wanted: int | None = None
        self._is_syncing = False
        self._proposed: Sequence[MetadataRecord] | None = None
        """The records of the batch that is being appended, if they are to be applied at once."""
        self._last_own: int | None = None
        """The last offset of this node's own latest append."""
        self._strangers: set[int] = set()
        """Peers of another cluster that were reported in the log."""
        self._last_epoch_said = -1
        self.refusals = Refusals()
        self.given_up = GivenUpNotes()
        self._gauge = gauge
        self._checked: CheckedRecords | None = None
        """The records of the response in this step."""
        self._reads = FetchReads(storage.log, lambda: core.epoch, self._answer, self._fail, gauge)
        self._ready_to_stop = asyncio.Event()

    @property
    def role(self) -> Role:
        return self._core.role

    @property
    def epoch(self) -> int:
        """The highest leader epoch known."""
        return self._core.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader, None while unknown."""
        return self._core.leader_id

    @property
    def high_watermark(self) -> int:
        """The offset before which everything is committed, to this node's knowledge."""
        return self._core.high_watermark

    def disclosed_leader(self, asker: Asker) -> tuple[int, int]:
        """The leader and epoch that this node tells the asker."""
        return self._core.disclosed_leader(asker)

    @property
    def membership(self) -> Membership:
        """The voters in force at the log's end, committed or not."""
        return self._core.membership

    @property
    def leader_high_watermark(self) -> int | None:
        """The leader's high watermark in its last message; None while unknown."""
        return self._core.leader_high_watermark

    @property
    def epoch_start_offset(self) -> int | None:
        """The first offset of this leader's epoch; see `RaftNode.epoch_start_offset`."""
        return self._core.epoch_start_offset

    def status(self) -> QuorumInfo:
        """The state that DescribeQuorum shows."""
        by_stock = self._storage.is_led_by_stock(self._core.epoch)
        return replace(self._core.status(monotonic_ms()), led_by_stock=by_stock)

    def start(self) -> None:
        """Begin to take part."""
        self._step(ev.Tick())

    async def handle(self, request: RaftRequest) -> RaftResponse:
        """Answer the request of a peer, an observer or a client. A fetch may wait as long as it asks to, and then until
        there is room for its answer."""
        if isinstance(request, VoteRequest):
            await self._before_vote(request.candidate_id)
        context = next(self._contexts)
        try:
            with REQUEST.get().abandonable():  # a fetch needs no answer once its sender has closed the connection
                reply = self._expect(context)
                self._step(ev.RequestReceived(context, request))
                found = await reply
            if isinstance(found, fx.ReadLog):
                return await self._log_read(context, found)
            if isinstance(found, fx.ReadSnapshot):
                return await self._snapshot_read(found)
            response: RaftResponse = found
            self.given_up.refused(request, response)
            return response
        finally:
            self._replies.pop(context, None)

    def _expect(self, context: Hashable) -> asyncio.Future[Any]:
        future = self._replies[context] = self._loop.create_future()
        return future

    async def _log_read(self, context: Hashable, effect: fx.ReadLog) -> FetchResponse:
        asked = REQUEST.get()
        try:
            size = self._reads.size_of(effect, _most(asked.is_contested))
        except StorageError as error:
            self._fail(error)
            raise
        await asked.reserve(size)
        response = self._expect(context)
        if self._is_closed:
            response.cancel()
        self._reads.add(effect, size)
        read: FetchResponse = await response
        return read

    async def _snapshot_read(self, effect: fx.ReadSnapshot) -> FetchSnapshotResponse:
        asked = REQUEST.get()
        most = min(effect.max_bytes, _most(asked.is_contested))
        await asked.reserve(most)
        response = self._storage.read_snapshot_chunk(effect.response, most)
        self._gauge.count(LoopWork.READ_BYTES, len(response.data))
        return response

    def append(self, epoch: int, batches: bytes, records: Sequence[MetadataRecord] | None = None) -> int | None:
        """Append whole batches as the leader of ``epoch``. They get their offsets here; offsets in them are ignored.

        :param records: the records of the one batch, if the caller has them: they are then applied at once.
        :returns: the last offset; None when nothing was appended, because the epoch is over or ending, or the disk is
            full.
        """
        require(not self._is_stepping, "records are appended between steps, where their offsets are there at once")
        self._proposed, self._last_own = records, None
        self._step(ev.Propose(epoch, batches))
        self._proposed = None
        return self._last_own

    def look_again(self) -> None:
        """Let a candidate go on that has waited for the address of a node."""
        self._step(ev.Tick())

    def why_not(self, change: VoterChange) -> Refusal | None:
        """Why this node would refuse to change the voters; asked before a new voter is asked for its versions."""
        return self._core.why_not(change)

    def change_voters(self, change: VoterChange) -> int:
        """Append the changed voter set; return the offset of its record, which is not committed yet.

        :raises VotersNotChangedError: nothing was appended.
        """
        require(not self._is_stepping, "voters are changed between steps, where the answer is there at once")
        self._changes.clear()
        self._step(ev.ChangeVoters(change))
        answer = self._changes.pop() if self._changes else IS_CLOSED
        if isinstance(answer, Refusal):
            raise VotersNotChangedError(answer)
        return answer

    def resign(self, epoch: int, successor: int | None = None) -> None:
        """Give up the leadership of ``epoch``."""
        self._step(ev.Resign(epoch, successor))

    async def shut_down(self, patience_seconds: float) -> None:
        """Hand the leadership over if another voter can take it, and leave."""
        if not self._is_closed:
            self._step(ev.Shutdown())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_seconds):
                    await self._ready_to_stop.wait()
        await self.close()

    async def close(self) -> None:
        """Leave at once."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._reads.close()
        await self._supervisor.close()
        for future in self._replies.values():
            future.cancel()
        self._syncer.shutdown(wait=True)

    def _step(self, event: ev.Event) -> None:
        """Let the core handle the event, and those that arise meanwhile, one after the other."""
        self._inbox.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._inbox and not self._is_closed:
                for effect in self._core.step(self._inbox.popleft(), monotonic_ms()):
                    self._perform(effect)
        except Exception as error:  # noqa: BLE001 - a step that broke off leaves no state to go on from
            self._fail(error)
        finally:
            self._is_stepping = False
        self._schedule()

    def _schedule(self) -> None:
        """Wake up at the deadline or earlier; nearly every step moves it later, which needs no new timer."""
        deadline = self._core.deadline()
        if deadline is None or self._is_closed or (self._timer is not None and self._timer_due <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = deadline
        delay = max(0, deadline - monotonic_ms()) / 1000
        self._timer = self._supervisor.call_later(TICK, delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._step(ev.Tick())

    # How each effect is performed.

    def _role_changed(self, effect: fx.RoleChanged) -> None:
        if effect.epoch + 1 >= EPOCH_LIMIT and effect.epoch > self._last_epoch_said:
            self._last_epoch_said = effect.epoch
            log.critical(EPOCHS_USED_UP, effect.epoch)
        self._observer.role_changed(effect.role, effect.epoch, effect.leader_id)

    def _append_voters(self, effect: fx.AppendVoters) -> None:
        offset = self._storage.log.end_offset()
        is_written = self._write(self._storage.voters(effect, wall_ms()))
        if is_written:
            log.info("The voters are %s from offset %d on", _named(effect.voters), offset)
        self._changes.append(self._storage.log.membership().offset if is_written else NO_ROOM)

    def _append(self, effect: fx.Append) -> None:
        if self._write(effect.batches, effect.own_epoch) and effect.own_epoch is not None:
            self._last_own = self._storage.log.end_offset() - 1

    def _write(self, batches: bytes, own_epoch: int | None = None) -> bool:
        """Write batches. Returns whether the log has accepted them."""
        metadata_log, checked = self._storage.log, self._checked
        size = metadata_log.size()
        try:
            if own_epoch is not None:
                batches = self._storage.stamped(batches, own_epoch)
            metadata_log.append(checked.take() if checked is not None and checked.records is batches else batches)
        except (NoSpaceError, CorruptRecordsError) as error:
            self.refusals.refused(str(error))
            self._inbox.append(ev.AppendFailed())
            return False
        self.refusals.accepted()
        grown = metadata_log.size() - size
        self._gauge.count(LoopWork.WRITTEN_BYTES, grown)
        if own_epoch is None or self._proposed is None:
            self._observer.appended(grown, checked.decoded if checked is not None else ())
        else:
            self._observer.appended_own(batches, self._proposed)
        return True

    def _request_sync(self, effect: fx.RequestSync) -> None:
        self._sync_wanted = effect.generation
        if not self._is_syncing:
            self._is_syncing = True
            self._supervisor.call_soon(SYNC, self._sync)

    def _sync(self) -> None:
        """Run one fsync after the other while requests wait; each serves all requests from before it began."""
        self._is_syncing = self._sync_wanted is not None and not self._is_closed
        if self._is_syncing:
            generation, self._sync_wanted = self._sync_wanted, None
            tell = partial(self._supervisor.call_soon_threadsafe, self._loop, SYNC, self._synced, generation)
            self._syncer.submit(self._storage.log.sync).add_done_callback(tell)

    def _synced(self, generation: int, syncing: Future[int]) -> None:
        if self._is_closed:
            return
        try:
            end_offset = syncing.result()
        except StorageError as error:
            self._fail(error)
            return
        self._step(ev.LogSynced(end_offset, generation))
        self._sync()

    def _fail(self, error: BaseException) -> None:
        self._is_closed = True
        self._on_failure(error)

    async def _exchange(self, effect: fx.Send) -> None:
        deadline = self._loop.time() + self._request_timeout_seconds * CHECK_SHARE
        try:
            response = await self._transport.send(effect.peer, effect.request, self._request_timeout_seconds)
            self._note_cluster(effect.peer, is_ours=response.top_error is not ErrorCode.inconsistent_cluster_id)
            self.given_up.told(effect.peer, response)
            checked = await self._check(effect.request, response, deadline)
        except TransportError as error:
            if isinstance(error, ForeignClusterError):
                self._note_cluster(effect.peer, is_ours=False)
            self._step(ev.RequestFailed(effect.peer, effect.correlation, error.how))
        except Exception:  # the top of an exchange: consensus must not wait for an answer that will never come
            self._step(ev.RequestFailed(effect.peer, effect.correlation))
            raise
        else:
            self._checked = checked
            self._step(ev.ResponseReceived(effect.peer, effect.correlation, response))
            self._checked = None

    async def _check(self, request: RaftRequest, response: RaftResponse, deadline: float) -> CheckedRecords | None:
        if not isinstance(request, FetchRequest) or not isinstance(response, FetchResponse) or not response.records:
            return None
        return await check_records(response, request.fetch_offset, deadline, self._gauge)

    def _note_cluster(self, peer: int, *, is_ours: bool) -> None:
        """Log once that a voter's directory was formatted for another cluster. No other part reports this."""
        if is_ours:
            self._strangers.discard(peer)
        elif peer not in self._strangers:
            self._strangers.add(peer)
            log.warning(
                "Node %d belongs to another cluster than this node. One of the two was formatted with a wrong "
                "cluster id. Compare cluster.id in their meta.properties files, and format the wrong one again",
                peer,
            )

    def _answer(self, context: Hashable, response: RaftResponse | fx.ReadLog | fx.ReadSnapshot) -> None:
        future = self._replies.get(context)
        if future is not None and not future.done():
            future.set_result(response)

    def _write_snapshot_chunk(self, effect: fx.WriteSnapshotChunk) -> None:
        try:
            self._storage.write_snapshot_chunk(effect.snapshot_id, effect.position, effect.data)
        except StorageError as error:
            log.warning("%s", error)
            self._storage.drop_download()
            self._inbox.append(ev.SnapshotFailed(effect.snapshot_id))

    def _finish_snapshot(self, effect: fx.FinishSnapshot) -> None:
        receiver = self._storage.take_download(effect.snapshot_id)
        if receiver is not None:  # otherwise its last part failed, and SnapshotFailed reports that already
            self._supervisor.spawn(DOWNLOAD, self._finish(effect.snapshot_id, receiver))

    async def _finish(self, snapshot_id: EpochOffset, receiver: SnapshotReceiver) -> None:
        try:
            await self._loop.run_in_executor(self._syncer, self._storage.finish_snapshot, receiver)
        except StorageError as error:
            log.warning("%s", error)
            self._step(ev.SnapshotFailed(snapshot_id))
        else:
            self._step(ev.SnapshotFinished(snapshot_id))

    def _perform(self, effect: fx.Effect) -> None:  # noqa: C901, PLR0912 - one line for each kind of effect
        match effect:  # the most frequent effects come first
            case fx.Send():
                self._supervisor.spawn(EXCHANGE, self._exchange(effect), f"an exchange with node {effect.peer}")
            case fx.Reply():
                self._answer(effect.context, effect.response)
            case fx.ReadLog() | fx.ReadSnapshot():
                self._answer(effect.context, effect)
            case fx.AdvanceHighWatermark():
                self._observer.committed(effect.offset)
            case fx.RequestSync():
                self._request_sync(effect)
            case fx.Append():
                self._append(effect)
            case fx.PersistElectionState():
                self._storage.persist_election_state(effect.state)
            case fx.RoleChanged():
                self._role_changed(effect)
            case fx.AppendLeaderChange():
                self._write(self._storage.leader_change(effect, wall_ms()))
            case fx.AppendVoters():
                self._append_voters(effect)
            case fx.VotersRefused():
                self._changes.append(effect.refusal)
            case fx.MembershipChanged():
                self._observer.membership_changed(effect.membership)
            case fx.AddressesMissing():
                self._observer.addresses_missing(effect.voters, max(0, effect.deadline - monotonic_ms()))
            case fx.TruncateTo():
                self._storage.log.truncate_to(effect.offset)
                self._observer.truncated(effect.offset)
            case fx.QuorumIsNew():
                self._storage.note_new_quorum()
            case fx.LogIsWhole():
                self._storage.unmark()
            case fx.WriteSnapshotChunk():
                self._write_snapshot_chunk(effect)
            case fx.FinishSnapshot():
                self._finish_snapshot(effect)
            case fx.InstallSnapshot():
                self._storage.install_snapshot(effect.snapshot_id)
                self._observer.installed(effect.snapshot_id)
            case fx.BlamePeer():
                self.refusals.refused(f"node {effect.peer} {effect.reason}")
            case fx.ReadyToStop():
                self._ready_to_stop.set()
            case never:
                assert_never(never)


def _most(is_contested: bool) -> int:  # noqa: FBT001
    return CONTESTED_BYTES_MAX if is_contested else READ_BYTES_MAX


def _named(voters: VoterSet) -> str:
    return ", ".join(str(voter.voter_id) for voter in voters.voters)
