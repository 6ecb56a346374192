"""The follower and the observer: they fetch from the leader, truncate their log, and follow its high watermark
(KIP-595).

`core.RaftNode` calls it with each Fetch response, when a request to the leader or an append fails, and after each event
(``poll_...``). A follower fetches only while its whole log is on disk, because the leader counts a fetch as an
acknowledgement of everything before its offset. Nothing below the high watermark is ever truncated. A voter that hears
no leader for a fetch time-out begins an election (`election.stand`); an observer asks any voter or bootstrap server who
leads.
"""

from __future__ import annotations

from collections.abc import Collection

from migrator.raft import effects as fx
from migrator.raft import election, snapshot
from migrator.raft.departure import QUESTIONS_MAX, Departure
from migrator.raft.events import Failure
from migrator.raft.messages import EpochOffset, FetchRequest, FetchResponse
from migrator.raft.quorum import Quorum
from migrator.raft.states import NEVER, Follower, Unattached
from migrator.raft.storage import LogView

DOUBLINGS_MAX = 16


def handle_fetch_response(quorum: Quorum, peer: int, response: FetchResponse) -> None:
    """Truncate, begin a snapshot or append, as the leader says."""
    follower = quorum.state
    if not isinstance(follower, Follower) or follower.leader_id != peer:
        quorum.blame(peer, "answers a fetch as if it were the leader")
        return
    if response.diverging is not None:
        accepted = _truncate(quorum, peer, response.diverging)
    elif response.snapshot_id is not None:
        accepted = snapshot.begin_download(quorum, follower, response.snapshot_id)
    else:
        if response.records:
            quorum.append(fx.Append(response.records))
        follower.leader_high_watermark = response.high_watermark
        update_high_watermark(quorum, follower)
        accepted = True
    if accepted:
        follower.is_doubted = False
        quorum.prolong(follower)


def leader_fails(quorum: Quorum, follower: Follower, how: Failure) -> None:
    """A request to the leader failed. If the leader's process seems to have died, a voter asks for pre-votes at once,
    without waiting for the fetch time-out. If the others still hear the leader, no epoch is raised."""
    seen = quorum.departure
    if how is Failure.CONNECTION_LOST:
        seen.connection_lost()
    elif how is Failure.REFUSED and seen.refused(quorum.now):
        wait_ms = seen.least_wait_ms()
        wait_ms += quorum.random.randrange(wait_ms)
        quorum.peers.back_off(follower.leader_id, quorum.now, wait_ms)
        if seen.is_evident and not quorum.may_be_needed:
            follower.fetch_deadline = quorum.now  # an observer looks for the next leader
        elif seen.is_evident and not follower.leader_ended and _may_ask_early(quorum, seen):
            seen.questions += 1
            quorum.ask_early(follower, wait_ms)


def _may_ask_early(quorum: Quorum, seen: Departure) -> bool:
    """Whether an early election may begin or go on. At most one begins in each fetch time-out."""
    if quorum.may_not_stand or seen.questions >= QUESTIONS_MAX:
        return False
    if not seen.questions and quorum.now < quorum.early_again_at:
        return False
    if not seen.questions:
        quorum.early_again_at = quorum.now + quorum.config.fetch_timeout_ms
    return True


def append_failed(quorum: Quorum, follower: Follower) -> None:
    """The disk is full, or the leader's records are damaged. Each attempt costs both sides megabytes, so the attempts
    become rarer, but not so rare that the leader would count this node as silent."""
    end = quorum.log.end_offset()
    follower.refusals = follower.refusals + 1 if follower.refused_end == end else 0
    follower.refused_end = end
    doubled = quorum.config.retry_backoff_ms << min(follower.refusals, DOUBLINGS_MAX)
    quorum.peers.back_off(follower.leader_id, quorum.now, min(doubled, quorum.config.fetch_timeout_ms // 4))


def truncation_offset(log: LogView, diverging: EpochOffset) -> int:
    """The offset to which our log is truncated (``ReplicatedLog.truncateToEndOffset``). In the logs of honest nodes an
    epoch ends where a batch ends.

    :param diverging: an epoch in the leader's log, and where it ends there.
    """
    ours = log.end_of_epoch(diverging.epoch)
    # An offset within a batch cannot be a truncation point: the log holds whole batches only.
    return log.batch_start(min(ours.offset, diverging.offset) if ours.epoch == diverging.epoch else ours.offset)


def _truncate(quorum: Quorum, peer: int, diverging: EpochOffset) -> bool:
    offset = truncation_offset(quorum.log, diverging)
    if diverging.epoch < 0 or diverging.offset < quorum.high_watermark or offset < quorum.high_watermark:
        quorum.keep_committed(
            peer, f"wants committed records removed: {diverging} with all committed below {quorum.high_watermark}"
        )
        return False
    recovered = quorum.config.recovered()
    # The records up to there were declared committed when a lost majority was given up (ADR 24).
    if offset < recovered.end_offset:
        quorum.blame(peer, f"wants the recovery of epoch {recovered.epoch} removed: {diverging}")
        return False
    if offset >= quorum.log.end_offset():
        quorum.blame(peer, f"says that our log diverges at {diverging}, which is beyond its end")
        return False
    quorum.rewrite(fx.TruncateTo(offset), durable_end=min(quorum.synced_end, offset))
    return True


def update_high_watermark(quorum: Quorum, follower: Follower) -> None:
    """Records count as committed here when the leader says so and they are on this node's disk."""
    # Otherwise ``log`` shows its old end until the next step, which would commit records that are about to go.
    if not quorum.log_changes:
        if 0 < follower.leader_high_watermark <= quorum.synced_end:
            quorum.log_is_whole()  # a disk that began empty takes part in elections from here on (ADR 33)
        quorum.advance_high_watermark(min(follower.leader_high_watermark, quorum.synced_end))


# Polls. Each returns the time of its next call.


def poll_follower(quorum: Quorum, follower: Follower) -> int:
    """Fetch from the end of the durable log. A voter that hears no leader for a fetch time-out stands for election."""
    if not quorum.log_is_durable or quorum.finishing is not None:
        return NEVER  # the node steps LogSynced or SnapshotFinished; a slow disk here is no reason for an election
    if not quorum.may_be_needed:
        return _poll_observer(quorum, follower)
    if quorum.is_shutting_down:
        return NEVER
    if quorum.may_not_stand:
        return _ask_leader(quorum, follower)  # this node begins no election, so no deadline counts
    if quorum.now >= follower.fetch_deadline:
        if follower.leader_ended:
            quorum.become_candidate()  # the leader itself asks for an election
            return NEVER
        waits = election.stand(quorum)
        return waits if quorum.state is not follower else min(waits, _ask_leader(quorum, follower))
    return min(follower.fetch_deadline, _ask_leader(quorum, follower))


def _ask_leader(quorum: Quorum, follower: Follower) -> int:
    if quorum.peers.is_ready(follower.leader_id, quorum.now):
        if follower.download is not None:
            quorum.send(follower.leader_id, snapshot.next_chunk(quorum, follower.download))
        else:
            quorum.send(follower.leader_id, fetch_request(quorum))
    return quorum.peers.ready_at(follower.leader_id)


def _poll_observer(quorum: Quorum, follower: Follower) -> int:
    """Fetch as a voter does. After the fetch time-out, ask any voter for the leader."""
    ready_at = quorum.peers.ready_at(follower.leader_id)
    is_outstanding = quorum.peers.is_outstanding(follower.leader_id)
    if quorum.now < follower.fetch_deadline and is_outstanding and ready_at > quorum.now:
        return min(follower.fetch_deadline, ready_at)
    if quorum.now < follower.fetch_deadline and not is_outstanding and ready_at <= quorum.now:
        return min(follower.fetch_deadline, _ask_leader(quorum, follower))
    deadline = look_for_leader(quorum)
    # The requests to other voters are about their disks. Only a fetch shows whether the leader is back.
    return min(deadline, _ask_leader(quorum, follower)) if quorum.must_ask_about_disks else deadline


def poll_observer_without_leader(quorum: Quorum, _state: Unattached) -> int:
    """An observer asks any voter or bootstrap server for the leader."""
    return look_for_leader(quorum)


def look_for_leader(quorum: Quorum) -> int:
    """Ask for the leader, on a node that takes no part in elections. A voter whose disk began empty asks with
    pre-votes: the answers also tell whether it may take part."""
    if not quorum.must_ask_about_disks:
        return ask_any_voter(quorum, quorum.other_voters())
    deadline, mute = quorum.census.ask(quorum)
    return min(deadline, ask_any_voter(quorum, mute))


def ask_any_voter(quorum: Quorum, among: Collection[int]) -> int:
    """Fetch from a random voter or bootstrap server, one at a time. A node that does not lead names the leader."""
    voters = sorted(among) + list(quorum.config.bootstrap)
    if not voters:
        return NEVER  # no address is known: the leader has to announce itself
    waiting = [quorum.peers.ready_at(voter) for voter in voters if quorum.peers.is_outstanding(voter)]
    if waiting and min(waiting) > quorum.now:
        return min(waiting)
    ready = [voter for voter in voters if quorum.peers.is_ready(voter, quorum.now)]
    if not ready:
        return min(quorum.peers.ready_at(voter) for voter in voters)
    # A random one, as in Kafka: the first in order may be the one that never answers.
    chosen = ready[quorum.random.randrange(len(ready))]
    quorum.send(chosen, fetch_request(quorum))
    return quorum.peers.ready_at(chosen)


def fetch_request(quorum: Quorum) -> FetchRequest:
    """The next fetch. Its offset means to the leader that everything before it is on this node's disk."""
    config, end = quorum.config, quorum.log_end()
    return FetchRequest(
        cluster_id=config.cluster_id,
        replica_id=quorum.node_id,
        leader_epoch=quorum.epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        # A new connection after a lost one: an answer without a wait shows at once whether the leader is still there.
        max_wait_ms=0 if quorum.departure.is_connection_lost else config.fetch_max_wait_ms,
        max_bytes=config.fetch_max_bytes,
        replica_directory_id=config.directory_id,
    )
