"""Three voters become three others and back, as real processes under writes, while leaders are killed (KIP-642)."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.interop.support.changing_voters import ChangingVoters, Writers

ONE, OTHER = frozenset({1, 2, 3}), frozenset({4, 5, 6})
REMOVE_RAFT_VOTER = 81
CLIENTS = 40
MORE_WRITES = 100


class Kills(StrEnum):
    """When the process of the leader is killed (-9), and started again."""

    NONE = "none"
    ONE_IN_EACH_MOVE = "one in each move, at another step each time"
    ALL = "the leader of each set that is seen, whoever is away"


@pytest.mark.lane("test-long")
@pytest.mark.parametrize("kills", list(Kills), ids=[kills.name.lower() for kills in Kills])
async def test_voters_move_to_three_others_and_back_and_no_acknowledged_write_is_lost(
    tmp_path: Path, kills: Kills
) -> None:
    quorum = ChangingVoters(tmp_path, size=6, voters=3)
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        writers = Writers(quorum, CLIENTS)
        began = time.monotonic()
        killed: list[tuple[list[int], int]] = []
        for step, target in enumerate((OTHER, ONE, OTHER, ONE, OTHER), start=1):
            await quorum.until_caught_up()
            await writers.go_on(MORE_WRITES)
            await quorum.reassign(*sorted(target))
            killed += await follow(quorum, writers, target, kills, step)
        for node in ONE:
            await asyncio.to_thread(quorum.controllers[node].stop)
        await quorum.until(lambda found: found.leader_id in OTHER)
        await writers.go_on(MORE_WRITES)
        per_second = len(writers.acknowledged) / (time.monotonic() - began)
        await writers.end()
        assert writers.lost(await quorum.image()) == []
        print(  # noqa: T201 - shown with -rP
            f"5 moves, {len(writers.acknowledged)} writes acknowledged ({per_second:.0f} a second), 0 lost, longest "
            f"pause {writers.longest_pause_ms()} ms. Leaders killed with these voters in force, and the pause: {killed}"
        )
    finally:
        await asyncio.to_thread(quorum.close)


async def follow(
    quorum: ChangingVoters, writers: Writers, target: frozenset[int], kills: Kills, step: int
) -> list[tuple[list[int], int]]:
    """Until the target is reached; which sets were in force when leaders were killed, and the pauses in ms."""
    origin = ONE if target == OTHER else OTHER
    seen: list[frozenset[int]] = []
    killed: list[tuple[list[int], int]] = []
    while target not in seen:
        found = await quorum.until(lambda found: voters_of(found) not in seen)
        seen.append(voters_of(found))
        is_due = len(seen[-1] & target) + len(origin - seen[-1]) >= step and not killed
        if seen[-1] not in {ONE, OTHER} and (kills is Kills.ALL or (kills is Kills.ONE_IN_EACH_MOVE and is_due)):
            at = time.monotonic()
            leader = quorum.controllers[found.leader_id]
            await asyncio.to_thread(leader.kill)
            await asyncio.to_thread(leader.start)
            await writers.go_on(1)
            killed.append((sorted(seen[-1]), writers.pause_ms(at)))
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
        await writers.go_on(MORE_WRITES)
        assert "The voters are in the log now" in await quorum.order("upgrade")
        await quorum.reassign(2, 3, 4)
        await quorum.until(lambda found: voters_of(found) == {2, 3, 4})
        await asyncio.to_thread(quorum.controllers[1].stop)
        await writers.go_on(MORE_WRITES)
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
