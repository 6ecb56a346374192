"""Elections: Vote, BeginQuorumEpoch, EndQuorumEpoch, and the roles that wait for a leader (KIP-595; Raft 5.2, 5.4).

`core.RaftNode` calls ``handle_...`` for each message, and ``poll_...`` for the role of this node after each event; a
poll returns the time at which it has to be called again. The functions change the `Quorum` and add effects to it.

What always holds: a node grants one vote in an epoch at most, and that vote is on disk before it is sent. A candidate
asks for votes only when its whole log is on disk. A pre-vote (KIP-996) asks in the candidate's present epoch, raises no
epoch beyond it, and promises nothing durable.
"""

from __future__ import annotations

from collections.abc import Hashable

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import responses, votes
from migrator.raft.census import own_log
from migrator.raft.config import may_follow
from migrator.raft.learning import is_plausible, learn
from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochOffset,
    VoteRequest,
    VoteResponse,
)
from migrator.raft.quorum import Quorum
from migrator.raft.states import NEVER, Candidate, Follower, Prospective, Resigned, Unattached
from migrator.records.uuid import ZERO_UUID, Uuid

PROMISE_MS = 100
"""A follower that has promised its vote in a pre-vote does not ask its silent leader for this long. The wait keeps it
from standing for election itself before the candidate does."""

# Vote


def handle_vote(quorum: Quorum, context: Hashable, request: VoteRequest) -> None:
    """Answer a candidate. Its higher epoch is taken over even if the vote is refused, if it may raise the epoch."""
    error = _vote_error(quorum, request)
    is_addressed = _is_addressed(quorum, request.voter_id, request.voter_directory_id)
    # A candidate that may not stand gets no vote, but no error either: an error would end a stock peer.
    may_stand = error == ErrorCode.none and _teaches(quorum, is_addressed=is_addressed) and _may_stand(quorum, request)
    if may_stand and request.candidate_epoch > quorum.epoch:
        quorum.become_unattached(request.candidate_epoch)  # also before a pre-vote: that epoch has had an election
    if error == ErrorCode.none and not is_addressed:
        error = ErrorCode.invalid_voter_key
    quorum.census.asked_for_vote(quorum, request)
    decide = _would_grant if request.pre_vote else _grant
    granted = error == ErrorCode.none and may_stand and decide(quorum, request)
    if granted and isinstance(quorum.state, Follower):
        quorum.peers.back_off(quorum.state.leader_id, quorum.now, PROMISE_MS)  # the candidate stands first
    own = own_log(quorum) if request.pre_vote else None
    quorum.reply(context, request, responses.vote(quorum, error, granted=granted, own_log=own))


def _vote_error(quorum: Quorum, request: VoteRequest) -> ErrorCode:
    # A pre-vote names the candidate's present epoch, a vote the next one, which no record can have yet (KIP-996).
    last_epoch_max = request.candidate_epoch if request.pre_vote else request.candidate_epoch - 1
    if request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_max:
        return ErrorCode.invalid_request
    if request.candidate_epoch < quorum.epoch:
        return ErrorCode.fenced_leader_epoch
    if request.candidate_id < 0 or request.candidate_id == quorum.node_id:
        return ErrorCode.invalid_request
    return ErrorCode.none


def _may_stand(quorum: Quorum, request: VoteRequest) -> bool:
    """Whether a candidate may raise the epoch. A voter may. At kraft.version 0 the voters are configured, and no other
    node may. With voters in the log, this node's set may be older than the candidate's: then an unknown node may, too,
    but only while this node hears no leader, so that it deposes none."""
    if not may_follow(quorum.epoch, request.candidate_epoch):
        return False
    if quorum.voter_set.has(request.candidate_id, request.candidate_directory_id):
        return True
    return not quorum.has_fixed_voters and not quorum.has_leader


def _is_addressed(quorum: Quorum, voter_id: int, directory: Uuid) -> bool:
    """Whether the voter that a request names is this node, on this disk; version 0 names none (KIP-853)."""
    if voter_id < 0:
        return True
    return voter_id == quorum.node_id and directory in {ZERO_UUID, quorum.config.directory_id}


def _teaches(quorum: Quorum, *, is_addressed: bool) -> bool:
    """Whether to take epoch and leader from a request. Kafka also does so when the request is meant for another
    replica. With voters in the log this node does not: a replica that was given up may run at the address where others
    expect its successor, with the same id and another disk, and must not learn the epoch."""
    return is_addressed or quorum.has_fixed_voters


def _is_among_successors(quorum: Quorum, request: EndQuorumEpochRequest) -> bool:
    """Whether EndQuorumEpoch is meant for this node: it goes to all voters, and names all of them with their disks."""
    named = zip(request.preferred_successors, request.successor_directories, strict=False)
    return not request.successor_directories or any(_is_addressed(quorum, *key) for key in named)


def _grant(quorum: Quorum, request: VoteRequest) -> bool:
    """Decide, and make the vote durable. The same candidate gets the same answer again, unless ``may_grant_vote``
    refuses it now: the candidate may be another process than before, and a refusal is always safe."""
    state, floor = quorum.state, quorum.vote_floor
    # Other roles have no vote left (``EpochState.canGrantVote``): a follower's epoch has its leader, and a candidate
    # has voted for itself.
    if floor is None or not isinstance(state, Unattached | Prospective):
        return False
    if state.voted_id is not None:
        # A vote from version 0 of the quorum-state file names no directory (KIP-853).
        same_directory = state.voted_directory_id in {ZERO_UUID, request.candidate_directory_id}
        is_same = state.voted_id == request.candidate_id and same_directory
        return is_same and quorum.config.may_grant_vote(request.candidate_id)
    if state.leader_id is not None:
        return False  # this epoch has its leader, and an epoch never has two
    if not votes.is_up_to_date(EpochOffset(request.last_epoch, request.last_offset), floor):
        return False
    if not quorum.config.may_grant_vote(request.candidate_id):
        return False
    quorum.vote_for(request.candidate_id, request.candidate_directory_id)
    return True


def _would_grant(quorum: Quorum, request: VoteRequest) -> bool:
    """Whether this node would grant its vote now: it hears no leader, and the candidate's log is good enough."""
    floor = quorum.vote_floor
    if floor is None:
        return False
    end = EpochOffset(request.last_epoch, request.last_offset)
    if quorum.has_leader or not votes.is_up_to_date(end, floor):
        return False
    asks_early = isinstance(quorum.state, Prospective) and quorum.state.early_of is not None
    if asks_early and end == floor and quorum.node_id < request.candidate_id:
        # Two followers saw the leader die. If each promised the other its vote, both would stand and neither would win.
        return False
    return quorum.config.may_grant_vote(request.candidate_id)


def handle_vote_response(quorum: Quorum, peer: int, response: VoteResponse) -> None:
    """Count a vote. A lost election ends at once, without waiting for its time-out."""
    state = quorum.state
    if isinstance(state, Prospective):
        _count_pre_vote(quorum, state, peer, granted=response.vote_granted)
    if not isinstance(state, Candidate):
        return
    # A set, so that a repeated answer of one voter counts once.
    (state.granted if response.vote_granted else state.rejected).add(peer)
    if _is_elected(quorum, state):
        quorum.become_leader()
    elif state.backoff_deadline is None and votes.is_lost(quorum.voters, state.rejected):
        _back_off(quorum, state)


def _is_elected(quorum: Quorum, state: Candidate) -> bool:
    """Whether a majority has voted for this node. If its disk began empty, the disks of all others must still be known
    to have begun empty, too."""
    return votes.is_won(quorum.voters, state.granted) and not quorum.is_barred


def _count_pre_vote(quorum: Quorum, state: Prospective, peer: int, *, granted: bool) -> None:
    (state.granted if granted else state.rejected).add(peer)
    leader_refuses = peer == state.leader_id and not granted
    if votes.is_won(quorum.voters, state.granted) and quorum.may_be_needed and not quorum.may_not_stand:
        quorum.become_candidate()
    elif votes.is_lost(quorum.voters, state.rejected) or leader_refuses:
        quorum.give_up_prospects(state)  # a leader that refuses is alive: fetch from it before its check quorum ends


def pre_vote_is_unknown(quorum: Quorum, peer: int) -> None:
    """A peer knows no pre-votes, as Kafka before 4.0: it can only be asked for its vote (KIP-996). A vote raises the
    epoch and unseats the leader, so an early election counts the peer as refusing instead."""
    state = quorum.state
    if isinstance(state, Prospective) and state.early_of is not None:
        _count_pre_vote(quorum, state, peer, granted=False)
    elif isinstance(state, Prospective) and quorum.may_be_needed and not quorum.may_not_stand:
        quorum.become_candidate()


def end_election_if_removed(quorum: Quorum) -> None:
    """End this node's election when it has learned, from a snapshot for example, that it is removed."""
    state = quorum.state
    if isinstance(state, Prospective | Candidate) and not quorum.may_be_needed:
        quorum.leave_election(state)


def stand(quorum: Quorum) -> int:
    """Begin an election: with pre-votes, if they are configured and there are other voters.

    :returns: until when the node waits for addresses instead; NEVER when the election has begun.
    """
    if _waits_for_addresses(quorum):
        return quorum.address_deadline or quorum.now
    if asks_for_pre_votes(quorum) and quorum.other_voters():
        quorum.become_prospective()
    else:
        quorum.become_candidate()
    return NEVER


def asks_for_pre_votes(quorum: Quorum) -> bool:
    """Whether an election begins with pre-votes (KIP-996)."""
    config = quorum.config
    return config.asks_for_pre_votes or (config.asks_for_pre_votes_once_dynamic and quorum.is_dynamic)


def _waits_for_addresses(quorum: Quorum) -> bool:
    """Whether this node has to wait for the addresses of a majority (KIP-642). It waits one election time-out and no
    longer: a voter that the others can reach has to be electable, even if it lacks their addresses."""
    if not quorum.is_dynamic:
        return False
    missing = {voter for voter in quorum.other_voters() if not quorum.config.has_address(voter)}
    if votes.is_won(quorum.voters, quorum.voters - missing):
        quorum.address_deadline = None
        return False
    if quorum.address_deadline is None:
        quorum.address_deadline = quorum.now + quorum.config.election_timeout_ms
        quorum.emit(fx.AddressesMissing(tuple(sorted(missing)), quorum.address_deadline))
    return quorum.now < quorum.address_deadline


# BeginQuorumEpoch and EndQuorumEpoch


def handle_begin(quorum: Quorum, context: Hashable, request: BeginQuorumEpochRequest) -> None:
    """A leader announces itself."""
    error = _leader_error(quorum, request.leader_id, request.leader_epoch)
    is_addressed = _is_addressed(quorum, request.voter_id, request.voter_directory_id)
    if error == ErrorCode.none and _teaches(quorum, is_addressed=is_addressed):
        learn(quorum, request.leader_epoch, request.leader_id)
    if error == ErrorCode.none and not is_addressed:
        error = ErrorCode.invalid_voter_key
    quorum.reply(context, request, responses.begin(quorum, error))


def handle_end(quorum: Quorum, context: Hashable, request: EndQuorumEpochRequest) -> None:
    """A leader resigns: its followers stand for election in the order that it prefers."""
    error = _leader_error(quorum, request.leader_id, request.leader_epoch)
    if error == ErrorCode.none and not _is_among_successors(quorum, request):
        error = ErrorCode.invalid_voter_key
    if error == ErrorCode.none:
        learn(quorum, request.leader_epoch, request.leader_id)
        if isinstance(quorum.state, Prospective) and quorum.state.early_of is not None:
            quorum.give_up_prospects(quorum.state)  # the leader itself asks for an election
        if isinstance(quorum.state, Follower):
            _expect_election(quorum, quorum.state, request.preferred_successors)
    quorum.reply(context, request, responses.end(quorum, error))


def _leader_error(quorum: Quorum, leader_id: int, epoch: int) -> ErrorCode:
    if epoch < quorum.epoch:
        return ErrorCode.fenced_leader_epoch
    if leader_id < 0 or leader_id == quorum.node_id:
        return ErrorCode.invalid_request
    if not is_plausible(quorum, epoch, leader_id):
        return ErrorCode.invalid_voter_key  # invalid_request would end a stock peer that believes itself the leader
    return ErrorCode.none


def _expect_election(quorum: Quorum, follower: Follower, successors: tuple[int, ...]) -> None:
    position = successors.index(quorum.node_id) if quorum.node_id in successors else len(successors)
    wait = votes.successor_backoff_ms(position, len(successors), quorum.config.election_backoff_max_ms)
    # The end of the fetch time-out begins the election; ``leader_ended`` makes it one without pre-votes.
    follower.fetch_deadline = quorum.now + wait
    follower.leader_ended = True


def handle_begin_response(_quorum: Quorum, _peer: int, _response: BeginQuorumEpochResponse) -> None:
    """Do nothing: the follower's fetch will show that it knows the leader."""


def handle_end_response(quorum: Quorum, peer: int, _response: EndQuorumEpochResponse) -> None:
    """Tell this voter of the resignation no more."""
    if isinstance(quorum.state, Resigned):
        quorum.state.unacknowledged.discard(peer)


# Roles without a leader. Each function returns the time of its next call.


def poll_unattached(quorum: Quorum, state: Unattached) -> int:
    """A voter waits for another candidate, and stands itself after the election time-out."""
    if quorum.may_not_stand:
        return NEVER
    return stand(quorum) if quorum.now >= state.election_deadline else state.election_deadline


def poll_prospective(quorum: Quorum, state: Prospective) -> int:
    """Ask for pre-votes. Without a majority in time, ask all again, or look for a leader where there may be one."""
    if quorum.may_not_stand:
        return NEVER
    if quorum.now < state.election_deadline:
        return min(state.election_deadline, _ask_for_votes(quorum, state))
    if state.leader_id in {None, quorum.node_id} and not quorum.is_dynamic:
        quorum.become_prospective()
    else:
        quorum.give_up_prospects(state)
    return NEVER


def poll_candidate(quorum: Quorum, state: Candidate) -> int:
    """Ask for votes until the election is won, lost or over; then wait a random while and begin anew."""
    if not quorum.config.may_stand():
        return NEVER  # it became a candidate before its restart, and may not stand now
    if _is_elected(quorum, state):
        quorum.become_leader()  # a sole voter needs nobody else's vote
        return NEVER
    if quorum.may_not_stand:  # the election that runs may still be won, which lets the winner hand over
        return NEVER if votes.is_lost(quorum.voters, state.rejected) else _ask_for_votes(quorum, state)
    if state.backoff_deadline is None and quorum.now >= state.election_deadline:
        _back_off(quorum, state)
    if state.backoff_deadline is None:
        return min(state.election_deadline, _ask_for_votes(quorum, state))
    if quorum.now >= state.backoff_deadline:
        return stand(quorum)
    return state.backoff_deadline


def _ask_for_votes(quorum: Quorum, state: Candidate | Prospective) -> int:
    """Ask the voters that have not answered, but only once the whole log is on disk. A voter grants the same candidate
    a second time without comparing logs, so a crash must not undo the claim of the first request."""
    if not quorum.log_is_durable:
        return NEVER  # the node steps LogSynced
    config, end = quorum.config, quorum.log_end()
    silent = quorum.voters - state.granted - state.rejected
    for voter in sorted(silent):
        if quorum.peers.is_ready(voter, quorum.now):
            request = VoteRequest(
                cluster_id=config.cluster_id,
                voter_id=voter,
                candidate_epoch=quorum.epoch,
                candidate_id=quorum.node_id,
                last_epoch=end.epoch,
                last_offset=end.offset,
                candidate_directory_id=config.directory_id,
                voter_directory_id=quorum.voter_set.key(voter).directory_id,
                pre_vote=isinstance(state, Prospective),
            )
            quorum.send(voter, request)
    return min((quorum.peers.ready_at(voter) for voter in silent), default=NEVER)


def _back_off(quorum: Quorum, state: Candidate) -> None:
    # A random wait, so that two candidates do not split the votes again (Raft 5.2).
    limit = votes.election_backoff_limit_ms(state.retries, quorum.config.election_backoff_max_ms)
    state.backoff_deadline = quorum.now + quorum.random.randrange(1 + limit)


def poll_resigned(quorum: Quorum, state: Resigned) -> int:
    """Tell the voters until each has heard it; when nobody is elected in time, stand for election again."""
    deadline = NEVER if quorum.may_not_stand else state.election_deadline
    if quorum.now >= deadline:
        if quorum.may_be_needed:
            return stand(quorum)
        quorum.leave_election(state)  # a leader that removed itself told the voters for one election time-out
        return deadline
    for voter in sorted(state.unacknowledged):
        if quorum.peers.is_ready(voter, quorum.now):
            quorum.send(voter, _resignation(quorum, state))
    return min((deadline, *(quorum.peers.ready_at(voter) for voter in state.unacknowledged)))


def _resignation(quorum: Quorum, state: Resigned) -> EndQuorumEpochRequest:
    directories = tuple(quorum.voter_set.key(voter).directory_id for voter in state.successors)
    return EndQuorumEpochRequest(quorum.config.cluster_id, quorum.node_id, quorum.epoch, state.successors, directories)
