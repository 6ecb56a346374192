"""Which voters may change during a migration, and what the refusal says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.migration.machine.voters import NOBODY_ASKED, VoterKinds, why_not_in_migration
from migrator.raft.voter_changes import AddVoter, Refusal, RemoveVoter, UpdateVoter, UpgradeVoters, VoterChange
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.metadata import (
    Endpoint,
    MigrationReopening,
    RegisterControllerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from tests.controller.support.leading_controller import some_uuid
from tests.simulation.planning import entry

STATES = (ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION)


def image(state: ZkMigrationState, registered: Collection[int] = (1, 2, 3, 4)) -> MetadataImage:
    loader = ImageLoader()
    at = (Endpoint("CONTROLLER", "localhost", 9093, 0),)
    registrations = [RegisterControllerRecord(it, some_uuid(it), True, at, ()) for it in registered]
    loader.append(0, 1, 0, [ZkMigrationStateRecord(state), *registrations])
    loader.apply()
    return loader.speculative


def voter(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, some_uuid(node_id))


def refusal(
    state: ZkMigrationState,
    change: VoterChange,
    ours: Collection[int],
    stock: Collection[int] = (),
    *,
    voters: Collection[int] = (1, 2, 3),
    registered: Collection[int] = (1, 2, 3, 4),
) -> Refusal | None:
    """``stock`` have the flag; who is in neither does not answer, or has no flag."""
    found = image(state, registered)
    kinds = VoterKinds(frozenset(ours), frozenset([*ours, *stock]))
    return why_not_in_migration(found, found, VoterSet.of(entry(voter(it)) for it in voters), change, kinds)


ADD, REMOVE = AddVoter(entry(voter(4))), RemoveVoter(voter(3))


@pytest.mark.parametrize("state", STATES)
def test_a_dead_voter_can_be_replaced_in_any_order(state: ZkMigrationState) -> None:
    """Voter 3 is down for good. Nobody knows any more which program it was."""
    assert refusal(state, ADD, ours=(1, 2, 4)) is None
    assert refusal(state, REMOVE, ours=(1, 2, 4), voters=(1, 2, 3, 4)) is None
    assert refusal(state, REMOVE, ours=(1, 2)) is None
    assert refusal(state, ADD, ours=(1, 2, 4), voters=(1, 2)) is None
    assert refusal(state, UpdateVoter(entry(voter(3))), ours=()) is None


@pytest.mark.parametrize("state", STATES)
def test_who_joins_can_be_asked_and_may_lead(state: ZkMigrationState) -> None:
    unknown = refusal(state, ADD, ours=(1, 2, 3, 4), registered=(1, 2, 3))
    assert unknown is not None
    assert unknown.error is ErrorCode.request_timed_out, "which ends by itself"
    assert "has not registered" in unknown.message
    assert refusal(state, ADD, ours=(1, 2, 3), stock=(4,)) is None
    without_flag = refusal(state, ADD, ours=(1, 2, 3))
    assert without_flag is not None
    assert "without zookeeper.metadata.migration.enable=true" in without_flag.message


def test_nobody_joins_until_a_reopened_migration_is_in_dual_write_again() -> None:
    """A stock leader would let brokers in ZooKeeper mode in too early."""
    plain = image(STATES[1])
    found = replace(plain, features=replace(plain.features, migration_reopening=MigrationReopening(1, 1, "why")))
    voters, kinds = VoterSet.of(entry(voter(it)) for it in (1, 2, 3)), VoterKinds(*2 * [frozenset({1, 2, 3, 4})])
    assert why_not_in_migration(plain, plain, voters, ADD, kinds) is None
    for published, at_end in ((found, plain), (plain, found)):
        refused = why_not_in_migration(published, at_end, voters, ADD, kinds)
        assert refused is not None
        assert "was reopened" in refused.message
        assert why_not_in_migration(published, at_end, voters, REMOVE, kinds) is None


@pytest.mark.parametrize(
    ("change", "ours", "stock", "voters", "refused"),
    [
        (ADD, (1,), (2, 4), (1, 2), "2, 4"),
        (ADD, (1, 2), (3, 4), (1, 2, 3), ""),
        (ADD, (1,), (3, 4), (1, 2, 3), "2, 3, 4"),
        (REMOVE, (1, 2), (), (1, 2, 3), ""),
        (REMOVE, (1, 3), (2,), (1, 2, 3), ""),
        (REMOVE, (1, 3), (2, 4), (1, 2, 3, 4), "2, 4"),
        (REMOVE, (3,), (1,), (1, 3), "1"),
        (REMOVE, (3,), (), (1, 3), "1"),
    ],
)
def test_stock_voters_are_never_enough_to_elect(
    change: VoterChange, ours: Collection[int], stock: Collection[int], voters: Collection[int], refused: str
) -> None:
    for state in STATES:
        found = refusal(state, change, ours, stock, voters=voters)
        assert (found is not None) == bool(refused)
        if found is not None:
            assert found.message.startswith(f"The controllers {refused} are stock, or do not answer.")


def test_voters_stay_in_the_configuration_until_the_end() -> None:
    upgrade = UpgradeVoters(VoterSet.of([entry(voter(1))]))
    for state in STATES:
        found = refusal(state, upgrade, ours=(1,), voters=(1,))
        assert found is not None
        assert found.error is ErrorCode.invalid_update_version


def test_without_a_migration_nobody_is_asked() -> None:
    """A migration counts until its end is committed, and also before its begin is."""
    voters = VoterSet.of([entry(voter(1)), entry(voter(2))])
    finished = image(ZkMigrationState.POST_MIGRATION)
    for change in (ADD, RemoveVoter(voter(1)), UpgradeVoters(voters)):
        assert why_not_in_migration(finished, finished, voters, change, NOBODY_ASKED) is None
        for before, after in ((EMPTY_IMAGE, image(STATES[0])), (image(STATES[1]), finished)):
            assert why_not_in_migration(before, after, voters, change, NOBODY_ASKED) is not None
