"""The leader: appends, answers fetches, moves the high watermark, and resigns (KIP-595; Raft 5.3, 5.4).

`core.RaftNode` calls `propose` and `handle_fetch` for events, and `poll_leader` after each event. A fetch without news
is parked until there are new records, a new high watermark, or its time is over.

What always holds: a record is committed when a majority of voters has it on disk, and only with a record of the present
epoch (Raft 5.4.2). The leader counts its own records after its own fsync; stock Kafka counts them before. A leader that
no majority fetches from resigns (check quorum).
"""

from __future__ import annotations

from collections.abc import Hashable

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import responses, votes
from migrator.raft.events import Propose
from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
)
from migrator.raft.progress import ReplicaState
from migrator.raft.quorum import CHECK_QUORUM_FACTOR, Quorum
from migrator.raft.states import NEVER, Leader, LeadershipTransfer, ParkedFetch
from migrator.raft.storage import LogView
from migrator.records.uuid import Uuid
from migrator.values import value

# Appends


def propose(quorum: Quorum, event: Propose) -> None:
    """Append the node's batches, unless its leadership has ended or is about to end; `RoleChanged` says so."""
    leader = quorum.state
    if isinstance(leader, Leader) and event.epoch == quorum.epoch and leader.handover is None:
        quorum.append(fx.Append(event.batches, event.epoch))
        answer_parked(quorum, leader)


def update_high_watermark(quorum: Quorum, leader: Leader) -> None:
    """Commit the records that a majority has on disk, once these include a record of this epoch (Raft 5.4.2)."""
    ends = [_durable_end(quorum, leader, voter) for voter in quorum.voters]
    offset = votes.committed_offset(ends)
    # At ``start_offset`` is the first record of this epoch. Older records alone never commit, however many have them.
    if offset is None or offset <= leader.start_offset or offset <= (leader.high_watermark or 0):
        return
    leader.high_watermark = offset
    quorum.log_is_whole()
    quorum.advance_high_watermark(offset)
    answer_parked(quorum, leader)


def _durable_end(quorum: Quorum, leader: Leader, voter: int) -> int | None:
    """The end offset that a voter has on disk. The leader's own records count only after its fsync, too; stock Kafka
    counts them before."""
    if voter == quorum.node_id:
        # A leader that was removed leads on until its removal is committed, without a share of its own (KIP-853).
        return quorum.synced_end if quorum.is_voter else None
    end = leader.replicas.voters[voter].end_offset
    return None if end < 0 else end


# Fetch


@value
class FetchPosition:
    """The result of `locate`: at most one of the two is set, and neither when the position is valid in our log."""

    diverging: EpochOffset | None = None
    snapshot_id: EpochOffset | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the replica's log is a prefix of ours, and we still have the records that follow."""
        return self.diverging is None and self.snapshot_id is None


def locate(log: LogView, offset: int, last_epoch: int) -> FetchPosition:
    """Compare the end of a replica's log with ours (ReplicatedLog.validateOffsetAndEpoch of Kafka 3.9).

    :param offset: the end offset of the replica's log.
    :param last_epoch: the epoch of its last record.
    """
    start = log.start_offset()
    snapshots = [known for known in log.snapshots() if known.offset >= start]  # older ones are about to be deleted
    if snapshots:
        oldest, newest = snapshots[0], snapshots[-1]
        is_before = offset < start or (offset == start and last_epoch != oldest.epoch)
        if offset == 0 or is_before or last_epoch < oldest.epoch:
            return FetchPosition(snapshot_id=newest)
    if offset == 0 and last_epoch == 0 and start == 0:  # an empty log diverges nowhere
        return FetchPosition()
    # As in Raft 5.3, epoch and offset of the last record decide: logs that agree there agree in all before it.
    end = log.end_of_epoch(last_epoch)
    if end.epoch != last_epoch or end.offset < offset:
        return FetchPosition(diverging=end)
    return FetchPosition()


def leader_error(quorum: Quorum, epoch: int) -> ErrorCode:
    """Why a request that only the leader of ``epoch`` can answer is refused (``validateLeaderOnlyRequest``)."""
    if epoch < quorum.epoch:
        return ErrorCode.fenced_leader_epoch
    if epoch > quorum.epoch:
        return ErrorCode.unknown_leader_epoch
    if not isinstance(quorum.state, Leader):
        return ErrorCode.not_leader_or_follower
    # Unlike Kafka's leader, this one still answers while it hands over: the successor has to fetch the rest of the log.
    if quorum.is_shutting_down and quorum.state.handover is None:
        return ErrorCode.broker_not_available
    return ErrorCode.none


def handle_fetch(quorum: Quorum, context: Hashable, request: FetchRequest) -> None:
    """Answer the fetch of a replica or a client, now or when there are new records."""
    error = _malformation(quorum, request)
    if error == ErrorCode.none:
        error = leader_error(quorum, request.leader_epoch)
    leader = quorum.state
    if error != ErrorCode.none or not isinstance(leader, Leader):
        quorum.reply(context, request, responses.fetch(quorum, error))
        return
    position = locate(quorum.log, request.fetch_offset, request.last_fetched_epoch)
    progress = progress_of(quorum, leader, request)
    if progress is not None:
        progress.show(request.replica_directory_id, request.fetch_offset)
    has_news = not position.is_valid or request.fetch_offset < quorum.log.end_offset()
    if position.is_valid and progress is not None:
        has_news |= _note_fetch(quorum, leader, progress, request.fetch_offset)
    # Kafka's purgatory has no limit, so clients could make the leader keep any number of waiting fetches.
    if has_news or request.max_wait_ms == 0 or len(leader.parking.waiting) >= quorum.config.max_parked_fetches:
        _answer(quorum, leader, context, request, position)
    else:
        leader.parking.park(ParkedFetch(context, request, quorum.now + request.max_wait_ms))


def progress_of(quorum: Quorum, leader: Leader, request: FetchRequest | FetchSnapshotRequest) -> ReplicaState | None:
    """The progress of the replica that sent the request; None for a client."""
    key = request.replica_id, request.replica_directory_id
    return leader.replicas.find(*key, quorum.now, quorum.log.end_offset())


def _note_fetch(quorum: Quorum, leader: Leader, progress: ReplicaState, offset: int) -> bool:
    """Note the offset to which a replica has the log on disk. Returns whether the replica does not know the high
    watermark yet."""
    progress.fetched(offset, quorum.log.end_offset(), quorum.now)
    note_contact(quorum, leader, *progress.key)
    update_high_watermark(quorum, leader)
    told, progress.told_high_watermark = progress.told_high_watermark, _high_watermark(leader)
    return told < progress.told_high_watermark


def _malformation(quorum: Quorum, request: FetchRequest) -> ErrorCode:
    is_wrong = (
        request.max_wait_ms < 0
        or request.fetch_offset < 0
        or not 0 <= request.last_fetched_epoch <= request.leader_epoch
        or request.replica_id == quorum.node_id
    )
    return ErrorCode.invalid_request if is_wrong else ErrorCode.none


def _high_watermark(leader: Leader) -> int:
    return -1 if leader.high_watermark is None else leader.high_watermark


def _answer(quorum: Quorum, leader: Leader, context: Hashable, request: FetchRequest, position: FetchPosition) -> None:
    response: FetchResponse = responses.fetch(
        quorum,
        ErrorCode.none,
        high_watermark=_high_watermark(leader),
        diverging=position.diverging,
        snapshot_id=position.snapshot_id,
    )
    if position.is_valid:
        quorum.answer(request, fx.ReadLog(context, response, request.fetch_offset, request.max_bytes))
    else:
        quorum.reply(context, request, response)


def answer_parked(quorum: Quorum, leader: Leader) -> None:
    """Answer every waiting fetch, because there are new records or a new high watermark."""
    _answer_all(quorum, leader, leader.parking.take_all())


def _answer_all(quorum: Quorum, leader: Leader, fetches: list[ParkedFetch]) -> None:
    for fetch in fetches:
        request = fetch.request
        progress = progress_of(quorum, leader, request)
        if progress is not None:
            progress.told_high_watermark = _high_watermark(leader)
        # Retention may have removed the records at this position while the fetch waited.
        position = locate(quorum.log, request.fetch_offset, request.last_fetched_epoch)
        _answer(quorum, leader, fetch.context, request, position)


# Leadership


def note_contact(quorum: Quorum, leader: Leader, replica_id: int, directory_id: Uuid) -> None:
    """Check quorum: when a majority (including this node, if it votes) has fetched, the deadline begins anew."""
    # The same id on another disk is no voter, although it fetches: it must not keep a cut-off leader in office.
    if not quorum.voter_set.has(replica_id, directory_id):
        return
    leader.fetched.add(replica_id)
    own = {quorum.node_id} if quorum.is_voter else set()
    if votes.is_won(quorum.voters, leader.fetched | own):
        watch_majority(quorum, leader)


def watch_majority(quorum: Quorum, leader: Leader) -> None:
    """Begin the time anew within which a majority of the voters has to fetch."""
    leader.fetched.clear()
    leader.check_quorum_deadline = quorum.now + int(quorum.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)


def hand_over(quorum: Quorum, leader: Leader, preferred: int | None = None) -> None:
    """Append nothing more, let the successor fetch the rest, and resign (Raft thesis 3.10). A voter that lacks records
    is not elected, and under load every voter lacks some."""
    if leader.handover is None:
        leader.handover = LeadershipTransfer(preferred, quorum.now + quorum.config.election_timeout_ms // 2)
    elif preferred is not None:
        leader.handover.preferred = preferred


def _has_successor(quorum: Quorum, leader: Leader, handover: LeadershipTransfer) -> bool:
    """Whether to resign now: a possible successor has the whole log, or the time for that is over."""
    if quorum.now >= handover.deadline:
        return True
    end, preferred = quorum.log.end_offset(), handover.preferred
    found = (entry for entry in leader.replicas.voters.values() if entry.end_offset == end)
    return any(
        quorum.config.may_grant_vote(entry.replica_id) if preferred is None else entry.replica_id == preferred
        for entry in found
    )


def resign(quorum: Quorum, leader: Leader, preferred: int | None = None) -> None:
    """Resign at once, in favour of ``preferred``, or of the most caught-up voter that may lead when it is None."""
    ends = [(entry.replica_id, entry.end_offset) for entry in leader.replicas.voters.values()]
    eligible = {voter for voter, _ in ends if quorum.config.may_grant_vote(voter)}
    successors = votes.by_preference(ends, eligible if preferred is None else {preferred})
    quorum.become_resigned(successors)


def is_cut_off(quorum: Quorum, leader: Leader) -> bool:
    """Whether the time of check quorum is over without fetches from a majority."""
    return bool(quorum.other_voters()) and quorum.now >= leader.check_quorum_deadline


def is_removed(quorum: Quorum, leader: Leader) -> bool:
    """Whether the voter set without this leader is committed, so that it resigns (``LeaderState.requestResign``)."""
    return not quorum.is_voter and quorum.membership.offset < (leader.high_watermark or 0)


def poll_leader(quorum: Quorum, leader: Leader) -> int:
    """Announce leadership, answer the fetches that are due, resign when cut off or when a successor is ready."""
    if is_cut_off(quorum, leader) or is_removed(quorum, leader):
        resign(quorum, leader)
        return NEVER
    if quorum.is_shutting_down and quorum.other_voters():
        hand_over(quorum, leader)
    handover = leader.handover
    if handover is not None and _has_successor(quorum, leader, handover):
        resign(quorum, leader, handover.preferred)
        return NEVER
    _answer_all(quorum, leader, leader.parking.take_due(quorum.now))
    if quorum.now >= leader.begin_deadline:
        period = quorum.config.fetch_timeout_ms // 2
        _announce(quorum, leader, period)
        leader.begin_deadline = quorum.now + period
    # A sole voter has nobody to hear, so check quorum never ends its leadership.
    deadlines = (fetch.deadline for fetch in leader.parking.waiting)
    check_quorum_deadline = leader.check_quorum_deadline if quorum.other_voters() else NEVER
    handover_deadline = NEVER if handover is None else handover.deadline
    return min((check_quorum_deadline, leader.begin_deadline, handover_deadline, *deadlines))


def _announce(quorum: Quorum, leader: Leader, period: int) -> None:
    """Send BeginQuorumEpoch to every voter that has not fetched for ``period`` milliseconds. The others know the leader
    (KAFKA-16926, Kafka 4.2; up to 4.1 Kafka informs all voters)."""
    for voter in sorted(quorum.other_voters()):
        heard_ms = leader.replicas.voters[voter].heard_ms
        is_silent = heard_ms < 0 or quorum.now - heard_ms >= period
        if is_silent and quorum.peers.is_ready(voter, quorum.now):
            directory = quorum.voter_set.key(voter).directory_id
            begin = BeginQuorumEpochRequest(quorum.config.cluster_id, voter, quorum.node_id, quorum.epoch, directory)
            quorum.send(voter, begin)
