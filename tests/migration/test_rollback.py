"""Giving a cluster back, on a real ZooKeeper: what has to hold before, and what is put right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from immutables import Map
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from migrator.errors import OperatorError
from migrator.image.model import EMPTY_IMAGE, MetadataImage, PartitionRegistration, Provenance, TopicImage, TopicsImage
from migrator.log.lookup import header_at
from migrator.log.metadata_log import MetadataLog
from migrator.migration.rollback import (
    SETS_AT_ONCE,
    RolledBack,
    _parts,
    _raise_versions,
    log_unfit,
    look,
    old_orders,
    roll_back,
)
from migrator.migration.translate.reconcile import reconcile
from migrator.records.metadata import MigrationReopening, ZkMigrationState
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Applied, Check
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from migrator.zookeeper.znodes.migration import MigrationState, encode_migration
from migrator.zookeeper.znodes.partition_state import decode_partition_state, encode_partition_state
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import every_znode
from tests.log.support.builders import batch
from tests.migration.support.builders import broker, cluster
from tests.migration.support.images import CONTROLLER_EPOCH, PASSWORDS, target, uuid

STATE = paths.partition_state("orders", 0)
COPIED = MigrationState(3001, 5, 900, 5)


def image_at(
    offset: int = 1000,
    state: ZkMigrationState = ZkMigrationState.MIGRATION,
    reopening: MigrationReopening | None = None,
    **more: Any,
) -> MetadataImage:
    """One topic, whose partition has changed three times."""
    partition = PartitionRegistration((1, 2), (1, 2), (), (), 1, recovering=False, leader_epoch=2, partition_epoch=3)
    topic = TopicImage("orders", uuid(1), Map({0: partition}))
    return replace(
        EMPTY_IMAGE,
        provenance=Provenance(offset, 5, 0),
        features=replace(EMPTY_IMAGE.features, zk_migration_state=state, migration_reopening=reopening),
        topics=TopicsImage(Map({topic.topic_id: topic}), Map({topic.name: topic.topic_id})),
        **more,
    )


@pytest.fixture
def session(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> Iterator[ZooKeeperSession]:
    """Under the claim of a KRaft controller, with all that the image has."""
    with ZooKeeperSession(SessionOptions(hosts=zookeeper.hosts)) as started:
        for write in reconcile(BulkReader(started), target(image_at())):
            assert isinstance(ConditionalWriter(started).write(write.ops), Applied)
        zookeeper_client.create(paths.CONTROLLER_EPOCH, str(CONTROLLER_EPOCH).encode())
        zookeeper_client.create(paths.CONTROLLER, encode_controller(ControllerClaim(3001, 0, 5)))
        zookeeper_client.create(paths.MIGRATION, encode_migration(COPIED))
        yield started


def lagging(client: KazooClient) -> bytes:
    """The same state with the version of one that has never changed; gives its data."""
    data: bytes = client.get(STATE)[0]
    client.delete(STATE)
    client.create(STATE, data)
    return data


def test_the_claim_goes_and_a_second_time_nothing_happens(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    states = every_znode(zookeeper_client)[STATE]
    assert roll_back(session, image_at(), PASSWORDS) == RolledBack(released=True)
    assert not zookeeper_client.exists(paths.CONTROLLER)
    assert not zookeeper_client.exists(paths.MIGRATION)
    after = every_znode(zookeeper_client)
    assert after[STATE] == states
    assert roll_back(session, image_at(), PASSWORDS) == RolledBack()
    assert every_znode(zookeeper_client) == after


def test_a_state_that_lags_is_raised_to_the_partition_epoch(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    """Stock leaders leave such states: they merge several changes into one write."""
    data = lagging(zookeeper_client)
    assert roll_back(session, image_at(), PASSWORDS) == RolledBack(raised_states=1, released=True)
    held, stat = zookeeper_client.get(STATE)
    assert (held, stat.version) == (data, 3)


def test_states_are_raised_some_topics_at_a_time() -> None:
    """All sets of a large cluster at once would be gigabytes."""
    sets = {"topic large": SETS_AT_ONCE, "topic a": SETS_AT_ONCE // 2, "topic b": SETS_AT_ONCE - 1, "topic c": 1}
    assert list(_parts(sets)) == [["large"], ["a", "b"], ["c"]]
    assert list(_parts({})) == []


def test_the_controller_epoch_is_raised_above_that_of_every_state(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    """Stock controllers write KRaft's epoch into states (KAFKA-20488)."""
    state = decode_partition_state(STATE, zookeeper_client.get(STATE)[0])
    zookeeper_client.set(STATE, encode_partition_state(replace(state, controller_epoch=70)))
    assert roll_back(session, image_at(), PASSWORDS).raised_epoch == 70
    assert zookeeper_client.get(paths.CONTROLLER_EPOCH)[0] == b"70"


def test_the_log_of_a_forgotten_quorum_gives_nothing_back(
    session: ZooKeeperSession, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """Offset, epoch and metadata are those of the successor; only the batch differs."""
    log = MetadataLog.open(tmp_path)
    while log.end_offset() <= COPIED.kraft_metadata_offset:
        log.append(batch(log.end_offset(), COPIED.kraft_metadata_epoch, 300))
    log.close()
    own = header_at(tmp_path, COPIED.kraft_metadata_offset)
    assert own is not None
    assert header_at(tmp_path, 10_000) is None

    def crc_at(_: int) -> int:
        return own.crc

    zookeeper_client.set(paths.MIGRATION, encode_migration(replace(COPIED, batch_crc=own.crc ^ 1)))
    before = every_znode(zookeeper_client)
    with pytest.raises(OperatorError, match="of another log"):
        roll_back(session, image_at(), PASSWORDS, crc_at=crc_at)
    assert every_znode(zookeeper_client) == before
    zookeeper_client.set(paths.MIGRATION, encode_migration(replace(COPIED, batch_crc=own.crc)))
    assert roll_back(session, image_at(), PASSWORDS, crc_at=crc_at) == RolledBack(released=True)


def test_what_a_zookeeper_controller_holds_is_left_alone(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    """The cluster was given back by hand, and lives on; only a `/migration` that was forgotten goes."""
    zookeeper_client.delete(paths.CONTROLLER)
    zookeeper_client.create(paths.CONTROLLER, encode_controller(ControllerClaim(1, 0)))
    zookeeper_client.delete(STATE)
    assert roll_back(session, image_at(), PASSWORDS) == RolledBack()
    assert zookeeper_client.exists(paths.CONTROLLER)
    assert not zookeeper_client.exists(paths.MIGRATION)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (image_at(state=ZkMigrationState.POST_MIGRATION), "the migration is finished"),
        (image_at(state=ZkMigrationState.PRE_MIGRATION), "this log does not"),
        (
            image_at(reopening=MigrationReopening(3001, 1, "why")),
            "was reopened, and ZooKeeper does not hold everything",
        ),
        (image_at(offset=899), "up to offset 900, this log ends at 899"),
        (image_at(cluster=cluster([broker(1), broker(2, migrating=False)], [])), "brokers 2 .*KRaft mode"),
        (image_at(producer_ids_next=5000), "lacks what the metadata log holds: producer ids"),
    ],
)
def test_it_is_refused_and_nothing_is_written(
    session: ZooKeeperSession, zookeeper_client: KazooClient, image: MetadataImage, said: str
) -> None:
    before = every_znode(zookeeper_client)
    with pytest.raises(OperatorError, match=said) as refused:
        roll_back(session, image, PASSWORDS)
    assert refused.value.remedy
    assert every_znode(zookeeper_client) == before


def test_a_refusal_shows_all_that_accepting_the_loss_would_accept(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    """The checksum differs, and the log ends early: whoever reads of the first alone has not agreed to the second."""
    zookeeper_client.set(paths.MIGRATION, encode_migration(replace(COPIED, batch_crc=7)))
    image = image_at(offset=COPIED.kraft_metadata_offset - 1)
    with pytest.raises(OperatorError) as refused:
        look(session, image, crc_at=lambda _: 8)
    view = look(session, image, crc_at=lambda _: 8, accept_loss=True)
    accepted = list(log_unfit(view, image, lambda _: 8))
    assert len(accepted) == 2
    assert refused.value.what == "; ".join(accepted)
    assert "--accept-loss" in refused.value.remedy


def test_with_an_older_log_zookeeper_is_given_back_as_it_is_if_the_loss_is_accepted(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    """A topic that the log does not know yet carries the highest epoch; what differs otherwise is left alone."""
    newer = paths.partition_state("newer", 0)
    zookeeper_client.create(
        paths.topic("newer"), b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAABQ","partitions":{"0":[1]}}'
    )
    state = decode_partition_state(STATE, zookeeper_client.get(STATE)[0])
    zookeeper_client.create(newer, encode_partition_state(replace(state, controller_epoch=80)), makepath=True)
    lagging(zookeeper_client)
    image = image_at(offset=COPIED.kraft_metadata_offset - 1, producer_ids_next=5000)
    done = roll_back(session, image, PASSWORDS, accept_loss=True)
    assert done == RolledBack(raised_states=1, raised_epoch=80, released=True)
    assert zookeeper_client.exists(newer)


def test_a_state_is_raised_although_the_config_of_its_topic_differs_if_the_loss_is_accepted(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    """The partition would have no leader after the next election; the config stays as it is."""
    lagging(zookeeper_client)
    config = b'{"version":1,"config":{"retention.ms":"1"}}'
    zookeeper_client.set(paths.topic_config("orders"), config)
    done = roll_back(session, image_at(), PASSWORDS, accept_loss=True)
    assert done == RolledBack(raised_states=1, released=True)
    assert zookeeper_client.get(paths.topic_config("orders"))[0] == config


def test_partition_states_are_raised_by_nobody_once_there_is_another_controller(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    """A leader that was elected after the look: the rollback does not overwrite its states."""
    lagging(zookeeper_client)
    before = every_znode(zookeeper_client)
    looked_at = zookeeper_client.get(paths.CONTROLLER_EPOCH)[1].version
    stale = Check(paths.CONTROLLER_EPOCH, looked_at + 1)
    with pytest.raises(OperatorError, match="changed meanwhile"):
        _raise_versions(session, target(image_at()), stale)
    assert every_znode(zookeeper_client) == before
    assert _raise_versions(session, target(image_at()), Check(paths.CONTROLLER_EPOCH, looked_at)) == 1


def test_old_orders_go_with_the_claim_and_a_new_one_keeps_it(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    """A ZooKeeper controller would delete a topic that was created anew since. It looks at the names alone."""
    zookeeper_client.create(f"{paths.delete_topic('orders')}/by hand", b"", makepath=True)
    zookeeper_client.create(f"{paths.REASSIGN_PARTITIONS}/by/hand", b"", makepath=True)
    zookeeper_client.set(paths.REASSIGN_PARTITIONS, b'{"version":1}')
    shown = old_orders(session, look(session, image_at()), image_at())
    assert [line.partition(":")[0] for line in shown.told] == [paths.DELETE_TOPICS, paths.REASSIGN_PARTITIONS]
    for path in (paths.delete_topic("late"), paths.PREFERRED_ELECTION):
        zookeeper_client.create(path, b"")
        with pytest.raises(OperatorError, match="changed meanwhile"):
            roll_back(session, image_at(), PASSWORDS, shown=replace(shown, removals=shown.removals[:2]))
        assert zookeeper_client.exists(paths.CONTROLLER)
        zookeeper_client.delete(path)
    assert roll_back(session, image_at(), PASSWORDS) == RolledBack(released=True, old_orders=shown.told)
    assert zookeeper_client.get_children(paths.ADMIN) == ["delete_topics"]
    assert zookeeper_client.get_children(paths.DELETE_TOPICS) == []


@pytest.mark.parametrize("ordered", [False, True])
def test_without_an_order_no_right_to_delete_them_is_needed(
    session: ZooKeeperSession, zookeeper_client: KazooClient, *, ordered: bool
) -> None:
    """Without it, one look tells nothing of an order that comes later, so an order is looked for once more."""
    zookeeper_client.ensure_path(paths.DELETE_TOPICS)
    if ordered:
        zookeeper_client.create(paths.PREFERRED_ELECTION, b"")
    zookeeper_client.set_acls(paths.ADMIN, [make_acl("world", "anyone", read=True, admin=True)])
    if ordered:
        with pytest.raises(OperatorError, match="NO_AUTH"):
            roll_back(session, image_at(), PASSWORDS)
        assert zookeeper_client.exists(paths.CONTROLLER)
    else:
        assert roll_back(session, image_at(), PASSWORDS).released
    zookeeper_client.set_acls(paths.ADMIN, OPEN_ACL_UNSAFE)


@pytest.mark.parametrize(("holder", "state"), [(1, ZkMigrationState.MIGRATION), (None, ZkMigrationState.PRE_MIGRATION)])
def test_orders_of_the_cluster_itself_stay(
    session: ZooKeeperSession, zookeeper_client: KazooClient, holder: int | None, state: ZkMigrationState
) -> None:
    """A broker is the controller; or the quorum has claimed the cluster and has not copied it."""
    if holder is not None:
        zookeeper_client.set(paths.CONTROLLER, encode_controller(ControllerClaim(holder, 0)))
    zookeeper_client.set(paths.MIGRATION, encode_migration(replace(COPIED, kraft_metadata_offset=-1)))
    zookeeper_client.create(paths.delete_topic("orders"), b"", makepath=True)
    roll_back(session, image_at(state=state), PASSWORDS)
    assert zookeeper_client.get_children(paths.DELETE_TOPICS) == ["orders"]
