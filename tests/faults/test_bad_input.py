"""Bad content of ZooKeeper is named with its remedy; nothing is written, and mending it is enough."""

from __future__ import annotations

import asyncio
import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess
from migrator.migration.machine.states import State
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.migration import MigrationState, decode_migration, encode_migration
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import FaultCluster, cluster_in, every_znode, start_all
from tests.faults.support.gate import MULTI_READ
from tests.patience import PATIENCE_SECONDS

OTHER_CLUSTER_ID = "YW5vdGhlciBjbHVzdGVyIQ"


async def test_what_does_not_decode_is_named_and_mending_it_is_enough(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    client = zookeeper_client
    async with cluster_in(tmp_path, zookeeper.hosts, controllers=1) as cluster:
        names = sorted(name for name in client.get_children(paths.TOPICS) if name.startswith("drill.topic-"))
        assignment = json.loads(client.get(paths.topic(names[1]))[0])
        wrong = {
            paths.partition_state(names[0], 0): b'{"leader":1,',
            paths.topic(names[1]): json.dumps({**assignment, "partitions": 7}).encode(),
            paths.topic(names[2]): json.dumps(
                {"version": 1, "partitions": json.loads(client.get(paths.topic(names[2]))[0])["partitions"]}
            ).encode(),
            paths.topic_config(names[3]): b'{"version":1,"config":7}',
        }
        sound = {path: client.get(path)[0] for path in wrong}
        for path, data in wrong.items():
            client.set(path, data)
        client.create(f"{paths.BROKER_CONFIGS}/77", b'{"version":1,"config":{}}')  # a warning must not hide the faults
        start_all(cluster)
        await cluster.until("every broker is registered", lambda: all(broker.epoch >= 0 for broker in cluster.brokers))
        for path in wrong:
            await cluster.until_problem(path)
        before = every_znode(client)

        # Tried again and again, it never writes.
        gate = cluster.gates[cluster.controllers[0].node_id]
        gate.stop_at(lambda _: len({each.connection for each in gate.requests if each.operation == MULTI_READ}) > 2)
        await asyncio.wait_for(gate.reached.wait(), PATIENCE_SECONDS)
        gate.go_on()
        assert every_znode(client) == before
        found = await cluster.active()
        assert found is not None
        assert found[1].migration.public_state == "MigrationIneligible"
        for path, data in sound.items():
            client.set(path, data)
        await cluster.until_state(State.DUAL_WRITING)
        await cluster.until_converged()


async def test_a_migration_znode_without_data_is_as_good_as_none(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """zookeeper-security-migration leaves such a znode; stock controllers hang over it (KAFKA-19480)."""
    async with cluster_in(tmp_path, zookeeper.hosts, controllers=1) as cluster:
        zookeeper_client.create(paths.MIGRATION, b"")
        with_null = zookeeper_client.transaction()
        with_null.delete(paths.MIGRATION)
        with_null.create(paths.MIGRATION, b"")
        with_null.operations[-1] = with_null.operations[-1]._replace(data=None)
        with_null.commit()
        assert zookeeper_client.get(paths.MIGRATION)[0] is None
        start_all(cluster)
        await cluster.until_converged()
        mark = decode_migration(paths.MIGRATION, zookeeper_client.get(paths.MIGRATION)[0])
        assert mark is not None
        assert mark.copied


async def test_a_quorum_refuses_a_cluster_that_is_not_its_own_until_that_is_put_right(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """First another cluster's id, then a `/migration` of another log: stock controllers would erase the cluster."""
    client = zookeeper_client
    async with cluster_in(tmp_path, zookeeper.hosts, controllers=1) as cluster:
        own_id = client.get(paths.CLUSTER_ID)[0]
        other = encode_cluster_id(OTHER_CLUSTER_ID)
        client.set(paths.CLUSTER_ID, other)
        stale = MigrationState(
            kraft_controller_id=3000, kraft_controller_epoch=4, kraft_metadata_offset=1234, kraft_metadata_epoch=4
        )
        client.create(paths.MIGRATION, encode_migration(stale))
        start_all(cluster)
        await cluster.until("every broker is registered", lambda: all(broker.epoch >= 0 for broker in cluster.brokers))
        said = await cluster.until_problem("/cluster/id", OTHER_CLUSTER_ID, CLUSTER_ID)
        assert f"format them with --cluster-id {OTHER_CLUSTER_ID}" in said
        assert await cluster.in_state(State.REFUSED)
        client.set(paths.CLUSTER_ID, own_id)
        said = await cluster.until_problem("/migration", "offset 1234", "delete /migration")
        assert await cluster.in_state(State.REFUSED)
        before = every_znode(client)

        # A restart does not change its mind.
        (controller,) = cluster.controllers
        await asyncio.to_thread(controller.stop)
        controller.start()
        await cluster.until_problem("/migration", "offset 1234")
        await cluster.until("brokers are back", lambda: all(broker.running.is_set() for broker in cluster.brokers))
        assert every_znode(client) == before

        client.delete(paths.MIGRATION)
        await cluster.until_converged()


@pytest.mark.parametrize("transport", ["grpc", "kafka"])
async def test_a_controller_that_was_formatted_for_another_cluster_takes_no_part(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path, transport: str
) -> None:
    """The quorum of the two others serves; the stranger is named, and ZooKeeper is safe."""
    async with cluster_in(tmp_path, zookeeper.hosts, transport=transport) as cluster:
        stranger = cluster.controllers[0]
        shutil.rmtree(stranger.metadata_directory)
        cluster.format_one(stranger, OTHER_CLUSTER_ID)
        before = every_znode(zookeeper_client)
        start_all(cluster)
        await cluster.until("every broker is registered", lambda: all(broker.epoch >= 0 for broker in cluster.brokers))
        await cluster.until("only the stranger is missing", lambda: only_missing(cluster, stranger.node_id))
        others = [controller for controller in cluster.controllers if controller is not stranger]
        leader = await cluster.leader()
        assert leader in others
        await cluster.until("the leader names the stranger", lambda: names_foreign(leader, stranger))
        for controller in others:
            await cluster.until("the stranger names the others", partial(names_foreign, stranger, controller))
        assert every_znode(zookeeper_client) == before


def names_foreign(controller: ControllerProcess | None, other: ControllerProcess) -> bool:
    """Whether it says in its log that the other is of another cluster, and what to do."""
    assert controller is not None
    assert controller.process is not None
    said = controller.process.output_text()
    return f"Node {other.node_id} belongs to another cluster" in said and "meta.properties" in said


async def only_missing(cluster: FaultCluster, node_id: int) -> bool:
    """Whether the active controller waits for this controller and for nobody else."""
    found = await cluster.active()
    return found is not None and {problem.who for problem in found[1].problems} == {f"controller {node_id}"}
