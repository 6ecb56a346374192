"""The observer beside a real migration: ZooKeeper, two brokers, three controllers of ours, then Kafka's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from kazoo.client import KazooClient

from migrator.config.keys import CONNECT
from migrator.config.load import typed_settings
from migrator.config.properties import parse_properties
from migrator.drill.cluster import CLUSTER_ID, MIGRATOR
from migrator.drill.kafka.cluster import KafkaBrokerMode
from migrator.migration.machine.states import PublicState
from migrator.parts.kafka import StockKafka
from migrator.rollout.gates.gates import judge, unseen
from migrator.rollout.inventory import parse_inventory
from migrator.rollout.plan.modes import watched_keys
from migrator.rollout.ports import BrokerMode, BrokerSeen, Gate, GateKind, Observation
from migrator.rollout.site import open_world
from migrator.seeing.controllers import ControllerProgram
from migrator.seeing.quorum import QuorumEyes, QuorumLook
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.drill.support.stock_controllers import StockController
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.patience import PATIENCE_SECONDS

T = TypeVar("T")
ZOOKEEPER, MIGRATING, KRAFT = BrokerMode.ZOOKEEPER, BrokerMode.MIGRATING, BrokerMode.KRAFT
QUORUM, HEALTHY = Gate(GateKind.QUORUM_HEALTHY), Gate(GateKind.PARTITIONS_HEALTHY)
WRITTEN, ALONE = Gate(GateKind.WRITE_BEHIND_IDLE), Gate(GateKind.NO_FOREIGN_WRITES)
KEEPS_UP = Gate(GateKind.LEADER_KEEPS_UP)


def in_state(state: PublicState) -> Gate:
    return Gate(GateKind.MIGRATION_STATE, state=state.label)


def in_mode(mode: BrokerMode) -> Gate:
    return Gate(GateKind.BROKERS_IN_MODE, mode=mode)


class Eyes:
    """Looks at a cluster as a rollout does: one session, look after look."""

    def __init__(self, cluster: KafkaCluster, directory: Path, kind: str = "migrator") -> None:
        access = directory / "access.properties"
        first = cluster.controllers[0]
        first.write_properties()
        access.write_text(first.property_file.read_text())
        controllers = "".join(
            f"    - {{id: {each.node_id}, properties: {each.property_file}, variables: {{command: 'false'}}}}\n"
            for each in cluster.controllers
        )
        brokers = "".join(
            f"    - {{id: {broker}, properties: {node.properties_file}, variables: {{command: 'false'}}}}\n"
            for broker, node in cluster.brokers.items()
        )
        text = (
            f"cluster: c\naccess: access.properties\ncontrollers:\n  kind: {kind}\n  program: {MIGRATOR}\n"
            f"  nodes:\n{controllers}"
            "brokers:\n  settings: {controller.listener.names: CONTROLLER, "
            f"controller.quorum.voters: '{first.node_id}@h:1'}}\n"
            f"  nodes:\n{brokers}executors: {{default: {{preset: local}}}}\n"
        )
        self.inventory = parse_inventory(text, "i.yaml")
        self._path = directory / "i.yaml"
        self._state = directory / "state"
        self._state.mkdir()
        self._runner = asyncio.Runner()
        self._opened = open_world(self.inventory, self._path, self._state, pytest.fail)
        self.parts, _ = self.run(self._opened.__aenter__())

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self._runner.run(wait())

    def look(self) -> Observation:
        return self.run(self.parts.observer.observe())

    def until(self, *gates: Gate) -> Observation:
        """Look again and again until all gates are open."""
        return self.wait_for(lambda seen: not any(judge(gate, seen) for gate in gates))

    def wait_for(self, condition: Callable[[Observation], bool]) -> Observation:
        async def wait() -> Observation:
            seen = Observation()
            try:
                async with asyncio.timeout(3 * PATIENCE_SECONDS):
                    while True:
                        seen = await self.parts.observer.observe()
                        if condition(seen):
                            return seen
            except TimeoutError:
                pytest.fail(f"it did not come; seen last: {seen}")

        return self.run(wait())

    def close(self) -> None:
        self.run(self._opened.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture
def cluster(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[KafkaCluster]:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    quick = {"migrator.audit.interval.ms": "1000"}
    with KafkaCluster(
        kafka_391, tmp_path, controllers=3, brokers=2, zookeeper=zookeeper.hosts, controller_properties=quick
    ) as found:
        found.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        yield found


@pytest.fixture
def eyes(cluster: KafkaCluster, tmp_path: Path) -> Iterator[Eyes]:
    found = Eyes(cluster, tmp_path)
    yield found
    found.close()


def modes(seen: Observation) -> dict[int, tuple[BrokerMode | None, bool]] | None:
    return None if seen.brokers is None else {key: (each.mode, each.serving) for key, each in seen.brokers.items()}


def test_a_migration_is_seen_as_it_goes(cluster: KafkaCluster, eyes: Eyes, zookeeper_client: KazooClient) -> None:
    admin = Admin(cluster.bootstrap, 2)
    admin.create("orders", 3, 2, min_insync_replicas="2")
    seen = eyes.until(HEALTHY, Gate(GateKind.ZOOKEEPER_CONTROLLER), in_mode(ZOOKEEPER))
    assert (seen.cluster_id, seen.quorum, seen.migration) == (CLUSTER_ID, None, None)
    assert seen.brokers is not None
    first = seen.brokers[2]
    assert first.release == "3.9"
    _without_a_broker(cluster, eyes, first)

    cluster.start_controllers()
    seen = eyes.until(QUORUM, in_state(PublicState.MIGRATION_INELIGIBLE))
    assert modes(seen) == {1: (ZOOKEEPER, True), 2: (ZOOKEEPER, True)}
    cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
    seen = eyes.until(in_mode(MIGRATING), in_state(PublicState.DUAL_WRITE), QUORUM, WRITTEN, HEALTHY, ALONE)
    eyes.until(KEEPS_UP)
    assert (seen.controller_broker, seen.unknown) == (None, ())
    _found_by_one_server(cluster, eyes)
    eyes.parts.observer._askers.clear()  # type: ignore[attr-defined]  # as where gRPC does not reach the controllers
    eyes.until(in_mode(MIGRATING), in_state(PublicState.DUAL_WRITE), QUORUM, WRITTEN, ALONE)
    _with_a_foreign_write(eyes, zookeeper_client)

    _reads_its_file(cluster, eyes, zookeeper=True)
    cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
    seen = eyes.until(in_mode(KRAFT), HEALTHY, WRITTEN)
    assert seen.brokers is not None
    _reads_its_file(cluster, eyes, zookeeper=False)
    assert seen.brokers[2].release == "3.9"
    _without_a_broker(cluster, eyes, seen.brokers[2])
    assert eyes.run(eyes.parts.unregister(77)) == "", "nobody has that id"
    cluster.finish_migration()
    seen = eyes.until(in_state(PublicState.FINISHED), QUORUM, in_mode(KRAFT), HEALTHY)
    assert seen.quorum is not None
    assert {(each.program, each.migration_on) for each in seen.quorum.voters.values()} == {
        (ControllerProgram.MIGRATOR, False)
    }
    cluster.replace_controllers_by_stock()
    seen = eyes.until(in_state(PublicState.FINISHED), QUORUM, in_mode(KRAFT), HEALTHY)
    assert seen.quorum is not None
    assert {each.program for each in seen.quorum.voters.values()} == {ControllerProgram.STOCK}
    _found_by_one_server(cluster, eyes)
    cluster.brokers[2].stop()
    eyes.until(Gate(GateKind.BROKER_GONE, eyes.inventory.brokers.nodes[1]))
    assert eyes.run(eyes.parts.unregister(2)) == ""
    eyes.wait_for(lambda seen: seen.brokers is not None and set(seen.brokers) == {1})


def _without_a_broker(cluster: KafkaCluster, eyes: Eyes, before: BrokerSeen) -> None:
    """Broker 2 stops and starts in the mode that it has."""
    node = cluster.brokers[2]
    back = Gate(GateKind.BROKER_BACK, eyes.inventory.brokers.nodes[1], before.mode, before)
    assert judge(back, eyes.look()), "it was not restarted"
    node.stop()
    seen = eyes.wait_for(lambda seen: seen.partitions is not None and seen.partitions.under_replicated.count > 0)
    assert seen.partitions is not None
    assert seen.partitions.under_min_isr.count == 3
    assert "orders-0" in seen.partitions.under_replicated.names
    seen = eyes.until(Gate(GateKind.BROKER_GONE, eyes.inventory.brokers.nodes[1]))
    assert seen.brokers is not None
    assert seen.brokers.get(2, BrokerSeen(2, None)).mode is None
    node.start()
    eyes.until(back, HEALTHY)


def _reads_its_file(cluster: KafkaCluster, eyes: Eyes, *, zookeeper: bool) -> None:
    """Broker 2 tells what it has read; a file that was changed behind its back is not that."""
    watched = watched_keys(eyes.inventory.brokers.settings)
    text = parse_properties(cluster.brokers[2].properties_file.read_text())
    file = {key: text[key] for key in watched if key in text}
    seen = eyes.look()
    assert seen.brokers is not None
    assert seen.brokers[2].file == file
    assert (CONNECT in file) is zookeeper
    back = Gate(GateKind.BROKER_BACK, eyes.inventory.brokers.nodes[1], file=file)
    assert not judge(back, seen)
    assert not list(unseen(back, seen))
    (waiting,) = judge(replace(back, file={**file, "controller.quorum.voters": "1@elsewhere:1"}), seen)
    assert waiting.what.endswith(": with another value of controller.quorum.voters")
    (waiting,) = judge(replace(back, file={**file, "zookeeper.ssl.keystore.password": "x"}), seen)
    assert waiting.what.endswith(": without zookeeper.ssl.keystore.password")
    file.pop("controller.listener.names")
    (waiting,) = judge(replace(back, file=file), seen)
    assert waiting.what.endswith(": still with controller.listener.names")


def _found_by_one_server(cluster: KafkaCluster, eyes: Eyes) -> None:
    """An access file that names a bootstrap server only: who votes, and where, is asked."""
    keys = dict(cluster.controllers[0].properties)
    keys.pop("controller.quorum.voters")
    host, port = cluster.controllers[1].listener
    keys["controller.quorum.bootstrap.servers"] = f"{host}:{port}"
    quorum = QuorumEyes(typed_settings(keys, "access"))

    async def look() -> QuorumLook:
        try:
            for _ in range(100):
                found = await quorum.look()
                if found.image is not None:
                    return found
            pytest.fail(f"seen last: {found}")
        finally:
            await quorum.close()

    found = eyes.run(look())
    assert found.seen is not None
    assert {voter: each.program is not None for voter, each in found.seen.voters.items()} == dict.fromkeys(
        (3001, 3002, 3003), True
    )


def _with_a_foreign_write(eyes: Eyes, zookeeper: KazooClient) -> None:
    path = paths.topic_config("orders")
    data, _ = zookeeper.get(path)
    zookeeper.set(path, data.replace(b'"2"', b'"1"'))
    seen = eyes.wait_for(lambda seen: bool(judge(ALONE, seen)))
    assert seen.migration is not None
    assert seen.migration.foreign_writes == (path,)


@pytest.mark.lane("test-long")
def test_a_migration_by_stock_controllers_is_seen_as_well(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=1, zookeeper=zookeeper.hosts) as cluster:
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        cluster.controllers = [StockController(kafka_391, each) for each in cluster.controllers]
        eyes = Eyes(cluster, tmp_path, kind="stock")
        try:
            _by_stock_controllers(cluster, eyes)
        finally:
            eyes.close()


def _by_stock_controllers(cluster: KafkaCluster, eyes: Eyes) -> None:
    admin = Admin(cluster.bootstrap, 1)
    admin.create("orders", 3, 1)
    cluster.start_controllers()
    seen = eyes.until(QUORUM, in_state(PublicState.MIGRATION_INELIGIBLE), in_mode(ZOOKEEPER), HEALTHY)
    assert seen.quorum is not None
    assert seen.quorum.voters[3001].migration_on is True
    cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
    eyes.until(in_mode(MIGRATING), in_state(PublicState.DUAL_WRITE), QUORUM, WRITTEN, HEALTHY, KEEPS_UP)
    cluster.controllers[0].stop()
    cluster.resume_controllers()
    eyes.wait_for(lambda seen: bool(judge(KEEPS_UP, seen)) and not judge(in_state(PublicState.DUAL_WRITE), seen))
    eyes.until(WRITTEN, KEEPS_UP)
    admin.create("later", 3, 1)
    seen = eyes.until(WRITTEN)
    assert seen.migration is not None
    assert seen.migration.write_behind_lag == 0
    cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
    eyes.until(in_mode(KRAFT), in_state(PublicState.DUAL_WRITE), WRITTEN, HEALTHY)
    cluster.finish_migration()
    seen = eyes.until(in_state(PublicState.FINISHED), QUORUM, in_mode(KRAFT), HEALTHY)
    assert seen.quorum is not None
    assert [(each.program, each.migration_on) for each in seen.quorum.voters.values()] == [
        (ControllerProgram.STOCK, False)
    ]
