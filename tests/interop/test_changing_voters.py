"""Three voters become three others and back, as real processes under writes, while leaders are killed (KIP-642)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.interop.support.changing_voters import ChangingVoters, Writers

ONE, OTHER = frozenset({1, 2, 3}), frozenset({4, 5, 6})
REMOVE_RAFT_VOTER = 81
CLIENTS = 10
MORE_WRITES = 100


@pytest.mark.lane("test-long")
@pytest.mark.parametrize("kills", [False, True], ids=["quiet", "leaders killed"])
async def test_voters_move_to_three_others_and_back_and_no_acknowledged_write_is_lost(
    tmp_path: Path, *, kills: bool
) -> None:
    quorum = ChangingVoters(tmp_path, size=6, voters=3)
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        writers = Writers(quorum, CLIENTS)
        killed = []
        for target in (OTHER, ONE, OTHER, ONE, OTHER):
            written = len(writers.acknowledged)
            await quorum.until(lambda _: len(writers.acknowledged) > written + MORE_WRITES)  # noqa: B023 - awaited here
            await quorum.reassign(*sorted(target))
            killed += await follow(quorum, target, kills=kills)
        for node in ONE:
            await asyncio.to_thread(quorum.controllers[node].stop)
        written = len(writers.acknowledged)
        await quorum.until(lambda found: found.leader_id in OTHER and len(writers.acknowledged) > written + MORE_WRITES)
        await writers.end()
        assert writers.lost(await quorum.image()) == []
        print(  # noqa: T201 - shown with -rP
            f"5 moves, leaders killed on the way with these voters in force: {killed}; {len(writers.acknowledged)} "
            f"writes acknowledged, 0 lost, longest pause {writers.longest_pause_ms()} ms"
        )
    finally:
        await asyncio.to_thread(quorum.close)


async def follow(quorum: ChangingVoters, target: frozenset[int], *, kills: bool) -> list[list[int]]:
    """Until the target is reached; the leader of each set that is seen on the way is killed, and started again."""
    seen: list[frozenset[int]] = []
    killed = []
    while target not in seen:
        found = await quorum.until(lambda found: voters_of(found) not in seen)
        seen.append(voters_of(found))
        if kills and seen[-1] not in {ONE, OTHER}:
            killed.append(sorted(seen[-1]))
            leader = quorum.controllers[found.leader_id]
            await asyncio.to_thread(leader.kill)
            await asyncio.to_thread(leader.start)
    return killed


def voters_of(found: Any) -> frozenset[int]:
    return frozenset(row.replica_id for row in found.current_voters)


@pytest.mark.lane("test-long")
async def test_configured_voters_are_upgraded_and_then_moved_under_writes(tmp_path: Path) -> None:
    quorum = ChangingVoters(tmp_path, size=4, voters=3, configured=True)
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        writers = Writers(quorum, CLIENTS)
        await quorum.until(lambda _: len(writers.acknowledged) > MORE_WRITES)
        assert "The voters are in the log now" in await quorum.order("upgrade")
        await quorum.reassign(2, 3, 4)
        await quorum.until(lambda found: voters_of(found) == {2, 3, 4})
        await asyncio.to_thread(quorum.controllers[1].stop)
        written = len(writers.acknowledged)
        await quorum.until(lambda _: len(writers.acknowledged) > written + MORE_WRITES)
        await writers.end()
        assert writers.lost(await quorum.image()) == []
        await a_client_may_not_lead_away_from_a_target(quorum)
    finally:
        await asyncio.to_thread(quorum.close)


async def a_client_may_not_lead_away_from_a_target(quorum: ChangingVoters) -> None:
    """The target waits for controller 1, which is stopped; nobody else may take one of its voters out."""
    await quorum.reassign(1, 2, 3, 4)
    found = await quorum.until(lambda _: True)
    (row,) = (row for row in found.current_voters if row.replica_id == 3)
    answer = await quorum.ask(
        found.leader_id, REMOVE_RAFT_VOTER, 0, cluster_id=None, voter_id=3, voter_directory_id=row.replica_directory_id
    )
    assert answer.error_code is ErrorCode.invalid_request
    assert "migrator quorum cancel" in answer.error_message
    assert voters_of(await quorum.until(lambda _: True)) == {2, 3, 4}
