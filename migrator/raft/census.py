"""A voter whose disk began empty asks the other voters about their disks before it takes part in elections.

When all disks are empty, the quorum is new. Otherwise this disk has been lost with records that the others may count
as safe, so this voter fetches first (docs/adr/0033-an-empty-disk.md). The question is a pre-vote: it raises no epoch
and gives no vote. How another voter answers:

* a controller of this program: the answer to a pre-vote carries its `OwnLog`.
* a stock controller of Kafka 4: it would vote for an empty log only if its own log is empty.
* a stock controller of Kafka 3.9 knows no pre-votes. Without a leader it stands for election itself, again and again,
  and its Vote says where its log ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from migrator.raft.messages import EpochOffset, OwnLog, RaftResponse, VoteRequest, VoteResponse
from migrator.raft.states import NEVER, Follower, Unattached

if TYPE_CHECKING:
    from migrator.raft.quorum import Quorum

ANSWER_LIFETIME_TIMEOUTS = 4
"""An answer counts for this many election time-outs. A stock voter of Kafka 3.9 stands for election at least once in
three of them."""
QUESTIONS_PER_TIMEOUT = 4
"""Times in an election time-out at which a voter that answers is asked again."""
EMPTY_END = EpochOffset(0, 0)


class Word(Enum):
    """A voter's report about its disk."""

    SILENT = "silent"
    UNKNOWN = "unknown"
    HAS_LOG = "has a log"
    EMPTY = "empty"


@dataclass(slots=True)
class _Voter:
    """``epoch`` is the highest epoch that the voter has named. A question in a higher one would raise its epoch."""

    word: Word = Word.SILENT
    end: EpochOffset = EMPTY_END
    until: int = -1
    ask_at: int = 0
    epoch: int = 0
    knows_pre_votes: bool = True


class Census:
    """The latest answers of the other voters in this process. An answer is forgotten after some election time-outs."""

    def __init__(self, election_timeout_ms: int) -> None:
        self._answer_lifetime_ms = election_timeout_ms * ANSWER_LIFETIME_TIMEOUTS
        self._pause_ms = max(1, election_timeout_ms // QUESTIONS_PER_TIMEOUT)
        self._voters: dict[int, _Voter] = {}

    def words(self, others: set[int], now: int) -> dict[int, Word]:
        """The report of each voter about its disk."""
        return {voter: self._fresh(voter, now).word for voter in sorted(others)}

    def best_end(self, others: set[int], now: int) -> EpochOffset | None:
        """The furthest end of the other voters' logs; None unless each of them says that its disk began empty."""
        found = [self._fresh(voter, now) for voter in others]
        if any(voter.word is not Word.EMPTY for voter in found):
            return None
        return max((voter.end for voter in found), key=lambda end: (end.epoch, end.offset), default=EMPTY_END)

    def forget(self, peer: int) -> None:
        """Drop the answer of a peer that cannot be reached: it may come back with another disk."""
        self._voters.pop(peer, None)

    def ask(self, quorum: Quorum) -> tuple[int, set[int]]:
        """Ask every other voter that knows pre-votes. Its answer also names the leader.

        :returns: when to look again in milliseconds, and the voters that know no pre-votes.
        """
        deadline, mute = NEVER, set()
        for peer in sorted(quorum.other_voters()):
            voter = self._voters.setdefault(peer, _Voter())
            if not voter.knows_pre_votes:
                mute.add(peer)
                continue
            if max(voter.ask_at, quorum.peers.ready_at(peer)) <= quorum.now:
                voter.ask_at = quorum.now + self._pause_ms
                quorum.send(peer, _question(quorum, peer, voter))
            deadline = min(deadline, max(voter.ask_at, quorum.peers.ready_at(peer)))
        return deadline, mute

    def answered(self, quorum: Quorum, peer: int, response: RaftResponse) -> None:
        """Note the answer of a voter to any request."""
        voter = self._voters.get(peer)
        if voter is None or not quorum.must_fetch_first:
            return
        voter.epoch = max(voter.epoch, response.leader_epoch)
        if voter.until < quorum.now:
            self._note(voter, Word.UNKNOWN, EMPTY_END, quorum.now)
        if not isinstance(response, VoteResponse):
            return
        if response.top_error is ErrorCode.unsupported_version:
            voter.knows_pre_votes = False
        elif response.own_log is not None:
            own = response.own_log
            is_empty = own.must_fetch_first or own.end == EMPTY_END
            self._note(voter, Word.EMPTY if is_empty else Word.HAS_LOG, own.end, quorum.now)
        elif response.top_error is ErrorCode.none and response.error is ErrorCode.none and _asks_for_emptiness(quorum):
            self._note(voter, Word.EMPTY if response.vote_granted else Word.HAS_LOG, EMPTY_END, quorum.now)
        quorum.take_census()

    def asked_for_vote(self, quorum: Quorum, request: VoteRequest) -> None:
        """Note the end of the log of a candidate that knows no pre-votes. The others tell more in their answers."""
        voter = self._voters.get(request.candidate_id)
        if voter is not None and not voter.knows_pre_votes and quorum.must_fetch_first:
            end = EpochOffset(request.last_epoch, request.last_offset)
            self._note(voter, Word.EMPTY if end == EMPTY_END else Word.HAS_LOG, end, quorum.now)
            quorum.take_census()

    def _note(self, voter: _Voter, word: Word, end: EpochOffset, now: int) -> None:
        voter.word, voter.end, voter.until = word, end, now + self._answer_lifetime_ms

    def _fresh(self, peer: int, now: int) -> _Voter:
        voter = self._voters.get(peer)
        return voter if voter is not None and now <= voter.until else _Voter()


def own_log(quorum: Quorum) -> OwnLog:
    """This node's report about its log for other voters."""
    return OwnLog(quorum.log_end(), quorum.must_fetch_first)


def _asks_for_emptiness(quorum: Quorum) -> bool:
    """Whether a Vote of this node asked about an empty log. A candidate's Vote names its own log, and every transition
    forgets the requests of the role before."""
    return isinstance(quorum.state, Unattached | Follower)


def _question(quorum: Quorum, peer: int, voter: _Voter) -> VoteRequest:
    """The pre-vote request that asks: would this voter vote for an empty log, in the epoch that it has?"""
    return VoteRequest(
        cluster_id=quorum.config.cluster_id,
        voter_id=peer,
        candidate_epoch=voter.epoch,
        candidate_id=quorum.node_id,
        last_epoch=EMPTY_END.epoch,
        last_offset=EMPTY_END.offset,
        candidate_directory_id=quorum.config.directory_id,
        voter_directory_id=quorum.voter_set.key(peer).directory_id,
        pre_vote=True,
    )
