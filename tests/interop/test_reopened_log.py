"""A log whose migration is finished says MIGRATION again: what Kafka's own controllers and brokers make of that, and
the whole way back through `migrator reopen`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType
from kazoo.client import KazooClient

from migrator.clock import wall_ms
from migrator.config.properties import parse_properties
from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR, ControllerProcess
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.probes import DUAL_WRITING
from migrator.errors import OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import run_to_end
from migrator.records.batch import build_batch, iter_batches
from migrator.records.codec import encode_all
from migrator.records.metadata import ZkMigrationState, ZkMigrationStateRecord
from migrator.records.versions import parse_version
from migrator.verify.kraft.files import last_of_log
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.configs import decode_config
from tests.conftest import ZooKeeperSpace
from tests.drill.support.stock_controllers import StockController
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import broker_is_controller, create_move_elect_delete, stage

pytestmark = pytest.mark.lane("test-long")

TOPIC, COMPACTED, ON_STOCK = "orders", "made-after-the-end", "made-on-stock"
META = "meta.properties"
LEVEL = parse_version("3.9").level
ENDED, REOPENED = ZkMigrationState.POST_MIGRATION, ZkMigrationState.MIGRATION


class TwoDisks(KafkaCluster):
    """Each broker has two directories, the first one also for the metadata log."""

    def properties_of(self, broker: int, mode: KafkaBrokerMode) -> dict[str, str]:
        disks = ",".join(map(str, self.disks(broker)))
        return super().properties_of(broker, mode) | {"log.dirs": disks}

    def disks(self, broker: int) -> tuple[Path, Path]:
        directory = self.brokers[broker].directory
        return directory / "data", directory / "more"

    def identities(self, broker: int) -> list[dict[str, str]]:
        """What the ``meta.properties`` of its directories say."""
        return [parse_properties((disk / META).read_text()) for disk in self.disks(broker)]


class Cluster:
    """Two brokers, and one controller as the only voter."""

    def __init__(self, cluster: TwoDisks, client: KazooClient) -> None:
        self.cluster = cluster
        self.client = client
        self.admin = Admin(cluster.bootstrap, 2)
        (self.controller,) = cluster.controllers

    def roll(self, mode: KafkaBrokerMode) -> None:
        self.cluster.roll_brokers(mode, self.admin.in_sync)

    def until_record(self, record: ZkMigrationState) -> None:
        until(
            f"the log says {record.name}",
            lambda: self.controller.image().features.zk_migration_state is record,
        )

    def until_dual_write(self) -> None:
        until("the controller dual-writes", lambda: self.cluster.migration_state() == DUAL_WRITING)

    def until_led(self) -> None:
        until("the controller leads", lambda: self.cluster.leader() is not None)

    def reopen(self) -> list[ZkMigrationState]:
        """Append one record to the stopped controller's log. Returns the earlier records of the migration, in order."""
        assert self.controller.stop() == 0
        return append_reopened(self.controller)

    def config_in_zookeeper(self, topic: str) -> dict[str, str]:
        path = paths.topic_config(topic)
        return decode_config(path, self.client.get(path)[0]) if self.client.exists(path) else {}


def append_reopened(controller: ControllerProcess) -> list[ZkMigrationState]:
    log = MetadataLog.open(controller.metadata_directory)
    try:
        end = log.end_offset()
        said = [
            ZkMigrationState(record.zk_migration_state)
            for chunk in log.chunks(log.start_offset(), end)
            for batch in iter_batches(chunk)
            if not batch.header.is_control
            for record, _ in batch.records()
            if isinstance(record, ZkMigrationStateRecord)
        ]
        values = encode_all([ZkMigrationStateRecord(REOPENED)], LEVEL)
        log.append(build_batch(values, timestamp_ms=wall_ms(), base_offset=end, leader_epoch=log.last_epoch()))
        log.sync()
    finally:
        log.close()
    return said


@pytest.fixture
def ours(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[Cluster]:
    """The brokers are in ZooKeeper mode, the controller is not started."""
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with TwoDisks(kafka_391, tmp_path, controllers=1, brokers=2, zookeeper=zookeeper.hosts) as brokers:
        brokers.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        yield Cluster(brokers, zookeeper_client)


@pytest.fixture
def cluster(ours: Cluster, kafka_391: StockKafka) -> Cluster:
    """Likewise, with a stock controller."""
    ours.controller = StockController(kafka_391, ours.controller)
    ours.cluster.controllers = [ours.controller]
    return ours


def test_the_way_back_from_the_end(cluster: Cluster) -> None:
    cluster.admin.create(TOPIC, 3, 2, retention_ms="7200000")
    with Traffic(cluster.cluster.bootstrap, TOPIC) as traffic:
        with stage("to the end"):
            to_the_end(cluster)
        with stage("reopened, the flag is off"):
            a_stock_leader_with_the_flag_off_ends_it_again(cluster)
            until("messages are acknowledged", traffic.goes_on)
        with stage("reopened, the flag is on"):
            a_stock_leader_with_the_flag_on_takes_zookeeper_back(cluster)
            until("messages are acknowledged", traffic.goes_on)
        with stage("brokers into migration mode"):
            brokers_into_migration_mode(cluster)
            assert version_lags(cluster), "stock sets a state once, whatever it has missed"
        with stage("home"):
            home(cluster)
        traffic.stop()
    nothing_is_lost(cluster, traffic)


@pytest.mark.parametrize("since", ["nothing else", "stock controllers", "new disks", "all controllers lost"])
def test_migrator_reopen_leads_home(ours: Cluster, since: str) -> None:
    ours.admin.create(TOPIC, 3, 2, retention_ms="7200000")
    with Traffic(ours.cluster.bootstrap, TOPIC) as traffic:
        with stage("to the end"):
            to_the_end(ours)
        with stage("the way back is kept open"):
            what_would_close_the_way_back_is_refused(ours)
        if since == "stock controllers":
            with stage("to Kafka's own controller, and back"):
                to_stock_and_back(ours)
                until("messages are acknowledged", traffic.goes_on)
        if since == "all controllers lost":
            with stage("a quorum of a broker's copy"):
                a_quorum_of_a_brokers_copy(ours)
                until("messages are acknowledged", traffic.goes_on)
        if since == "new disks":
            with stage("one broker is formatted anew, another one gets a new disk"):
                new_disks(ours)
                until("messages are acknowledged", traffic.goes_on)
        with stage("reopened"):
            reopened_with_the_flag_on_and_killed_at_once(ours)
            until("messages are acknowledged", traffic.goes_on)
        before = [ours.cluster.identities(broker) for broker in ours.cluster.brokers]
        with stage("brokers into migration mode"):
            brokers_into_migration_mode(ours)
        with stage("home"):
            home(ours)
        traffic.stop()
    nothing_is_lost(ours, traffic)
    assert (ON_STOCK in ours.admin.topics()) is (since == "stock controllers")
    assert [ours.cluster.identities(broker) for broker in ours.cluster.brokers] == before


def a_quorum_of_a_brokers_copy(cluster: Cluster) -> None:
    """The brokers run on. A new controller with the id and the address of the lost one gets the longest of their
    metadata logs, as docs/way-back.md says."""
    controller = cluster.controller
    controller.kill()
    shutil.rmtree(controller.metadata_directory)
    copies = [cluster.cluster.disks(broker)[0] for broker in cluster.cluster.brokers]
    longest = max(copies, key=lambda copy: last_of_log(copy).offset)
    controller.format("3.9")
    own = controller.metadata_directory / DIRECTORY_NAME
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(longest / DIRECTORY_NAME, own)
    controller.start()
    cluster.until_led()
    cluster.until_record(ENDED)
    until("all is in sync", cluster.admin.in_sync)


def new_disks(cluster: Cluster) -> None:
    """The first broker loses all that it has, the second one its second disk. Kafka formats what is new for KRaft mode
    only, with another ``directory.id``. The identities are put right as docs/way-back.md says."""
    kafka, brokers = cluster.cluster.kafka, cluster.cluster
    for broker, new in ((1, brokers.disks(1)), (2, brokers.disks(2)[1:])):
        was = [identity["directory.id"] for identity in brokers.identities(broker)]
        node = brokers.brokers[broker]
        node.stop()
        for disk in new:
            shutil.rmtree(disk)
        words = ("format", "--ignore-formatted", "-t", CLUSTER_ID, "-c", str(node.properties_file))
        kafka.tool("kafka.tools.StorageTool", *words, directory=node.directory)
        node.start()
        until("all is in sync", cluster.admin.in_sync)
        now = [identity["directory.id"] for identity in brokers.identities(broker)]
        assert len({*was, *now}) == len(was) + len(new)
    versions = [[each["version"] for each in brokers.identities(broker)] for broker in brokers.brokers]
    assert versions == [["1", "1"], ["0", "1"]]
    for broker, number in ((1, 0), (1, 1), (2, 1)):
        file = brokers.disks(broker)[number] / META
        text = file.read_text().replace("version=1", "version=0")
        file.write_text(text.replace(f"node.id={broker}", f"broker.id={broker}"))


def to_stock_and_back(cluster: Cluster) -> None:
    """On the same directory; something changes there, too."""
    cluster.cluster.stop_controllers()
    (stock,) = cluster.cluster.stock_controllers()
    with stock:
        cluster.admin.create(ON_STOCK, 1, 2)
        until("all is in sync", cluster.admin.in_sync)
    cluster.controller.start()
    cluster.until_led()
    cluster.until_record(ENDED)


def what_would_close_the_way_back_is_refused(cluster: Cluster) -> None:
    """In words that Kafka's tools print; until `migrator close-way-back`."""
    kafka, directory = cluster.cluster.kafka, cluster.cluster.directory
    server = ("--bootstrap-server", cluster.cluster.bootstrap)

    def sets(kind: str, name: str, setting: str) -> str:
        of = (*server, "--alter", "--entity-type", kind, "--entity-name", name, "--add-config", setting)
        return kafka.configs(*of, directory=directory)

    metrics = ("client-metrics", "all", "interval.ms=60000")
    for each in (metrics, ("topics", TOPIC, "remote.log.copy.disable=true")):
        with pytest.raises(OperatorError, match="'migrator close-way-back' allows it"):
            sets(*each)
    for feature in ("group.version=1", "metadata.version=25"):
        upgrade = (*server, "upgrade", "--feature", feature)
        with pytest.raises(OperatorError, match="after 'migrator close-way-back', 'migrator handover' hands the"):
            kafka.tool("org.apache.kafka.tools.FeatureCommand", *upgrade, directory=directory)
    close = ["close-way-back", "-c", str(cluster.controller.property_file), "--reason", "to try it"]
    run_to_end("close", [MIGRATOR, *close, "--yes-cluster-id", CLUSTER_ID], timeout_seconds=COMMAND_SECONDS)
    sets(*metrics)
    of_all = ("--entity-type", "client-metrics", "--entity-name", "all")
    gone = (*server, "--alter", *of_all, "--delete-config", "interval.ms")
    kafka.configs(*gone, directory=directory)


def nothing_is_lost(cluster: Cluster, traffic: Traffic) -> None:
    assert traffic.errors == []
    values = consume(cluster.cluster.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))


def reopened_with_the_flag_on_and_killed_at_once(cluster: Cluster) -> None:
    """The next leader carries out an order that a majority has stored."""
    controller = cluster.controller
    file = str(controller.property_file)
    order = [MIGRATOR, "reopen", "-c", file, "--reason", "the way back", "--yes-cluster-id", CLUSTER_ID]
    with pytest.raises(OperatorError, match="the migration is off on controller"):
        run_to_end("reopen", order, timeout_seconds=COMMAND_SECONDS)
    assert controller.stop() == 0
    controller.set_migration(enabled=True)
    controller.start()
    cluster.until_led()
    until("nothing stands against it", lambda: gates_are_open(file))
    run_to_end("reopen", order, timeout_seconds=COMMAND_SECONDS)
    controller.kill()
    controller.start()
    cluster.until_led()
    cluster.until_dual_write()
    zookeeper_has_what_was_made_since(cluster)


def gates_are_open(file: str) -> bool:
    try:
        run_to_end("gates", [MIGRATOR, "gates", "reopen", "-c", file], timeout_seconds=COMMAND_SECONDS)
    except OperatorError:
        return False
    return True


def zookeeper_has_what_was_made_since(cluster: Cluster) -> None:
    until("the topic is in ZooKeeper", lambda: cluster.client.exists(paths.partition_state(COMPACTED, 0)))
    assert cluster.config_in_zookeeper(COMPACTED) == {"cleanup.policy": "compact"}
    assert cluster.config_in_zookeeper(TOPIC) == {"retention.ms": "3600000"}
    until("all is in sync", cluster.admin.in_sync)


def version_lags(cluster: Cluster) -> bool:
    """Whether the version of a partition state is below the partition epoch that brokers know."""
    known = cluster.controller.image().topics.by_name(TOPIC)
    assert known is not None
    version: int = cluster.client.get(paths.partition_state(TOPIC, 0))[1].version
    return version < known.partitions[0].partition_epoch


def to_the_end(cluster: Cluster) -> None:
    """A migration as everybody does it, and changes of metadata that ZooKeeper does not hear of."""
    cluster.cluster.start_controllers()
    cluster.roll(KafkaBrokerMode.MIGRATING)
    cluster.until_dual_write()
    cluster.roll(KafkaBrokerMode.KRAFT)
    cluster.cluster.finish_migration()
    cluster.until_record(ENDED)
    cluster.admin.create(COMPACTED, 1, 2, cleanup_policy="compact")
    cluster.admin.alter_config(ResourceType.TOPIC, TOPIC, "retention.ms", "3600000")
    cluster.roll(KafkaBrokerMode.KRAFT)
    assert cluster.config_in_zookeeper(COMPACTED) == {}


def a_stock_leader_with_the_flag_off_ends_it_again(cluster: Cluster) -> None:
    """At its activation, whoever is registered: so no stock voter may lead a reopened quorum."""
    before = cluster.reopen()
    assert before[-2:] == [REOPENED, ENDED]
    cluster.controller.start()
    cluster.until_led()
    cluster.until_record(ENDED)
    assert cluster.client.exists(paths.topic(COMPACTED)) is None


def a_stock_leader_with_the_flag_on_takes_zookeeper_back(cluster: Cluster) -> None:
    """Brokers in KRaft mode replay the record, and go on as if it were not there."""
    controller, brokers = cluster.controller, cluster.cluster.brokers
    assert cluster.reopen()[-4:] == [REOPENED, ENDED, REOPENED, ENDED]
    controller.set_migration(enabled=True)
    controller.start()
    cluster.until_led()
    cluster.until_dual_write()
    cluster.until_record(REOPENED)
    zookeeper_has_what_was_made_since(cluster)
    for broker in brokers.values():
        assert broker.runs
        assert "ZkMigrationStateRecord" not in broker.process.output_text()
        assert "Encountered fatal fault" not in broker.process.output_text()


def brokers_into_migration_mode(cluster: Cluster) -> None:
    """One after the other; what was made since the end keeps its settings."""
    cluster.roll(KafkaBrokerMode.MIGRATING)
    registered = cluster.controller.image().cluster.brokers
    assert all(each.is_migrating_zk_broker for each in registered.values())
    assert cluster.admin.topic_config(COMPACTED, "cleanup.policy") == "compact"
    assert cluster.admin.topic_config(TOPIC, "retention.ms") == "3600000"


def home(cluster: Cluster) -> None:
    """`migrator rollback` raises the versions. Without that, as Kafka's manual words the way back from dual-write,
    brokers that have not restarted yet skip every state of the ZooKeeper controller, and lead nothing any more."""
    client, controller = cluster.client, cluster.controller
    assert controller.stop() == 0
    controller.write_properties()
    command = [MIGRATOR, "rollback", "-c", str(controller.property_file), "--yes"]
    run_to_end("rollback", command, timeout_seconds=COMMAND_SECONDS)
    until("a broker is the controller", lambda: broker_is_controller(client))
    cluster.roll(KafkaBrokerMode.ZOOKEEPER)
    assert broker_is_controller(client)
    create_move_elect_delete(cluster.cluster, cluster.admin, client, "made-at-home")
    assert cluster.admin.topic_config(COMPACTED, "cleanup.policy") == "compact"
    until("all is in sync", cluster.admin.in_sync)
