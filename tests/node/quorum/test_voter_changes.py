"""One change of the voters at a time, and what is said when nobody can tell what became of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.migration.machine.voters import NOBODY_ASKED, VoterKinds
from migrator.node.core import no_answer
from migrator.node.metadata import NotLeadingError, OffsetWaiters
from migrator.node.quorum.voter_changes import Look, VoterChanges
from migrator.raft.voter_changes import RemoveVoter, UpdateVoter, VoterChange, VotersNotChangedError
from migrator.raft.voter_set import NO_MEMBERSHIP, STATIC_RANGE, ReplicaKey, VoterSet
from migrator.records.control import DynamicVoter, KRaftVersionRange
from migrator.records.uuid import ZERO_UUID
from migrator.wire.security import PLAINTEXT
from migrator.wire.voters import VoterAnswer

OFFSET = 41
KEY = ReplicaKey(2)
ENTRY = DynamicVoter(2, ZERO_UUID, (), STATIC_RANGE)


async def unused(_count: int) -> None:
    raise AssertionError("no change lacks records")


class Leader:
    """Takes every change; what is committed, the test says."""

    def __init__(self, patience_seconds: float = 30.0) -> None:
        self.taken: list[VoterChange] = []
        self.waiters = OffsetWaiters()
        self.membership = NO_MEMBERSHIP
        quorum: Any = self
        addresses: Any = SimpleNamespace(node_id=1, voter_ids=frozenset({1, 2}))
        waiting = (self.waiters.wait, lambda: PLAINTEXT, no_answer, lambda: False, patience_seconds)
        self.changes = VoterChanges(quorum, self.append, addresses, unused, *waiting)

    def why_not(self, _change: VoterChange) -> None:
        return None

    async def append(self, change: VoterChange, look: Look, /, *, kinds: VoterKinds) -> int:
        assert kinds is NOBODY_ASKED, "there is no migration"
        look()
        self.taken.append(change)
        return OFFSET

    async def removing(self) -> asyncio.Task[int]:
        """A removal that waits for its commit."""
        task = asyncio.create_task(self.changes.remove(KEY))
        while not self.taken:
            await asyncio.sleep(0)
        return task


async def test_a_second_change_is_put_off_until_the_first_is_committed() -> None:
    leader = Leader()
    first = await leader.removing()
    with pytest.raises(VotersNotChangedError) as caught:
        await leader.changes.remove(KEY)
    assert caught.value.refusal.error is ErrorCode.request_timed_out
    with pytest.raises(VotersNotChangedError):
        await leader.changes.update(ENTRY)
    assert leader.taken == [RemoveVoter(KEY)]
    leader.waiters.reached(OFFSET)
    assert await first == OFFSET
    assert await leader.changes.update(ENTRY) == OFFSET
    assert leader.taken == [RemoveVoter(KEY), UpdateVoter(ENTRY)]


async def test_what_is_not_committed_in_time_stays_and_is_said_to_be_in_the_log() -> None:
    leader = Leader(patience_seconds=0.01)
    with pytest.raises(VotersNotChangedError, match="are in the log, but not committed") as caught:
        await leader.changes.remove(KEY)
    assert caught.value.refusal.error is ErrorCode.request_timed_out
    assert leader.taken == [RemoveVoter(KEY)]


async def test_who_loses_the_lead_meanwhile_cannot_tell() -> None:
    leader = Leader()
    first = await leader.removing()
    leader.waiters.fail()
    with pytest.raises(VotersNotChangedError) as caught:
        await first
    assert caught.value.refusal.error is ErrorCode.not_leader_or_follower
    assert isinstance(caught.value.__cause__, NotLeadingError)


async def test_who_gives_up_waiting_leaves_room_for_the_next_one() -> None:
    leader = Leader()
    first = await leader.removing()
    first.cancel()
    await asyncio.wait({first})
    assert await leader.changes.update(ENTRY) == OFFSET


async def test_an_upgrade_is_looked_at_once_more_after_every_voter_has_answered() -> None:
    """A broker that is too old may have registered meanwhile."""
    leader = Leader()
    seen: list[str] = []

    def look() -> None:
        seen.append("looked")
        raise RefusedError(ErrorCode.invalid_update_version, "the brokers 7 are older than Kafka 3.9")

    async def answer(_voter: DynamicVoter) -> tuple[KRaftVersionRange, VoterAnswer]:
        seen.append("asked")
        return KRaftVersionRange(0, 1), VoterAnswer(migrating=False, is_ours=True)

    leader.changes._answer_of = answer  # type: ignore[assignment,method-assign]
    with pytest.raises(RefusedError, match="older than Kafka"):
        await leader.changes.upgrade(VoterSet.of([ENTRY]), look)
    assert seen == ["asked", "looked"]
    assert not leader.taken
