"""The records that a survivor of a lost majority may write, and every reason against it."""

from __future__ import annotations

import pytest

from migrator.errors import OperatorError
from migrator.raft.config import EPOCH_LIMIT
from migrator.raft.recovery import EPOCH_STEP, RecoveryPlan, plan_recovery
from migrator.raft.voter_set import NO_MEMBERSHIP, Membership, ReplicaKey
from migrator.records.uuid import Uuid
from tests.log.support.builders import voters_of

OTHER_DISK = Uuid(b"some other disk.")


def key(node_id: int) -> ReplicaKey:
    return voters_of(node_id).key(node_id)


def plan(voters: int, survivor: ReplicaKey, *lost: ReplicaKey, epoch: int = 7) -> RecoveryPlan:
    membership = Membership(1, voters_of(*range(1, voters + 1)), 2)
    return plan_recovery(membership, survivor, lost, epoch, 100)


@pytest.mark.parametrize("voters", [2, 3, 4, 5])
def test_the_survivor_votes_alone_far_above_every_epoch_that_it_knows(voters: int) -> None:
    lost = [key(node_id) for node_id in range(1, voters)]
    found = plan(voters, key(voters), *lost)
    assert found.after == voters_of(voters)
    assert found.before.ids == set(range(1, voters + 1))
    assert found.lost == tuple(lost)
    assert (found.epoch, found.offset) == (7 + EPOCH_STEP, 100)


@pytest.mark.parametrize(
    ("voters", "survivor", "lost", "message"),
    [
        (3, key(4), (key(1), key(2)), "is not one of the voters"),
        (3, ReplicaKey(3, OTHER_DISK), (key(1), key(2)), "is not one of the voters"),
        (3, key(3), (key(1), ReplicaKey(2, OTHER_DISK)), "is no other voter"),
        (3, key(3), (key(1), key(3)), "is no other voter"),
        (1, key(1), (), "it is the only voter"),
        (3, key(3), (), "not confirmed as lost. Start 1@"),
        (3, key(3), (key(1),), "not confirmed as lost. Start 2@"),
        (5, key(5), (key(1), key(2)), "not confirmed as lost"),
        (5, key(5), (key(1), key(2), key(3)), "only one log can go on"),
    ],
)
def test_what_is_refused(voters: int, survivor: ReplicaKey, lost: tuple[ReplicaKey, ...], message: str) -> None:
    with pytest.raises(OperatorError) as caught:
        plan(voters, survivor, *lost)
    assert message in str(caught.value)


def test_configured_voters_are_changed_in_the_configuration() -> None:
    with pytest.raises(OperatorError, match=r"Name only this controller in controller\.quorum\.voters"):
        plan_recovery(NO_MEMBERSHIP, key(3), (key(1), key(2)), 7, 100)


def test_the_last_epochs_are_not_used_up() -> None:
    last = EPOCH_LIMIT - EPOCH_STEP
    assert plan(3, key(3), key(1), key(2), epoch=last - 1).epoch < EPOCH_LIMIT
    with pytest.raises(OperatorError, match="no epoch is left"):
        plan(3, key(3), key(1), key(2), epoch=last)
