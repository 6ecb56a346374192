"""What a hand-over looks at again and again: a big cluster's metadata are read once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from migrator.config.load import typed_settings
from migrator.config.settings import Settings
from migrator.handover.execute import Survey
from migrator.handover.members_survey import MembersSurvey
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
