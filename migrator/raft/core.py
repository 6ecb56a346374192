"""`RaftNode`: one event in, effects out. The tables here say which function handles which event, request and response.

Sources: KIP-595 (protocol, check quorum), KIP-630 (snapshots), KIP-853 (voter keys), the Raft paper, Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from migrator.errors import require
from migrator.raft import effects as fx
from migrator.raft import election, follower, membership, messages, replication, responses, snapshot, telling
from migrator.raft import events as ev
from migrator.raft.census import Word
from migrator.raft.config import RaftConfig
from migrator.raft.learning import absorb
from migrator.raft.progress import ReplicaState, ReplicaStatus, rows
from migrator.raft.quorum import Quorum
from migrator.raft.states import NEVER, Candidate, ElectionState, Follower, Leader, Prospective, Role, Unattached
from migrator.raft.storage import LogView
from migrator.raft.telling import Asker
from migrator.raft.voter_changes import Refusal, VoterChange
from migrator.raft.voter_set import Membership, ReplicaKey
from migrator.values import value

if TYPE_CHECKING:
    from random import Random

TRANSITIONS_PER_STEP_MAX = 4
"""Resigned -> Prospective -> Candidate -> Leader is the longest way in one step."""

REQUESTS: dict[type, Callable[[Quorum, Any, Any], None]] = {
    messages.VoteRequest: election.handle_vote,
    messages.BeginQuorumEpochRequest: election.handle_begin,
    messages.EndQuorumEpochRequest: election.handle_end,
    messages.FetchRequest: replication.handle_fetch,
    messages.FetchSnapshotRequest: snapshot.handle_fetch_snapshot,
}

RESPONSES: dict[type, Callable[[Quorum, int, Any], None]] = {
    messages.VoteResponse: election.handle_vote_response,
    messages.BeginQuorumEpochResponse: election.handle_begin_response,
    messages.EndQuorumEpochResponse: election.handle_end_response,
    messages.FetchResponse: follower.handle_fetch_response,
    messages.FetchSnapshotResponse: snapshot.handle_fetch_snapshot_response,
}


def _resign_if_cut_off(quorum: Quorum) -> None:
    """Resign before anything else is done when check quorum is overdue. A process that was suspended (SIGSTOP, a
    paused virtual machine) must not serve or append as a leader that others have replaced meanwhile."""
    if isinstance(quorum.state, Leader) and replication.is_cut_off(quorum, quorum.state):
        replication.resign(quorum, quorum.state)


def _on_request(quorum: Quorum, event: ev.RequestReceived) -> None:
    _resign_if_cut_off(quorum)
    context, request = event.context, event.request
    if request.cluster_id not in {None, quorum.config.cluster_id}:
        quorum.emit(
            fx.Reply(context, responses.nothing(request, ErrorCode.none, top_error=ErrorCode.inconsistent_cluster_id))
        )
    elif quorum.refuses(telling.asker_of(request)):
        quorum.reply(context, request, responses.nothing(request, telling.GIVEN_UP))
    else:
        REQUESTS[type(request)](quorum, context, request)


def _on_proposal(quorum: Quorum, event: ev.Propose) -> None:
    _resign_if_cut_off(quorum)
    replication.propose(quorum, event)


def _on_change(quorum: Quorum, event: ev.ChangeVoters) -> None:
    _resign_if_cut_off(quorum)
    membership.change_voters(quorum, event)


def _on_response(quorum: Quorum, event: ev.ResponseReceived) -> None:
    if not quorum.peers.answered(event.peer, event.correlation):
        return
    quorum.census.answered(quorum, event.peer, event.response)
    if event.peer == quorum.leader_id:
        quorum.leader_answers()  # even an error proves that its process is alive
    if absorb(quorum, event.peer, event.response):
        RESPONSES[type(event.response)](quorum, event.peer, event.response)
    elif event.response.top_error is ErrorCode.unsupported_version:
        election.pre_vote_is_unknown(quorum, event.peer)
    elif isinstance(event.response, messages.FetchSnapshotResponse):
        snapshot.forget_download(quorum)


def _on_failure(quorum: Quorum, event: ev.RequestFailed) -> None:
    if quorum.peers.answered(event.peer, event.correlation):
        quorum.peers.failed(event.peer, quorum.now)
        quorum.census.forget(event.peer)
        state = quorum.state
        if isinstance(state, Follower) and state.leader_id == event.peer:
            follower.leader_fails(quorum, state, event.how)


def _on_synced(quorum: Quorum, event: ev.LogSynced) -> None:
    if event.generation != quorum.generation:
        return  # the fsync was of a log that has been truncated since
    require(event.end_offset <= quorum.log.end_offset(), f"synced up to {event.end_offset}, beyond the log's end")
    quorum.synced_end = max(quorum.synced_end, event.end_offset)
    state = quorum.state
    if isinstance(state, Leader):
        replication.update_high_watermark(quorum, state)
    elif isinstance(state, Follower):
        follower.update_high_watermark(quorum, state)
        if quorum.log_is_durable:
            quorum.prolong(state)


def _on_append_failed(quorum: Quorum, _event: ev.AppendFailed) -> None:
    state = quorum.state
    if isinstance(state, Leader):
        replication.resign(quorum, state)
    elif isinstance(state, Follower):
        follower.append_failed(quorum, state)


def _on_resign(quorum: Quorum, event: ev.Resign) -> None:
    if isinstance(quorum.state, Leader) and event.epoch == quorum.epoch:
        replication.hand_over(quorum, quorum.state, event.successor)


def _on_shutdown(quorum: Quorum, _event: ev.Shutdown) -> None:
    quorum.is_shutting_down = True


def _on_tick(_quorum: Quorum, _event: ev.Tick) -> None:
    pass


EVENTS: dict[type, Callable[[Quorum, Any], None]] = {
    ev.Tick: _on_tick,
    ev.RequestReceived: _on_request,
    ev.ResponseReceived: _on_response,
    ev.RequestFailed: _on_failure,
    ev.Propose: _on_proposal,
    ev.ChangeVoters: _on_change,
    ev.LogSynced: _on_synced,
    ev.AppendFailed: _on_append_failed,
    ev.SnapshotFinished: snapshot.finished,
    ev.SnapshotFailed: snapshot.failed,
    ev.Resign: _on_resign,
    ev.Shutdown: _on_shutdown,
}


def _poll_unattached(quorum: Quorum, state: Unattached) -> int:
    if not quorum.may_be_needed:
        return follower.poll_observer_without_leader(quorum, state)
    deadline = election.poll_unattached(quorum, state)
    if quorum.state is not state:
        return deadline
    if quorum.must_ask_about_disks:
        return min(deadline, follower.look_for_leader(quorum))  # the others' answers about their disks expire
    # A leader may not know where we are now (KAFKA-17030).
    return min(deadline, follower.ask_any_voter(quorum, quorum.other_voters())) if quorum.is_dynamic else deadline


POLLS: dict[Role, Callable[[Quorum, Any], int]] = {
    Role.UNATTACHED: _poll_unattached,
    Role.PROSPECTIVE: election.poll_prospective,
    Role.CANDIDATE: election.poll_candidate,
    Role.FOLLOWER: follower.poll_follower,
    Role.LEADER: replication.poll_leader,
    Role.RESIGNED: election.poll_resigned,
}


@value
class QuorumInfo:
    """DescribeQuorum as this node sees it. Only a leader knows the progress of replicas; elsewhere it is empty.

    ``high_watermark`` is -1 on a leader that has not committed anything in its epoch yet.
    """

    role: Role
    epoch: int
    leader_id: int | None
    high_watermark: int
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]
    has_leader: bool = True
    """Whether this node leads, or has heard of its leader within the fetch time-out."""
    waits_for: Mapping[int, Word] = field(default_factory=dict)
    """The reports of the other voters about their disks, while this node takes no part in elections because its disk
    began empty."""
    led_by_stock: bool = False
    """Whether the leader is one of Kafka's own controllers. The node reads that from the first record of the epoch."""
    vote: ReplicaKey | None = None
    """The node's vote in this epoch. A follower has none (``KafkaRaftMetrics``)."""
    is_voter: bool = True

    @property
    def present_leader_id(self) -> int | None:
        """The leader, if this node has heard of it lately. `leader_id` may name a leader that is gone."""
        return self.leader_id if self.has_leader else None


class RaftNode:
    """The consensus of one node. Not thread-safe; the package's docstring has the contract with its caller.

    :param stored: the election state that was last persisted, `NEVER_ELECTED` if none ever was.
    :param now_ms: the time on the clock that every later ``now_ms`` comes from.
    """

    def __init__(self, config: RaftConfig, log: LogView, stored: ElectionState, random: Random, now_ms: int) -> None:
        self._quorum = Quorum(config, log, stored, random, now_ms)
        if self._quorum.is_voter and not self._quorum.other_voters() and isinstance(self._quorum.state, Unattached):
            self._quorum.state.election_deadline = now_ms  # a sole voter need not wait: nobody else can be elected
        self._deadline = now_ms
        self._is_ready_to_stop = False

    @property
    def role(self) -> Role:
        """The role of this node in `epoch`."""
        return self._quorum.state.role

    @property
    def epoch(self) -> int:
        """The highest leader epoch that this node knows."""
        return self._quorum.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of `epoch`, None while unknown."""
        return self._quorum.leader_id

    @property
    def high_watermark(self) -> int:
        """The offset before which everything is committed, to this node's knowledge."""
        return self._quorum.high_watermark

    @property
    def leader_high_watermark(self) -> int | None:
        """The high watermark in the leader's last answer: beyond `high_watermark` on a follower that is behind."""
        state = self._quorum.state
        if isinstance(state, Leader):
            return state.high_watermark
        told = state.leader_high_watermark if isinstance(state, Follower) else -1
        return None if told < 0 else told

    @property
    def epoch_start_offset(self) -> int | None:
        """The offset of the first record of this leader's epoch; None on other nodes. Once the high watermark has
        passed it, the leader knows everything that was committed before."""
        state = self._quorum.state
        return state.start_offset if isinstance(state, Leader) else None

    @property
    def membership(self) -> Membership:
        """The voters in force: those in the log, or the configured ones when the log names none."""
        return replace(self._quorum.membership, voters=self._quorum.voter_set)

    def why_not(self, change: VoterChange) -> Refusal | None:
        """Why this node, as the leader, would refuse a change; None when it would not. The new voter has not been asked
        yet for the versions that it supports."""
        return membership.why_not(self._quorum, change)

    def disclosed_leader(self, asker: Asker) -> tuple[int, int]:
        """Leader and epoch for an answer outside of consensus; -1 and 0 when the asker must not learn them."""
        if not self._quorum.may_hear(asker):
            return -1, 0
        return -1 if self.leader_id is None else self.leader_id, self.epoch

    def deadline(self) -> int | None:
        """The time at which the next `Tick` is due, on the clock of `step`; None when the core waits for no time."""
        return None if self._deadline >= NEVER else self._deadline

    def step(self, event: ev.Event, now_ms: int) -> list[fx.Effect]:
        """Handle one event.

        :param now_ms: milliseconds on a monotonic clock.
        :returns: the effects that the node has to perform, in this order, before the next step.
        :raises InvariantViolation: this process is in a wrong state and has to stop. No peer can cause that.
        """
        quorum = self._quorum
        quorum.now = max(quorum.now, now_ms)
        quorum.log_changes = False
        membership.follow_log(quorum)
        election.end_election_if_removed(quorum)
        EVENTS[type(event)](quorum, event)
        self._poll()
        if quorum.is_shutting_down and not self._is_ready_to_stop and self._may_stop():
            self._is_ready_to_stop = True
            quorum.emit(fx.ReadyToStop())
        effects, quorum.effects = quorum.effects, []
        return effects

    def _poll(self) -> None:
        for _ in range(TRANSITIONS_PER_STEP_MAX):
            election.end_election_if_removed(self._quorum)
            state = self._quorum.state
            self._deadline = POLLS[state.role](self._quorum, state)
            # A poll may change the role. Then the deadline is that of the old role, so the new one is polled, too.
            if self._quorum.state is state:
                return
        require(condition=False, message=f"the role does not settle: {self._quorum.state}")

    def _may_stop(self) -> bool:
        """Whether this node may stop: it is an observer, another node leads (``maybeCompleteShutdown``), or no other
        voter can be reached to become the leader."""
        quorum = self._quorum
        others = quorum.voters - {quorum.node_id}
        if not quorum.is_voter or all(map(quorum.peers.is_away, others)):
            return True
        return quorum.leader_id not in {None, quorum.node_id}

    def status(self, now_ms: int) -> QuorumInfo:
        """The state of the quorum for DescribeQuorum, status and metrics."""
        quorum, state = self._quorum, self._quorum.state
        voters: tuple[ReplicaStatus, ...] = ()
        observers: tuple[ReplicaStatus, ...] = ()
        if isinstance(state, Leader):
            me, now, end = quorum.config.directory_id, now_ms, quorum.log.end_offset()
            own = [ReplicaState(quorum.node_id, me, now, end, heard_ms=now, last_fetch_ms=now, last_caught_up_ms=now)]
            others, watching = state.replicas.voters.values(), state.replicas.watching(now_ms, end)
            voters = rows([*own, *others] if quorum.is_voter else others)
            observers = rows(watching if quorum.is_voter else [*own, *watching])
        # A leader knows what is committed only after a record of its own epoch is (``LeaderState.highWatermark``).
        committed = state.high_watermark if isinstance(state, Leader) else quorum.high_watermark
        known = quorum.epoch, quorum.leader_id, -1 if committed is None else committed
        return QuorumInfo(
            state.role,
            *known,
            voters,
            observers,
            quorum.has_leader,
            quorum.waits_for,
            vote=_vote(quorum),
            is_voter=quorum.is_voter,
        )


def _vote(quorum: Quorum) -> ReplicaKey | None:
    state = quorum.state
    if isinstance(state, Candidate | Leader):
        return ReplicaKey(quorum.node_id, quorum.config.directory_id)
    if isinstance(state, Unattached | Prospective) and state.voted_id is not None:
        return ReplicaKey(state.voted_id, state.voted_directory_id)
    return None
