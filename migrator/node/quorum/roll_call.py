"""Finds out, while no controller leads, which voters answer, which refuse a vote, and why this node is not elected.

Consensus does not need this. It is for operators: the status names the missing voters, and the log says why there is no
leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

from migrator.clock import monotonic_ms
from migrator.observe.printable import duration, number_ranges
from migrator.raft.census import Word
from migrator.raft.messages import RaftRequest, RaftResponse, VoteRequest, VoteResponse
from migrator.raft.transport import RaftHandler, RaftTransport
from migrator.values import value
from migrator.wire.voters import VoterAnswer

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
PATIENCE_MS = 5_000
"""How long an election may take before it is logged."""
REPEAT_MS = 60_000

_WORDS = {
    Word.SILENT: "no answer from",
    Word.UNKNOWN: "not known of",
    Word.HAS_LOG: "a log is at",
}
LogEnd = tuple[int, int]
"""The epoch of the last record, and the end offset."""


class VoteNotes:
    """Facts from Vote messages: the voters that refused this node, and the log ends of other candidates."""

    def __init__(self) -> None:
        self.refusing: set[int] = set()
        self.ends: dict[int, LogEnd] = {}

    def forget(self) -> None:
        """There is a leader: forget the facts of this election."""
        self.refusing.clear()
        self.ends.clear()

    def answered(self, peer: int, response: RaftResponse) -> None:
        """Note a peer's answer to a Vote of this node."""
        if isinstance(response, VoteResponse):
            (self.refusing.discard if response.vote_granted else self.refusing.add)(peer)

    def asked(self, request: RaftRequest) -> None:
        """Note another node's Vote."""
        if isinstance(request, VoteRequest):
            self.ends[request.candidate_id] = (request.last_epoch, request.last_offset)


class NotedTransport:
    """A `RaftTransport` that notes the answers of peers."""

    def __init__(self, transport: RaftTransport, notes: VoteNotes) -> None:
        self._transport = transport
        self._notes = notes

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """See `RaftTransport`."""
        response = await self._transport.send(peer, request, timeout)
        self._notes.answered(peer, response)
        return response

    async def close(self) -> None:
        """See `RaftTransport`."""
        await self._transport.close()


def noted(handle: RaftHandler, notes: VoteNotes) -> RaftHandler:
    """Wrap a handler of Raft requests, so that its requests are noted."""

    async def handler(request: RaftRequest) -> RaftResponse:
        notes.asked(request)
        return await handle(request)

    return handler


@value
class ElectionFacts:
    """Reasons that may keep a node from being elected. ``answers``: by voter, for those that were asked;
    ``waits_for_log``: the node's directory holds no whole log, and it may not assume that the quorum is new; ``words``:
    what the other voters say of their logs."""

    node_id: int
    voters: frozenset[int]
    answers: Mapping[int, bool]
    log_end: LogEnd
    ends: Mapping[int, LogEnd]
    refusing: frozenset[int]
    waits_for_log: bool = False
    words: Mapping[int, Word] = field(default_factory=dict)


def why_not_elected(facts: ElectionFacts) -> str:
    """The reason, as a clause."""
    others = facts.voters - {facts.node_id}
    silent = sorted(voter for voter in others if facts.answers.get(voter) is False)
    needed = len(facts.voters) // 2 + 1
    there = sum(1 for voter in facts.voters if voter == facts.node_id or facts.answers.get(voter))
    if facts.waits_for_log:
        return _why_it_waits(facts.words)
    if facts.node_id not in facts.voters:
        return "this controller is no voter, and waits for a leader"
    if silent and there < needed:
        return f"there is no answer from {number_ranges('controller', silent)}"
    longer = {voter: end for voter, end in facts.ends.items() if voter in others and end > facts.log_end}
    if longer:
        ends = ", ".join(f"that of controller {voter} at {end[1]}" for voter, end in sorted(longer.items()))
        return f"the log of this controller ends at offset {facts.log_end[1]}, {ends}: only a longer log can win"
    refusing = sorted(facts.refusing & others)
    if refusing:
        return (
            f"{number_ranges('controller', refusing)} refused this controller a vote: the reason is a newer log, "
            "another candidate, a leader that is still heard there, or a directory that began empty "
            "(migrator.quorum.require.bootstrap). The status there says which"
        )
    return "an election is under way"


def _why_it_waits(words: Mapping[int, Word]) -> str:
    """The reason of a voter with an empty disk: for which voters it waits, and what would end the wait."""
    said = [
        f"{text} {number_ranges('controller', found)}"
        for word, text in _WORDS.items()
        if (found := sorted(voter for voter, what in words.items() if what is word))
    ]
    known = f" ({'; '.join(said)})" if said else ""
    return (
        "this controller takes no part in elections, because its directory does not hold a whole log, and "
        "migrator.quorum.require.bootstrap is true. It waits for a leader with a log, or until every other voter says "
        f"that its directory is empty, too{known}"
    )


class RollCall:
    """Asks the voters while there is no leader.

    :param has_leader: whether this node leads, or has contact with its leader.
    :param ask: asks every voter what it says of itself; None for no answer.
    :param facts: gives the facts of now, with these answers.
    """

    def __init__(
        self,
        has_leader: Callable[[], bool],
        ask: Callable[[], Awaitable[Mapping[int, VoterAnswer | None]]],
        facts: Callable[[Mapping[int, bool]], ElectionFacts],
        notes: VoteNotes,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.answers: Mapping[int, bool] = {}
        """Whether each voter answered in the last round; empty while there is a leader."""
        self._has_leader = has_leader
        self._ask = ask
        self._facts = facts
        self._notes = notes
        self._now_ms = now_ms
        self._since_ms: int | None = None
        self._said = ""
        self._said_ms = 0

    @property
    def why(self) -> str:
        """The reason, known to this node, why there is no leader; "" before the first round."""
        return why_not_elected(self._facts(self.answers)) if self.answers else ""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(POLL_SECONDS)

    async def look(self) -> None:
        """Ask all voters if there is no leader, and log the reason when that lasts."""
        if self._has_leader():
            self._led()
            return
        answers = await self._ask()
        if self._has_leader():
            self._led()
            return
        self.answers = {voter: answer is not None for voter, answer in answers.items()}
        self._tell(self._now_ms())

    def _led(self) -> None:
        if self._since_ms is not None:
            if self._said:
                log.info("A controller leads again, after %s", duration(self._now_ms() - self._since_ms))
            self._since_ms, self._said, self.answers = None, "", {}
            self._notes.forget()

    def _tell(self, now_ms: int) -> None:
        if self._since_ms is None:
            self._since_ms = now_ms
        lasts_ms, why = now_ms - self._since_ms, self.why
        patience_ms = 0 if self._facts(self.answers).waits_for_log else PATIENCE_MS
        if lasts_ms < patience_ms or (why == self._said and now_ms - self._said_ms < REPEAT_MS):
            return
        self._said, self._said_ms = why, now_ms
        facts = self._facts(self.answers)
        log.warning(
            "No controller %s: %s. An election needs %d of %d voters",
            f"has led for {duration(lasts_ms)}" if lasts_ms >= PATIENCE_MS else "leads",
            why,
            len(facts.voters) // 2 + 1,
            len(facts.voters),
        )
