"""Before a voter whose disk began empty takes part in elections: is the disk of every other voter empty, too?

Then the quorum is new. Else this disk has been lost, and what it held may be what others rely on: this voter fetches
first (docs/adr/0033-an-empty-disk.md). Nobody's epoch rises by the question, and nobody votes. What tells:

* a controller of ours: the answer to a pre-vote carries its `OwnLog`.
* a stock controller of Kafka 4: it would vote for an empty log only if its own is empty.
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

LASTS = 4
"""Election time-outs for which a word counts. A stock voter of Kafka 3.9 stands for election once in three at most."""
ASKS = 4
"""Times in an election time-out at which a voter that answers is asked again."""
EMPTY_END = EpochOffset(0, 0)


class Word(Enum):
    """What a voter says of its disk."""

    SILENT = "silent"
    UNKNOWN = "unknown"
    HAS_LOG = "has a log"
    EMPTY = "empty"


@dataclass(slots=True)
class _Voter:
    """``epoch`` is the highest one that the voter has named: a question in a higher one would raise its epoch."""

    word: Word = Word.SILENT
    end: EpochOffset = EMPTY_END
    until: int = -1
    ask_at: int = 0
    epoch: int = 0
    knows_pre_votes: bool = True


class Census:
    """What the other voters have said since this process began, and not too long ago."""

    def __init__(self, election_timeout_ms: int) -> None:
        self._lasts_ms = election_timeout_ms * LASTS
        self._pause_ms = max(1, election_timeout_ms // ASKS)
        self._voters: dict[int, _Voter] = {}

    def words(self, others: set[int], now: int) -> dict[int, Word]:
        """By voter."""
        return {voter: self._fresh(voter, now).word for voter in sorted(others)}

    def best_end(self, others: set[int], now: int) -> EpochOffset | None:
        """The furthest end of the logs of the other voters, if the disks of all began empty; None unless all say so."""
        found = [self._fresh(voter, now) for voter in others]
        if any(voter.word is not Word.EMPTY for voter in found):
            return None
        return max((voter.end for voter in found), key=lambda end: (end.epoch, end.offset), default=EMPTY_END)

    def forget(self, peer: int) -> None:
        """A peer cannot be reached. It may come back as another process, with another disk."""
        self._voters.pop(peer, None)

    def ask(self, quorum: Quorum) -> tuple[int, set[int]]:
        """Ask every other voter that can be asked; an answer also says who leads.

        :returns: when to look again, and who cannot be asked.
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
        """A voter has answered something."""
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
        """A candidate says where its log ends. One that answers pre-votes has said more."""
        voter = self._voters.get(request.candidate_id)
        if voter is not None and not voter.knows_pre_votes and quorum.must_fetch_first:
            end = EpochOffset(request.last_epoch, request.last_offset)
            self._note(voter, Word.EMPTY if end == EMPTY_END else Word.HAS_LOG, end, quorum.now)
            quorum.take_census()

    def _note(self, voter: _Voter, word: Word, end: EpochOffset, now: int) -> None:
        voter.word, voter.end, voter.until = word, end, now + self._lasts_ms

    def _fresh(self, peer: int, now: int) -> _Voter:
        voter = self._voters.get(peer)
        return voter if voter is not None and now <= voter.until else _Voter()


def own_log(quorum: Quorum) -> OwnLog:
    """What this node says of its own."""
    return OwnLog(quorum.log_end(), quorum.must_fetch_first)


def _asks_for_emptiness(quorum: Quorum) -> bool:
    """A candidate asks with its own log instead, and every transition forgets what was asked before it."""
    return isinstance(quorum.state, Unattached | Follower)


def _question(quorum: Quorum, peer: int, voter: _Voter) -> VoteRequest:
    """Would you vote for an empty log, in the epoch that you have?"""
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
