"""One cluster of real brokers goes towards KRaft and back, from every stage, and arrives in the end, with traffic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from confluent_kafka.admin import ResourceType
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR
from migrator.drill.kafka.clients import Traffic, committed, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.kafka.real_cluster import RealCluster
from migrator.drill.probes import controller_claim, highest_state_epoch, settled_metadata
from migrator.errors import ExitCode, OperatorError
from migrator.image.model import MetadataImage
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.quorum_state import QuorumStateFile
from migrator.migration.machine.states import State
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import run_to_end
from migrator.raft.states import ElectionState
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.migration import decode_migration
from migrator.zookeeper.znodes.partition_state import decode_partition_state, encode_partition_state
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import (
    broker_is_controller,
    create_move_elect_delete,
    pause_migration,
    problems,
    resume_migration,
    stage,
)

TOPIC = "orders"
PARTITIONS = 3
HYBRID = "hybrid"
GROUP = "readers"
READ = 100
PAUSE_SECONDS = 30.0
"""For how long nothing may be acknowledged, whatever the stage: much more than the tenths of a second that it takes."""
OLD_EPOCH = 40
"""The KRaft epoch of a quorum that has been elected often: far above `/controller_epoch`."""


class Journey:
    """One cluster, its ZooKeeper and its users, on the way there and back."""

    def __init__(self, cluster: KafkaCluster, client: KazooClient) -> None:
        self.cluster = cluster
        self.client = client
        self.admin = Admin(cluster.bootstrap, 2)

    @property
    def image(self) -> MetadataImage:
        """The records of the quorum's log; the controller may have ended."""
        return self.cluster.controllers[0].image()

    def until_state(self, state: State) -> None:
        until(state.value, lambda: self.cluster.migration_state() == state.value)

    def roll(self, mode: KafkaBrokerMode) -> None:
        self.cluster.roll_brokers(mode, self.admin.in_sync)

    def until_unfenced(self, *, in_zookeeper_mode: bool) -> None:
        wanted = dict.fromkeys((1, 2), in_zookeeper_mode)
        until("both brokers are unfenced", lambda: self.cluster.running_brokers() == wanted)

    def migrate(self) -> None:
        """From brokers in ZooKeeper mode and a quorum that waits for them, to dual-write."""
        self.until_state(State.WAITING_FOR_BROKERS)
        self.roll(KafkaBrokerMode.MIGRATING)
        self.until_state(State.DUAL_WRITING)
        self.until_unfenced(in_zookeeper_mode=True)

    def give_back(self) -> str:
        """Stop the quorum, and do as an operator does; gives what `migrator rollback` says."""
        self.cluster.stop_controllers()
        said = self.roll_back()
        assert broker_is_controller(self.client)
        return said

    def roll_back(self) -> str:
        """:raises OperatorError: the command was refused."""
        (controller,) = self.cluster.controllers
        command = [MIGRATOR, "rollback", "-c", str(controller.property_file), "--yes"]
        return run_to_end("rollback", command, timeout_seconds=COMMAND_SECONDS)

    def lives_without_us(self, name: str) -> None:
        """The brokers, without any setting of the migration, do with their own controller what they always did."""
        self.roll(KafkaBrokerMode.ZOOKEEPER)
        assert broker_is_controller(self.client)
        assert self.client.exists(paths.MIGRATION) is None
        assert states_below(self.client, self.image) == []
        epoch = int(self.client.get(paths.CONTROLLER_EPOCH)[0])
        assert highest_state_epoch(self.client) <= epoch
        create_move_elect_delete(self.cluster, self.admin, self.client, name)
        until("all is in sync", self.admin.in_sync)


@pytest.fixture
def journey(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[Journey]:
    """Two brokers in ZooKeeper mode with a topic, and one controller, which is not formatted yet."""
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=2, zookeeper=zookeeper.hosts) as cluster:
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        journey = Journey(cluster, zookeeper_client)
        journey.admin.create(TOPIC, PARTITIONS, 2, retention_ms="7200000")
        yield journey


def test_there_and_back_from_every_stage(journey: Journey) -> None:
    cluster = journey.cluster
    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        assert len(consume(cluster.bootstrap, TOPIC, GROUP, READ)) == READ
        begin = time.monotonic()
        with stage("back before the migration"):
            back_before_the_migration(journey)
        with stage("back from dual-write"):
            mark = back_from_dual_write(journey)
        with stage("a forgotten quorum wakes up"):
            a_forgotten_quorum_wakes_up(journey)
        with stage("a stale /migration, and a new quorum"):
            a_stale_migration_znode_and_a_new_quorum(journey, mark)
        with stage("back from brokers in KRaft mode"):
            back_from_kraft_brokers(journey)
        with stage("a third migration is finished"):
            on_to_the_end(journey)
        assert traffic.longest_pause(begin) < PAUSE_SECONDS
        traffic.stop()
    assert traffic.errors == []
    assert committed(cluster.bootstrap, TOPIC, GROUP, PARTITIONS) == READ
    values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))


def back_before_the_migration(journey: Journey) -> None:
    """Every broker is in migration mode and registered, the quorum is held before the copy."""
    cluster, client = journey.cluster, journey.client
    (controller,) = cluster.controllers
    cluster.format_controllers()
    log_directory = controller.metadata_directory / DIRECTORY_NAME
    log_directory.mkdir(parents=True)
    QuorumStateFile(log_directory, [controller.node_id]).write(ElectionState(OLD_EPOCH))
    cluster.resume_controllers()
    journey.until_state(State.WAITING_FOR_BROKERS)
    pause_migration(cluster)
    journey.roll(KafkaBrokerMode.MIGRATING)
    journey.until_state(State.PAUSED)
    assert broker_is_controller(client)
    assert client.exists(paths.MIGRATION) is None
    cluster.stop_controllers()
    journey.admin.alter_config(ResourceType.BROKER, "1", "num.io.threads", "5")
    until("the config is in ZooKeeper", lambda: b"num.io.threads" in client.get(f"{paths.BROKER_CONFIGS}/1")[0])
    journey.give_back()
    journey.lives_without_us("after-waiting")


def back_from_dual_write(journey: Journey) -> bytes:
    """With partition states as stock leaders leave them: the version of one lags, another has KRaft's controller epoch.
    Gives `/migration` as it was."""
    cluster, client = journey.cluster, journey.client
    cluster.resume_controllers()
    journey.until_state(State.WAITING_FOR_BROKERS)
    resume_migration(cluster)
    journey.migrate()
    journey.admin.create(HYBRID, 2, 2)
    until("it is in ZooKeeper", lambda: client.exists(paths.partition_state(HYBRID, 1)))
    create_move_elect_delete(cluster, journey.admin, client, "while-dual-writing")
    assert highest_state_epoch(client) <= int(client.get(paths.CONTROLLER_EPOCH)[0]) < OLD_EPOCH
    cluster.stop_controllers()
    mark: bytes = client.get(paths.MIGRATION)[0]

    path = paths.partition_state(TOPIC, 0)
    lagging = client.get(path)[0]
    client.delete(path)
    with pytest.raises(OperatorError, match=f"ZooKeeper lacks what the metadata log holds: topic {TOPIC}"):
        journey.roll_back()
    claim = controller_claim(client)
    assert claim is not None
    assert claim.is_kraft
    client.create(path, lagging)
    other = paths.partition_state(TOPIC, 1)
    state = decode_partition_state(other, client.get(other)[0])
    client.set(other, encode_partition_state(replace(state, controller_epoch=OLD_EPOCH)))
    assert states_below(client, journey.image) == [path]
    said = journey.give_back()
    assert "partition states whose version was raised to the partition epoch: 1\n" in said
    assert f"/controller_epoch raised to {OLD_EPOCH}\n" in said
    journey.lives_without_us("after-dual-write")
    return mark


def a_forgotten_quorum_wakes_up(journey: Journey) -> None:
    """It touches nothing, and says why; also in its exit code, for ZooKeeper does not hold what its log holds."""
    cluster, client = journey.cluster, journey.client
    before = what_a_quorum_would_write(client)
    cluster.resume_controllers()
    journey.until_state(State.REFUSED)
    assert "it was rolled back to ZooKeeper" in problems(cluster)
    assert "Stop this quorum" in problems(cluster)
    (controller,) = cluster.controllers
    assert controller.stop() == ExitCode.NOT_DRAINED
    assert client.exists(paths.MIGRATION) is None
    assert what_a_quorum_would_write(client) == before


def a_stale_migration_znode_and_a_new_quorum(journey: Journey, mark: bytes) -> None:
    """Stock controllers skip the copy here and then erase the cluster."""
    cluster, client = journey.cluster, journey.client
    stale = decode_migration(paths.MIGRATION, mark)
    assert stale is not None
    assert stale.copied
    client.create(paths.MIGRATION, mark)
    before = what_a_quorum_would_write(client)
    cluster.forget_controllers()
    cluster.start_controllers()
    journey.until_state(State.REFUSED)
    assert "left from another quorum" in problems(cluster)
    assert "delete /migration" in problems(cluster)
    assert what_a_quorum_would_write(client) == before
    client.delete(paths.MIGRATION)


def back_from_kraft_brokers(journey: Journey) -> None:
    """First into ZooKeeper mode with the migration on, while the quorum leads, then off."""
    cluster, client = journey.cluster, journey.client
    assert all(metadata_logs(cluster)), "brokers keep the log of the first quorum (KAFKA-16463)"
    journey.migrate()
    assert HYBRID in journey.image.topics.ids
    journey.roll(KafkaBrokerMode.KRAFT)
    journey.until_unfenced(in_zookeeper_mode=False)
    create_move_elect_delete(cluster, journey.admin, client, "while-in-kraft-mode")
    journey.admin.create("kraft-born", 1, 2)
    journey.roll(KafkaBrokerMode.MIGRATING)
    journey.until_unfenced(in_zookeeper_mode=True)
    journey.admin.alter_config(ResourceType.TOPIC, TOPIC, "retention.ms", "3600000")
    assert "partition states whose version was raised to the partition epoch: 0\n" in journey.give_back()
    journey.lives_without_us("after-kraft-mode")
    until("the brokers know it", lambda: "kraft-born" in journey.admin.topics())
    assert journey.admin.topic_config(TOPIC, "retention.ms") == "3600000"


def on_to_the_end(journey: Journey) -> None:
    """After all of that a new quorum finishes what others began."""
    cluster = journey.cluster
    cluster.forget_controllers()
    cluster.start_controllers()
    journey.migrate()
    journey.roll(KafkaBrokerMode.KRAFT)
    journey.until_unfenced(in_zookeeper_mode=False)
    cluster.finish_migration()
    until("the migration is finished", lambda: cluster.public_states() == {"Finished"})
    assert {TOPIC, HYBRID, "kraft-born"} <= set(journey.image.topics.ids)
    with pytest.raises(OperatorError, match="there is no way back"):
        journey.roll_back()
    journey.admin.create("after-all", 1, 2)


def what_a_quorum_would_write(client: KazooClient) -> tuple[object, ...]:
    """All metadata, the claim, and the controller epoch, which no partition state exceeds; the rest of the states is
    the brokers' to write at any time: an ISR changes, a preferred replica is elected."""
    metadata = settled_metadata(client, RealCluster.brokers_own)
    epoch = client.get(paths.CONTROLLER_EPOCH)
    assert highest_state_epoch(client) <= int(epoch[0])
    return metadata, client.get(paths.CONTROLLER), epoch


def states_below(client: KazooClient, image: MetadataImage) -> list[str]:
    """Partition states whose version, or leader epoch, is below what the log has for them."""
    return [
        path
        for topic in image.topics.by_id.values()
        for number, partition in topic.partitions.items()
        for path in [paths.partition_state(topic.name, number)]
        for data, stat in [client.get(path)]
        if stat.version < partition.partition_epoch or orjson.loads(data)["leader_epoch"] < partition.leader_epoch
    ]


def metadata_logs(cluster: KafkaCluster) -> list[bool]:
    """Whether each broker has a metadata log."""
    return [(node.directory / "data" / DIRECTORY_NAME).is_dir() for node in cluster.brokers.values()]
