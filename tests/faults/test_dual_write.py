"""Faults while every change goes to the log, to ZooKeeper and to the brokers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import MIGRATOR, ControllerProcess
from migrator.drill.cluster import zookeeper_client as connected
from migrator.drill.light.broker import LightBroker, LightBrokerMode
from migrator.drill.probes import controller_claim
from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.errors import ExitCode
from migrator.image.model import MetadataImage
from migrator.migration.machine.states import State
from migrator.observe.status import UNKNOWN_LAG, NodeRole
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.wire.schemas import UPDATE_METADATA
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.migration import decode_migration, encode_migration
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import FaultCluster, cluster_in, every_znode, start_all
from tests.faults.support.gate import Gate
from tests.faults.support.requests import allocate_producer_ids, create_topic
from tests.patience import PATIENCE_SECONDS


def knows_no_leader(broker: LightBroker, gone: int) -> bool:
    """Whether nothing that a broker holds or caches is led by the one that is gone."""
    return all(replica.leader != gone for replica in broker.replicas.hosted.values()) and all(
        partition.leader != gone for partitions in broker.cache.topics.values() for partition in partitions.values()
    )


LONG = pytest.mark.lane("test-long")


async def brokers_are_served(cluster: FaultCluster, broker: LightBroker, seconds: float) -> None:
    """A broker's requests are served, second after second, without a wait."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = await allocate_producer_ids(cluster.client, broker.options.broker_id, broker.epoch)
        assert answer.error_code is ErrorCode.none
        await asyncio.sleep(1)


@pytest.mark.parametrize("longer_seconds", [0, pytest.param(300, marks=LONG, id="300, in which sessions expire")])
async def test_an_outage_of_zookeeper_is_no_outage_of_kafka(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, longer_seconds: int
) -> None:
    """A broker dies, and the leader too, while ZooKeeper is gone: elections go on, topics wait, then all converges."""
    async with cluster_in(
        tmp_path,
        own_zookeeper.hosts,
        migrator_write_behind_max_records="5",
        migrator_write_behind_max_block_ms="1000",
        migrator_write_behind_drain_ms="500",
    ) as cluster:
        start_all(cluster)
        await cluster.until_converged()
        await asyncio.to_thread(own_zookeeper.kill)
        *living, victim = cluster.brokers
        gone = victim.options.broker_id
        await victim.stop(controlled=False)
        await cluster.until("the others lead", lambda: all(knows_no_leader(broker, gone) for broker in living))
        await cluster.until_problem("ZooKeeper", "out of reach")

        # What the brokers need is done; what an administrator wants waits, then may be tried again.
        answer = await allocate_producer_ids(cluster.client, living[0].options.broker_id, living[0].epoch)
        assert answer.error_code is ErrorCode.none
        await brokers_are_served(cluster, living[0], longer_seconds)
        assert await create_topic(cluster.client, "too-early") is ErrorCode.request_timed_out
        found = await cluster.active()
        assert found is not None
        leader, status = found
        assert status.write_behind is not None
        assert status.write_behind.lag_records > 5
        assert status.write_behind.blocked_ms >= 900
        assert "too-early" not in leader.image().topics.ids

        # A leader that comes meanwhile cannot claim, and says so.
        await asyncio.to_thread(leader.kill)
        await cluster.until_problem("ZooKeeper: it is out of reach")
        found = await cluster.active()
        assert found is not None
        successor, status = found
        assert successor is not leader
        assert status.write_behind is not None
        assert status.write_behind.lag_records == UNKNOWN_LAG
        done = {ErrorCode.none, ErrorCode.topic_already_exists}  # the latter when the channel had to ask twice
        assert await create_topic(cluster.client, "not-at-once") in done
        for _ in range(6):
            await allocate_producer_ids(cluster.client, living[0].options.broker_id, living[0].epoch)
        assert await create_topic(cluster.client, "too-early") is ErrorCode.request_timed_out
        assert await create_topic(cluster.client, "__consumer_offsets") in done
        stopped = successor.process
        assert stopped is not None
        assert await asyncio.to_thread(successor.stop) == ExitCode.NOT_DRAINED
        assert "it is not known yet how far ZooKeeper is behind" in stopped.tail()

        await asyncio.to_thread(own_zookeeper.start)
        leader.start()
        successor.start()
        await cluster.until_dual_writing()
        with connected(own_zookeeper.hosts) as client:
            path = paths.broker(gone)
            await cluster.until("its old session has expired", lambda: client.exists(path) is None)
        await victim.start()
        await asyncio.wait_for(victim.running.wait(), PATIENCE_SECONDS)
        assert await create_topic(cluster.client, "too-early") is ErrorCode.none
        image = await cluster.until_converged()
        assert image.producer_ids_next >= answer.producer_id_start + answer.producer_id_len
        assert "too-early" in image.topics.ids
        assert not [text for broker in cluster.brokers for text in broker.violations]


async def held_mark(cluster: FaultCluster, leader: ControllerProcess, topic: str) -> Gate:
    """Create a topic; ZooKeeper's copy of it stands before the leader's gate."""
    gate = cluster.gates[leader.node_id]
    gate.stop_at(lambda request: request.marks)
    assert await create_topic(cluster.client, topic) is ErrorCode.none
    await asyncio.wait_for(gate.reached.wait(), PATIENCE_SECONDS)
    return gate


async def test_the_writes_of_a_leader_that_was_asleep_are_refused(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """SIGSTOP with a write on its way; the next leader dual-writes; then the old write arrives, and the old leader."""
    async with cluster_in(tmp_path, zookeeper.hosts, zookeeper_session_timeout_ms="30000") as cluster:
        start_all(cluster)
        await cluster.until_converged()
        old = await cluster.until_dual_writing()
        gate = await held_mark(cluster, old, "before-sleep")
        assert zookeeper_client.exists(paths.topic("before-sleep")) is None
        old.pause()
        await cluster.until_converged()
        assert zookeeper_client.exists(paths.topic("before-sleep")) is not None
        assert await create_topic(cluster.client, "during-sleep") is ErrorCode.none
        known = await cluster.until_converged()
        before = every_znode(zookeeper_client)
        del before[paths.MIGRATION]  # the next leader may checkpoint an offset at any time
        assert gate.connections, "the session has expired: the write would not be heard"
        gate.go_on()
        old.resume()
        await cluster.until("the old leader follows", lambda: follows(old))
        now = await cluster.until_converged()
        after = every_znode(zookeeper_client)
        del after[paths.MIGRATION]
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert changed <= decided(known, now), "somebody but the next leader wrote"
        mark = decode_migration(paths.MIGRATION, zookeeper_client.get(paths.MIGRATION)[0])
        assert mark is not None
        assert mark.kraft_controller_id != old.node_id
        image = await cluster.until_converged()
        assert {"before-sleep", "during-sleep"} <= set(image.topics.ids)
        assert not [text for broker in cluster.brokers for text in broker.violations]


def decided(before: MetadataImage, after: MetadataImage) -> set[str]:
    """Changes of the leader meanwhile: a slow broker may leave an ISR and come back, and with it a reassignment ends,
    which is a change of the topic, too."""
    found = set()
    for topic in after.topics.by_id.values():
        for number, partition in topic.partitions.items():
            earlier = before.topics.by_id[topic.topic_id].partitions[number]
            if partition != earlier:
                found.add(paths.partition_state(topic.name, number))
            if partition.replicas != earlier.replicas or partition.adding_replicas != earlier.adding_replicas:
                found.add(paths.topic(topic.name))
    return found


async def follows(controller: ControllerProcess) -> bool:
    """Whether a controller is a follower and takes no part in the migration."""
    status = await controller.status()
    return status is not None and status.quorum.role is NodeRole.FOLLOWER and not status.migration.active


async def test_sigterm_drains_the_write_behind_and_hands_leadership_over(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """Followers miss a leader after ten minutes here: only one that hands over has a successor before."""
    async with cluster_in(tmp_path, zookeeper.hosts, controller_quorum_fetch_timeout_ms="600000") as cluster:
        start_all(cluster)
        await cluster.until_converged()
        old = await cluster.until_dual_writing()
        gate = await held_mark(cluster, old, "last-words")
        assert old.process is not None
        old.process.send(signal.SIGTERM)
        await asyncio.to_thread(old.process.wait_for_output, "Stopping", timeout_seconds=PATIENCE_SECONDS)
        assert await follows(old) is False
        assert old.process.exit_code() is None
        gate.go_on()
        assert await asyncio.to_thread(old.process.wait, timeout_seconds=PATIENCE_SECONDS) == 0
        assert zookeeper_client.exists(paths.topic("last-words")) is not None
        new = await cluster.until_dual_writing()
        assert new is not old
        image = await cluster.until_converged()
        assert "last-words" in image.topics.ids


async def test_a_quorum_that_was_forgotten_after_a_rollback_is_refused(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """The cluster is back under a ZooKeeper controller; the quorum wakes up, twice, and touches nothing."""
    client = zookeeper_client
    async with cluster_in(tmp_path, zookeeper.hosts, controllers=1) as cluster:
        (controller,) = cluster.controllers
        start_all(cluster)
        await cluster.until_converged()
        for broker in cluster.brokers:
            await broker.stop(controlled=False)
        assert await asyncio.to_thread(controller.stop) == 0
        client.delete(paths.CONTROLLER)
        client.delete(paths.MIGRATION)
        await asyncio.gather(*(broker.start(LightBrokerMode.ZOOKEEPER) for broker in cluster.brokers))
        claim = controller_claim(client)
        assert claim is not None
        assert not claim.is_kraft
        before = every_znode(client)
        for _ in range(2):
            controller.start()
            said = await cluster.until_problem("it was rolled back to ZooKeeper", "Stop this quorum")
            assert f"held by ZooKeeper broker {claim.broker_id}" in said
            assert await cluster.in_state(State.REFUSED)
            assert await asyncio.to_thread(controller.stop) == ExitCode.NOT_DRAINED
        assert every_znode(client) == before
        assert not any(UPDATE_METADATA in broker.requests for broker in cluster.brokers if broker.epoch >= 0)


async def test_a_quorum_whose_cluster_another_one_has_migrated_is_refused(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """`/migration` holds what our log does not: nothing is reconciled into that cluster. What nobody can prove is up to
    the operator: an old version of this program wrote no checksum."""
    client = zookeeper_client
    async with cluster_in(tmp_path, zookeeper.hosts, controllers=1, partitions=20) as cluster:
        (controller,) = cluster.controllers
        start_all(cluster)
        await cluster.until_converged()
        assert await asyncio.to_thread(controller.stop) == 0
        mark = decode_migration(paths.MIGRATION, client.get(paths.MIGRATION)[0])
        assert mark is not None
        assert mark.batch_crc is not None
        client.set(paths.MIGRATION, encode_migration(replace(mark, kraft_metadata_epoch=999)))
        client.delete(paths.topic_config(PLAIN_TOPIC + "000007"))  # what a reconcile would write again
        before = every_znode(client)
        controller.start()
        await cluster.until_problem("/migration holds", "epoch 999", "another quorum", "Stop whichever quorum")
        assert await cluster.in_state(State.REFUSED)
        assert every_znode(client) == before

        # Another quorum that is as young as ours: the same numbers, another batch.
        client.set(paths.MIGRATION, encode_migration(replace(mark, batch_crc=mark.batch_crc ^ 1)))
        await cluster.until_problem("/migration holds", f"epoch {mark.kraft_metadata_epoch},", "another quorum")
        before = every_znode(client)
        force = [MIGRATOR, "force", "reclaim", "-c", str(controller.property_file), "--reason", "a test", "--yes"]
        refused = await asyncio.to_thread(subprocess.run, force, check=False, capture_output=True)
        assert refused.returncode == ExitCode.REFUSED
        assert b"an order cannot override" in refused.stderr
        await cluster.until_problem("/migration holds", f"epoch {mark.kraft_metadata_epoch},", "another quorum")
        assert await cluster.in_state(State.REFUSED)
        assert every_znode(client) == before

        client.set(paths.MIGRATION, encode_migration(replace(mark, batch_crc=None)))
        await cluster.until_problem("without the checksum", "old version", "migrator force reclaim")
        assert (await asyncio.to_thread(subprocess.run, force, check=False, capture_output=True)).returncode == 0
        await cluster.until_converged()
        again = decode_migration(paths.MIGRATION, client.get(paths.MIGRATION)[0])
        assert again is not None
        assert again.batch_crc is not None
        assert client.exists(paths.topic_config(PLAIN_TOPIC + "000007")) is not None


async def test_a_leader_that_hangs_costs_no_broker_its_place(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    """Heartbeats hang with the leader for longer than a session. The brokers answer to the next leader."""
    session = 6.0
    async with cluster_in(tmp_path, zookeeper.hosts, broker_session_timeout_ms=str(int(1000 * session))) as cluster:
        start_all(cluster)
        await cluster.until_converged()
        old = await cluster.until_dual_writing()
        known_at = time.monotonic()
        await cluster.until("connections to brokers are old", lambda: time.monotonic() > known_at + 3 * session)
        old.pause()
        await cluster.until_dual_writing()
        hung = {broker.options.broker_id for broker in cluster.brokers}

        async def are_heard() -> bool:
            found = await cluster.active()
            return (
                found is not None and {row.broker_id for row in found[1].brokers if row.heartbeat_age_ms >= 0} == hung
            )

        await cluster.until("heartbeats arrive again", are_heard)
        for controller in cluster.controllers:
            lines = (controller.directory / "controller.log").read_text().splitlines()
            assert [line for line in lines if "sends no heartbeats and is fenced" in line] == []
        old.resume()
        await cluster.until("the old leader follows", lambda: follows(old))
