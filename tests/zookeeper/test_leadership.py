"""Every row of claim and release, on a model ZooKeeper; then the same on a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from migrator.errors import OperatorError
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.claim import Claimer
from migrator.zookeeper.leadership import (
    Claim,
    ClaimPlan,
    ClaimView,
    CrcAt,
    LostRace,
    Released,
    Superseded,
    conclude_claim,
    conclude_release,
    plan_claim,
    plan_release,
    read_view,
)
from migrator.zookeeper.ops import Failed, MultiOutcome, Unknown, ZkError, Znode
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import NOBODY, ControllerClaim, decode_controller, encode_controller
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.migration import INITIAL_STATE, MigrationState, decode_migration, encode_migration
from tests.migration.model.zookeeper import ModelZooKeeper

COPIED = MigrationState(3001, 4, 100, 4)


def read(zookeeper: ModelZooKeeper, path: str) -> Znode:
    znode = zookeeper.get(path)
    assert znode is not None
    return znode


def cluster(*, controller: ControllerClaim | None = None, migration: MigrationState | None = None) -> ModelZooKeeper:
    zookeeper = ModelZooKeeper()
    zookeeper.create(paths.CONTROLLER_EPOCH, b"7")
    if controller is not None:
        session = 0 if controller.is_kraft else zookeeper.open_session()
        zookeeper.create(paths.CONTROLLER, encode_controller(controller), session=session)
    if migration is not None:
        zookeeper.create(paths.MIGRATION, encode_migration(migration))
    return zookeeper


def view_of(zookeeper: ModelZooKeeper) -> ClaimView:
    return read_view(zookeeper.read)


def claim(
    zookeeper: ModelZooKeeper,
    *,
    kraft_epoch: int = 5,
    heal_to: EpochOffset | None = None,
    crc_at: CrcAt = lambda _: None,
) -> Claim | LostRace | Superseded:
    plan = plan_claim(
        view_of(zookeeper), controller_id=3000, kraft_epoch=kraft_epoch, now_ms=17, heal_to=heal_to, crc_at=crc_at
    )
    return conclude_claim(plan, zookeeper.multi(plan.ops)) if isinstance(plan, ClaimPlan) else plan


@pytest.mark.parametrize("holder", [None, ControllerClaim(1, 2), ControllerClaim(3001, 2, 4)])
@pytest.mark.parametrize("migration", [None, INITIAL_STATE, COPIED])
def test_a_claim_replaces_whoever_holds_it(holder: ControllerClaim | None, migration: MigrationState | None) -> None:
    zookeeper = cluster(controller=holder, migration=migration)
    held = claim(zookeeper)
    assert isinstance(held, Claim)
    controller = read(zookeeper, paths.CONTROLLER)
    assert decode_controller(controller.path, controller.data) == ControllerClaim(3000, 17, 5)
    assert controller.stat.ephemeral_owner == 0
    assert controller.stat.version == held.controller_version == 1
    assert read(zookeeper, paths.CONTROLLER_EPOCH).data == b"8"
    assert (held.zk_epoch, held.epoch_version) == (8, read(zookeeper, paths.CONTROLLER_EPOCH).stat.version)
    stored = read(zookeeper, paths.MIGRATION)
    assert decode_migration(stored.path, stored.data) == held.migration
    assert stored.stat.version == held.migration_version
    before = migration or INITIAL_STATE
    assert held.migration == MigrationState(3000, 5, before.kraft_metadata_offset, before.kraft_metadata_epoch)


@pytest.mark.parametrize("kraft_epoch", [5, 6])
def test_the_same_or_a_newer_kraft_epoch_wins(kraft_epoch: int) -> None:
    zookeeper = cluster(controller=ControllerClaim(3001, 2, kraft_epoch))
    before = zookeeper.dump()
    assert claim(zookeeper) == Superseded(3001, kraft_epoch)
    assert zookeeper.dump() == before


def test_a_claim_whose_answer_was_lost_is_recognised() -> None:
    zookeeper = cluster(controller=ControllerClaim(1, 2))
    first = claim(zookeeper)
    assert claim(zookeeper) == first
    foreign = encode_migration(MigrationState(1, 1, 1, 1))
    zookeeper.set(paths.MIGRATION, foreign)
    assert claim(zookeeper) == Superseded(3000, 5)


def our_log(offset: int) -> int | None:
    """The CRC of the batch there; the log holds the offsets from 100 on."""
    return 7_000 + offset if offset >= 100 else None


@pytest.mark.parametrize(
    ("before", "heal_to", "after"),
    [
        (INITIAL_STATE, None, MigrationState(3000, 5, -1, -1)),
        (INITIAL_STATE, 120, MigrationState(3000, 5, 120, 4, our_log(120))),
        # what no later leader could prove is left to the end of the reconcile
        (INITIAL_STATE, 99, MigrationState(3000, 5, -1, -1)),
        (COPIED, None, MigrationState(3000, 5, 100, 4, our_log(100))),  # a stock leader's mark is completed
        (MigrationState(3001, 4, 99, 3), None, MigrationState(3000, 5, 99, 3)),
        (MigrationState(3001, 4, 99, 3, 77), None, MigrationState(3000, 5, 99, 3, 77)),
    ],
)
def test_what_a_claim_makes_of_the_mark(before: MigrationState, heal_to: int | None, after: MigrationState) -> None:
    zookeeper = cluster(migration=before)
    held = claim(zookeeper, heal_to=None if heal_to is None else EpochOffset(4, heal_to), crc_at=our_log)
    assert isinstance(held, Claim)
    assert held.migration == after
    stored = read(zookeeper, paths.MIGRATION)
    assert decode_migration(stored.path, stored.data) == after


def test_without_controller_epoch_nothing_is_created() -> None:
    with pytest.raises(OperatorError, match="/controller_epoch"):
        claim(ModelZooKeeper())


def test_a_null_migration_znode_is_set() -> None:
    zookeeper = cluster()
    zookeeper.create(paths.MIGRATION, None)
    held = claim(zookeeper)
    assert isinstance(held, Claim)
    assert held.migration_version == 1


@pytest.mark.parametrize("path", [paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.MIGRATION])
def test_what_does_not_decode_is_not_overwritten(path: str) -> None:
    zookeeper = cluster(controller=ControllerClaim(1, 2), migration=COPIED)
    zookeeper.set(path, b"{")
    with pytest.raises(ZnodeError, match=path):
        claim(zookeeper)


def interfere(zookeeper: ModelZooKeeper) -> Iterator[ModelZooKeeper]:
    """Changes by others between reading and writing."""
    for change in ("epoch", "gone", "replaced", "migration"):
        fork = zookeeper.fork()
        match change:
            case "epoch":
                fork.set(paths.CONTROLLER_EPOCH, b"9")
            case "gone":
                fork.delete(paths.CONTROLLER)
            case "replaced":
                fork.delete(paths.CONTROLLER)
                fork.create(paths.CONTROLLER, encode_controller(ControllerClaim(2, 3)))
                fork.set(paths.CONTROLLER, encode_controller(ControllerClaim(2, 3)))
            case _:
                fork.set(paths.MIGRATION, encode_migration(INITIAL_STATE))
        yield fork


def test_every_race_is_lost_cleanly_and_won_at_the_next_attempt() -> None:
    zookeeper = cluster(controller=ControllerClaim(1, 2), migration=COPIED)
    plan = plan_claim(view_of(zookeeper), controller_id=3000, kraft_epoch=5, now_ms=17)
    assert isinstance(plan, ClaimPlan)
    for changed in interfere(zookeeper):
        before = changed.dump()
        assert isinstance(conclude_claim(plan, changed.multi(plan.ops)), LostRace)
        assert changed.dump() == before
        assert isinstance(claim(changed), Claim)


@pytest.mark.parametrize("outcome", [Unknown("ConnectionLoss"), Failed(0, ZkError.BAD_VERSION)])
def test_an_unknown_outcome_means_looking_again(outcome: MultiOutcome) -> None:
    plan = plan_claim(view_of(cluster()), controller_id=3000, kraft_epoch=5, now_ms=17)
    assert isinstance(plan, ClaimPlan)
    assert isinstance(conclude_claim(plan, outcome), LostRace)


def test_no_permission_is_for_the_operator() -> None:
    zookeeper = cluster()
    zookeeper.unauthorized.add(paths.CONTROLLER_EPOCH)
    with pytest.raises(OperatorError, match=r"/controller_epoch.*identity"):
        claim(zookeeper)


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_release_deletes_our_claim_or_a_predecessors_and_leaves_the_epoch_alone(epoch: int) -> None:
    zookeeper = cluster(controller=ControllerClaim(3001, 2, epoch), migration=COPIED)
    plan = plan_release(view_of(zookeeper), kraft_epoch=5)
    assert isinstance(plan, tuple)
    version = read(zookeeper, paths.CONTROLLER_EPOCH).stat.version
    assert conclude_release(plan, zookeeper.multi(plan)) == Released(by_us=True)
    assert zookeeper.get(paths.CONTROLLER) is None
    assert read(zookeeper, paths.CONTROLLER_EPOCH).stat.version == version


@pytest.mark.parametrize(
    ("holder", "answer"),
    [
        (None, Released(by_us=False)),
        (ControllerClaim(1, 2), Released(by_us=False)),
        (ControllerClaim(3001, 2, 6), Superseded(3001, 6)),
    ],
)
def test_a_release_never_takes_anybody_elses_claim(
    holder: ControllerClaim | None, answer: Released | Superseded
) -> None:
    assert plan_release(view_of(cluster(controller=holder)), kraft_epoch=5) == answer


def test_a_release_loses_races_cleanly() -> None:
    zookeeper = cluster(controller=ControllerClaim(3000, 2, 5), migration=COPIED)
    plan = plan_release(view_of(zookeeper), kraft_epoch=5)
    assert isinstance(plan, tuple)
    for changed in list(interfere(zookeeper))[:3]:
        before = changed.dump()
        assert isinstance(conclude_release(plan, changed.multi(plan)), LostRace)
        assert changed.dump() == before


def test_on_a_real_server(session: ZooKeeperSession, zookeeper_client: KazooClient) -> None:
    claimer = Claimer(session)
    with pytest.raises(OperatorError, match="/controller_epoch"):
        claimer.claim(controller_id=3000, kraft_epoch=5)
    zookeeper_client.create(paths.CONTROLLER_EPOCH, b"7")
    zookeeper_client.create(paths.CONTROLLER, encode_controller(ControllerClaim(1, 2)), ephemeral=True)
    held = claimer.claim(controller_id=3000, kraft_epoch=5)
    assert isinstance(held, Claim)
    assert (held.zk_epoch, held.epoch_version, held.controller_version, held.migration_version) == (8, 1, 1, 0)
    assert zookeeper_client.exists(paths.CONTROLLER).ephemeralOwner == 0
    assert claimer.claim(controller_id=3000, kraft_epoch=5) == held
    assert claimer.claim(controller_id=3001, kraft_epoch=5) == Superseded(3000, 5)
    newer = claimer.claim(controller_id=3001, kraft_epoch=6)
    assert isinstance(newer, Claim)
    assert (newer.zk_epoch, newer.epoch_version, newer.migration_version) == (9, 2, 1)
    assert claimer.release(kraft_epoch=5) == Superseded(3001, 6)
    assert claimer.release(kraft_epoch=6) == Released(by_us=True)
    assert claimer.release(kraft_epoch=6) == Released(by_us=False)
    assert claimer.wait_for_zookeeper_controller(0.1) is None


def test_waking_the_brokers_leaves_nothing_behind(session: ZooKeeperSession, zookeeper_client: KazooClient) -> None:
    def held(_: float) -> None:
        found = zookeeper_client.exists(paths.CONTROLLER)
        assert found is not None
        assert found.ephemeralOwner == session.client.client_id[0], "it ends with us"
        held_for_a_while.append(found)

    held_for_a_while: list[object] = []
    claimer = Claimer(session, held)
    assert not claimer.wake_brokers(), "no broker was ever the controller"
    zookeeper_client.create(paths.CONTROLLER_EPOCH, b"7")
    assert claimer.wake_brokers()
    assert len(held_for_a_while) == 1
    assert zookeeper_client.exists(paths.CONTROLLER) is None
    zookeeper_client.create(paths.CONTROLLER, encode_controller(ControllerClaim(2, 3)))
    assert not claimer.wake_brokers()
    assert claimer.wait_for_zookeeper_controller(5.0) == ControllerClaim(2, 3)
    zookeeper_client.set(paths.CONTROLLER, encode_controller(ControllerClaim(NOBODY, 3)))
    assert claimer.wait_for_zookeeper_controller(0.1) is None
    assert claimer.wake_brokers(), "what a wake has left is deleted, which wakes the brokers too"
    assert zookeeper_client.exists(paths.CONTROLLER) is None


@pytest.mark.parametrize("lasts", [True, False])
def test_a_wake_deletes_nobody_elses_controller_of_the_same_version(
    session: ZooKeeperSession, zookeeper_client: KazooClient, lasts: bool
) -> None:
    """Our znode is gone meanwhile, and a broker has created its own: each begins at version 0."""

    def elected(_: float) -> None:
        zookeeper_client.delete(paths.CONTROLLER)
        zookeeper_client.set(paths.CONTROLLER_EPOCH, b"8")
        if lasts:
            zookeeper_client.create(paths.CONTROLLER, encode_controller(ControllerClaim(2, 3)))

    zookeeper_client.create(paths.CONTROLLER_EPOCH, b"7")
    assert not Claimer(session, elected).wake_brokers()
    assert (zookeeper_client.exists(paths.CONTROLLER) is not None) == lasts


def test_a_wake_is_too_late_for_a_broker_that_was_elected_after_the_look(
    session: ZooKeeperSession, zookeeper_client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimer = Claimer(session)
    zookeeper_client.create(paths.CONTROLLER_EPOCH, b"7")
    seen = claimer.view()
    zookeeper_client.set(paths.CONTROLLER_EPOCH, b"8")
    monkeypatch.setattr(claimer, "view", lambda: seen)
    assert not claimer.wake_brokers()
    assert zookeeper_client.exists(paths.CONTROLLER) is None
