"""The end of a claim whose quorum and logs are gone, on a real ZooKeeper: ours and stock's left-overs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from migrator.cli import rollback
from migrator.cli.rollback import command
from migrator.clock import wall_ms
from migrator.errors import OperatorError
from migrator.image.model import EMPTY_IMAGE, Provenance
from migrator.log.meta_properties import MetaProperties, write_meta_properties
from migrator.migration.abandoned_claim import check_own_log, examine, read_left_overs
from migrator.migration.rollback import apply
from migrator.parts.processes import free_port
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from migrator.zookeeper.znodes.migration import MigrationState, encode_migration
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import every_znode
from tests.patience import PATIENCE_SECONDS

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
COPIED = MigrationState(3001, 5, 900, 5)
TOPIC = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAABQ","partitions":{"0":[1,2]}}'
STATE = paths.partition_state("orders", 0)
STOCK_EPOCH, OUR_EPOCH = 70, 8
"""Stock writes KRaft's epoch into partition states (KAFKA-20488), ours ZooKeeper's."""


def state(controller_epoch: int) -> bytes:
    return b'{"version":1,"leader":1,"leader_epoch":2,"controller_epoch":%d,"isr":[1,2]}' % controller_epoch


class LeftBehind:
    """A ZooKeeper with brokers 1 and 2, one topic and a KRaft claim, and the property file of a lost controller."""

    def __init__(self, client: KazooClient, hosts: str, directory: Path) -> None:
        self.client, self.hosts, self.port = client, hosts, free_port()
        self.file = directory / "controller.properties"
        self.write_file()
        client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER), makepath=True)
        client.create(paths.CONTROLLER_EPOCH, b"8")
        client.create(paths.CONTROLLER, encode_controller(ControllerClaim(3001, 1_700_000_000_000, 5)))
        for broker in (1, 2):
            client.create(f"{paths.BROKER_IDS}/{broker}", b"{}", ephemeral=True, makepath=True)
        client.create(paths.topic("orders"), TOPIC, makepath=True)
        client.create(STATE, state(OUR_EPOCH), makepath=True)

    def write_file(self, node_id: int = 3001, **more: str) -> None:
        lines = {
            "process.roles": "controller", "node.id": str(node_id), "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{node_id}@127.0.0.1:{self.port}",
            "listeners": f"CONTROLLER://127.0.0.1:{self.port}", "log.dirs": str(self.file.parent / "lost"),
            "zookeeper.connect": self.hosts, "zookeeper.metadata.migration.enable": "true", **more,
        }  # fmt: skip
        self.file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))

    def rollback(self, *more: str, answer: str = "") -> Result:
        """Without a typed answer, an option says which cluster is meant."""
        given = () if answer else ("--yes-cluster-id", CLUSTER)
        arguments = ("-c", str(self.file), "--without-log", *given, *more)
        return CliRunner().invoke(command, arguments, input=answer, standalone_mode=False)

    def elect(self) -> None:
        """A broker's election as soon as the claim is gone."""

        def stand(event: object) -> None:
            self.client.create_async(paths.CONTROLLER, encode_controller(ControllerClaim(1, 0)), ephemeral=True)

        self.client.exists(paths.CONTROLLER, watch=stand)


@pytest.fixture
def left(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LeftBehind:
    monkeypatch.setattr(rollback, "WATCH_SECONDS", 0.2)  # nobody writes here but the test
    return LeftBehind(zookeeper_client, zookeeper.hosts, tmp_path)


@pytest.fixture
def session(left: LeftBehind) -> Iterator[ZooKeeperSession]:
    with ZooKeeperSession(SessionOptions(hosts=left.hosts)) as started:
        yield started


def test_a_claim_without_migration_ends_and_a_broker_is_elected(left: LeftBehind) -> None:
    left.elect()
    done = left.rollback(answer=f"{CLUSTER}\n")
    assert done.exit_code == 0, done.exception
    assert f"controller 3001: nobody answers at 127.0.0.1:{left.port}" in done.output
    assert "/controller: KRaft controller 3001 in epoch 5, since 2023-11-14" in done.output
    assert "will delete /controller." in done.output
    assert "broker 1 is the controller" in done.output
    assert left.client.get(paths.CONTROLLER_EPOCH)[0] == b"8", "nothing had to be raised"
    again = left.rollback()
    assert "no KRaft claim and no /migration is left" in again.output
    assert again.exit_code == 0


def test_a_claim_whose_time_no_calendar_has_ends_like_any_other(left: LeftBehind) -> None:
    left.client.set(paths.CONTROLLER, encode_controller(ControllerClaim(3001, -(2**63), 5)))
    left.elect()
    done = left.rollback()
    assert done.exit_code == 0, done.exception
    assert f"in epoch 5, since {-(2**63)} ms after 1970" in done.output


def test_after_stock_the_controller_epoch_is_raised_above_every_state(left: LeftBehind) -> None:
    """`/migration` is empty, as `zookeeper-security-migration` leaves it (KAFKA-19480)."""
    left.client.set(STATE, state(STOCK_EPOCH))
    left.client.create(paths.MIGRATION, None)
    left.elect()
    done = left.rollback()
    assert done.exit_code == 0, done.exception
    assert "it will be raised to 70" in done.output
    assert left.client.get(paths.CONTROLLER_EPOCH)[0] == b"70"
    assert not left.client.exists(paths.MIGRATION)


def test_old_orders_of_topics_and_replicas_are_shown_and_go(left: LeftBehind) -> None:
    left.client.create(paths.MIGRATION, encode_migration(COPIED))
    left.client.create(paths.delete_topic("orders"), b"", makepath=True)
    left.client.create(paths.REASSIGN_PARTITIONS, b'{"version":1}')
    left.elect()
    result = left.rollback("--accept-loss")
    assert result.exit_code == 0, result.output
    assert "deletion of the topics orders; it will be removed" in result.output
    assert left.client.get_children(paths.ADMIN) == ["delete_topics"]
    assert left.client.get_children(paths.DELETE_TOPICS) == []


def test_a_forgotten_migration_goes_while_a_broker_is_the_controller(left: LeftBehind) -> None:
    left.client.delete(paths.CONTROLLER)
    left.client.create(paths.CONTROLLER, encode_controller(ControllerClaim(2, 0)), ephemeral=True)
    left.client.create(paths.MIGRATION, encode_migration(COPIED))
    done = left.rollback()
    assert done.exit_code == 0, done.exception
    assert "broker 2 is the controller" in done.output
    assert not left.client.exists(paths.MIGRATION)


@pytest.mark.parametrize(
    ("answer", "more", "said"),
    [
        ("y\n", (), f"has the id {CLUSTER}, not y"),
        ("AAAAAAAAAAAAAAAAAAAAAA\n", (), "Make sure that you are on the right machine"),
        (f"{CLUSTER}\n", ("--yes",), "--yes does not answer the question of --without-log"),
        (f"{CLUSTER}\n", ("--log", "/"), "exclude each other"),
    ],
)
def test_only_the_id_of_the_cluster_is_a_yes(left: LeftBehind, answer: str, more: tuple[str, ...], said: str) -> None:
    before = every_znode(left.client)
    refused = left.rollback(*more, answer=answer)
    assert isinstance(refused.exception, OperatorError), refused.output
    assert said in str(refused.exception)
    assert every_znode(left.client) == before


def mark(left: LeftBehind) -> None:
    left.client.create(paths.MIGRATION, encode_migration(COPIED))


def one_broker_less(left: LeftBehind) -> None:
    left.client.delete(f"{paths.BROKER_IDS}/2")


def no_broker(left: LeftBehind) -> None:
    one_broker_less(left)
    left.client.delete(f"{paths.BROKER_IDS}/1")


def another_controllers_file(left: LeftBehind) -> None:
    left.write_file(node_id=4001)


def only_bootstrap_servers(left: LeftBehind) -> None:
    servers = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": f"127.0.0.1:{left.port}"}
    left.write_file(3001, **servers)


def a_young_claim(left: LeftBehind) -> None:
    left.client.set(paths.CONTROLLER, encode_controller(ControllerClaim(3001, wall_ms() - 60_000, 5)))


def an_unknown_machine(left: LeftBehind) -> None:
    left.write_file(3001, **{"controller.quorum.voters": f"3001@nobody.invalid:{left.port}"})


def a_damaged_claim(left: LeftBehind) -> None:
    left.client.set(paths.CONTROLLER, b"{")


def another_clusters_directory(left: LeftBehind) -> None:
    lost = left.file.parent / "lost"
    lost.mkdir()
    write_meta_properties(lost, MetaProperties("AAAAAAAAAAAAAAAAAAAAAA", 3001))


def no_cluster(left: LeftBehind) -> None:
    left.client.delete(paths.CLUSTER_ID)


@pytest.mark.parametrize(
    ("broken", "said", "accepted"),
    [
        (mark, "up to offset 900 of its log", "--accept-loss"),
        (one_broker_less, "broker 2 should hold replicas and is not registered", "--gone 2"),
        (no_broker, "no broker is registered", ""),
        (
            another_controllers_file,
            "the claim is of controller 3001, and the file names controller 4001",
            "--gone 3001",
        ),
        (only_bootstrap_servers, "the file names no controller by its id", "--gone 3001"),
        (a_young_claim, "claimed the cluster", "--gone 3001"),
        (an_unknown_machine, "the machine of controller 3001 does not answer", "--gone 3001"),
        (a_damaged_claim, "JSON", ""),
        (another_clusters_directory, "is of cluster AAAAAAAAAAAAAAAAAAAAAA; ZooKeeper at", ""),
        (no_cluster, "no Kafka cluster is here", ""),
    ],
)
def test_what_only_a_log_could_tell_is_refused(left: LeftBehind, broken: object, said: str, accepted: str) -> None:
    """One option accepts one thing: who gives up a log has said nothing of a broker."""
    assert callable(broken)
    broken(left)
    before = every_znode(left.client)
    refused = left.rollback()
    assert isinstance(refused.exception, OperatorError), refused.output
    assert said in str(refused.exception)
    assert refused.exception.remedy
    assert every_znode(left.client) == before
    assert accepted in refused.exception.remedy
    left.elect()
    for option in {"--accept-loss", "--gone 2", "--gone 3001"} - {accepted}:
        assert left.rollback(*option.split()).exit_code != 0, option
    assert every_znode(left.client) == before
    if accepted:
        done = left.rollback(*accepted.split())
        assert done.exit_code == 0, done.exception


def test_a_controller_that_answers_is_seen_before_anything_is_asked(left: LeftBehind) -> None:
    before = every_znode(left.client)
    with socket.create_server(("127.0.0.1", left.port)):
        refused = left.rollback("--accept-loss")
    assert isinstance(refused.exception, OperatorError)
    assert refused.exception.what == "controller 3001 still runs"
    assert every_znode(left.client) == before


def test_a_quorum_that_cannot_be_reached_and_still_writes_is_seen(
    left: LeftBehind, session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its listeners are behind a firewall; it writes `/migration` as every leader does, each second."""
    mark(left)
    writer = threading.Event()

    def write() -> None:
        while not writer.wait(0.2):
            left.client.set(paths.MIGRATION, encode_migration(COPIED))

    monkeypatch.setattr(rollback, "WATCH_SECONDS", PATIENCE_SECONDS)
    living = threading.Thread(target=write)
    living.start()
    try:
        refused = left.rollback("--accept-loss")
    finally:
        writer.set()
        living.join()
    assert isinstance(refused.exception, OperatorError), refused.output
    assert "a controller still runs on some machine" in refused.exception.what
    assert read_left_overs(session).has_claim


def test_another_claim_since_the_look_stays(left: LeftBehind, session: ZooKeeperSession) -> None:
    found = read_left_overs(session)
    examine(found, wall_ms(), accept_loss=False)
    left.client.delete(paths.CONTROLLER)
    left.client.set(paths.CONTROLLER_EPOCH, b"9")
    left.client.create(paths.CONTROLLER, encode_controller(ControllerClaim(3002, 0, 6)))
    before = every_znode(left.client)
    with pytest.raises(OperatorError, match="changed meanwhile"):
        apply(session, found.ops)
    assert every_znode(left.client) == before


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ZkMigrationState.MIGRATION, "has the log of a migration"),
        (ZkMigrationState.POST_MIGRATION, "there is no way back"),
        (ZkMigrationState.PRE_MIGRATION, None),
    ],
)
def test_a_log_that_is_at_hand_is_not_passed_over(found: ZkMigrationState, said: str | None) -> None:
    features = replace(EMPTY_IMAGE.features, zk_migration_state=found)
    image = replace(EMPTY_IMAGE, provenance=Provenance(1000, 5, 0), features=features)
    if said is None:
        check_own_log(image, "here")
    else:
        with pytest.raises(OperatorError, match=said):
            check_own_log(image, "here")
