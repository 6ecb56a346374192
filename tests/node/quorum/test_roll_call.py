"""While nobody leads: who answers, and why this controller is not elected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from migrator.node.quorum.roll_call import (
    PATIENCE_MS,
    REPEAT_MS,
    ElectionFacts,
    RollCall,
    VoteNotes,
    noted,
    why_not_elected,
)
from migrator.raft.census import Word
from migrator.raft.messages import RaftRequest, RaftResponse, VoteRequest, VoteResponse
from migrator.wire.voters import VoterAnswer

OURS = VoterAnswer(migrating=True, is_ours=True)
ALL_THERE = ElectionFacts(1, frozenset({1, 2, 3}), {1: True, 2: True, 3: True}, (4, 100), {}, frozenset())


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (ALL_THERE, "an election is under way"),
        (replace(ALL_THERE, answers={1: True, 2: False, 3: False}), "there is no answer from controllers 2, 3"),
        (replace(ALL_THERE, answers={1: True, 2: False, 3: True}), "an election is under way"),
        (replace(ALL_THERE, ends={2: (4, 120)}), "ends at offset 100, that of controller 2 at 120: only a longer log"),
        (replace(ALL_THERE, ends={2: (5, 90)}), "that of controller 2 at 90"),
        (replace(ALL_THERE, ends={2: (4, 100), 3: (3, 500)}), "an election is under way"),
        (replace(ALL_THERE, refusing=frozenset({3})), "controller 3 refused this controller a vote"),
        (replace(ALL_THERE, refusing=frozenset({3})), "or a directory that began empty"),
        (replace(ALL_THERE, waits_for_log=True), "migrator.quorum.require.bootstrap is true"),
        (
            replace(ALL_THERE, waits_for_log=True, words={2: Word.SILENT, 3: Word.EMPTY}),
            "says that its directory is empty, too (no answer from controller 2)",
        ),
        (
            replace(ALL_THERE, waits_for_log=True, words={2: Word.UNKNOWN, 3: Word.HAS_LOG, 4: Word.SILENT}),
            "(no answer from controller 4; not known of controller 2; a log is at controller 3)",
        ),
        (replace(ALL_THERE, node_id=9), "this controller is no voter"),
    ],
)
def test_why_a_controller_is_not_elected(facts: ElectionFacts, why: str) -> None:
    assert why in why_not_elected(facts)


async def test_votes_are_noted_and_forgotten_with_the_election() -> None:
    notes = VoteNotes()
    refusal = VoteResponse(ErrorCode.none, ErrorCode.none, -1, 4, vote_granted=False)

    async def handle(_request: RaftRequest) -> RaftResponse:
        return refusal

    assert await noted(handle, notes)(VoteRequest("cluster", 1, 5, 2, 4, 120)) is refusal
    notes.answered(3, refusal)
    assert notes.ends == {2: (4, 120)}
    assert notes.refusing == {3}
    notes.answered(3, replace(refusal, vote_granted=True))
    assert not notes.refusing
    notes.forget()
    assert not notes.ends


async def test_who_waits_because_its_disk_is_empty_says_so_at_once(caplog: pytest.LogCaptureFixture) -> None:
    waiting = replace(ALL_THERE, waits_for_log=True, words={2: Word.SILENT, 3: Word.EMPTY})

    async def ask() -> Mapping[int, VoterAnswer | None]:
        return {1: OURS, 2: None, 3: OURS}

    roll = RollCall(lambda: False, ask, lambda _found: waiting, VoteNotes(), lambda: 0)
    await roll.look()
    await roll.look()
    (said,) = caplog.messages
    assert said.startswith("No controller leads: this controller takes no part in elections")
    assert "no answer from controller 2" in said
    assert roll.why in said


async def test_the_log_says_it_once_a_minute_and_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    answers: dict[int, VoterAnswer | None] = {1: OURS, 2: None, 3: None}
    now, has_leader = [0], [False]

    async def ask() -> Mapping[int, VoterAnswer | None]:
        return answers

    roll = RollCall(
        lambda: has_leader[0], ask, lambda found: replace(ALL_THERE, answers=found), VoteNotes(), lambda: now[0]
    )
    caplog.set_level("INFO", "migrator.node.quorum.roll_call")
    for second in range(PATIENCE_MS // 1000 + REPEAT_MS // 1000):
        now[0] = second * 1000
        await roll.look()
    assert caplog.messages == [
        "No controller has led for 5 s: there is no answer from controllers 2, 3. An election needs 2 of 3 voters"
    ]
    assert roll.answers == {1: True, 2: False, 3: False}
    answers[2] = OURS
    await roll.look()
    assert "an election is under way" in caplog.messages[-1]
    has_leader[0] = True
    await roll.look()
    assert caplog.messages[-1].startswith("A controller leads again, after 1 min")
    assert (roll.answers, roll.why) == ({}, "")
    await roll.look()
    assert len(caplog.messages) == 3
