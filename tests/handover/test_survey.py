"""A hand-over that looks many times reads a big cluster's metadata once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from migrator.config.load import typed_settings
from migrator.config.settings import Settings
from migrator.handover.execute import Survey
from migrator.handover.members_run import MembersSurvey
from migrator.wire.schemas import DESCRIBE_CLUSTER, build, request_type
from tests.patience import PATIENCE_SECONDS
from tests.wire.support.snapshot_leader import SnapshotLeader, serving, snapshot_bytes


async def by_membership(settings: Settings) -> None:
    survey = MembersSurvey(settings, (1, 2))
    for _ in range(2):
        seen = await survey.look()
        assert seen is not None
        assert not seen.is_finished


async def by_replacement(settings: Settings) -> None:
    survey = Survey(settings)
    for _ in range(2):
        seen = await survey.look()
        assert seen.migration is not None
        assert not seen.is_finished


@pytest.mark.parametrize("looks", [by_membership, by_replacement])
async def test_the_metadata_are_followed_from_look_to_look(looks: Callable[[Settings], Awaitable[None]]) -> None:
    quorum = SnapshotLeader()
    async with serving(quorum) as voters:
        keys = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": voters}
        await looks(typed_settings(keys, "access"))
    assert sum(size for _, size in quorum.asked) == len(snapshot_bytes("controller 1, 100"))


async def test_a_broker_that_does_not_answer_is_asked_again() -> None:
    """It may just be starting, and without its answer the hand-over is refused."""
    connections, again = 0, asyncio.Event()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()
        if connections > 1:
            again.set()

    keys = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": "1@localhost:1"}
    survey = MembersSurvey(typed_settings(keys, "access"), (1,))
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        asking = asyncio.create_task(
            survey._ask_broker(
                server.sockets[0].getsockname(),
                build(request_type(DESCRIBE_CLUSTER, 1), include_cluster_authorized_operations=False, endpoint_type=1),
            )
        )
        await asyncio.wait_for(again.wait(), PATIENCE_SECONDS)
        assert await asking is None
