"""The copy is killed, or loses ZooKeeper, at every one of its points: nothing of it stays, or all of it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import ControllerProcess
from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.migration.machine.states import State
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import decode_controller
from migrator.zookeeper.znodes.migration import MigrationState, decode_migration
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import FaultCluster, cluster_in, start_all
from tests.faults.support.gate import MULTI_READ, Gate, Request
from tests.faults.support.readers import Readers

Trap = Callable[[Gate], Callable[[Request], bool]]


def reading(number: int) -> Trap:
    """The copy's n-th read, the transaction being open."""

    def trap_of(gate: Gate) -> Callable[[Request], bool]:
        def trap(request: Request) -> bool:
            return request.operation == MULTI_READ and gate.claimed and gate.reads_since_claim == number

        return trap

    return trap_of


def last_look(gate: Gate) -> Callable[[Request], bool]:
    """The copy's very last read, by which it makes sure of the claim, right before End."""
    return lambda request: request.operation == MULTI_READ and gate.claimed and request.names(paths.CONTROLLER_EPOCH)


def first_mark(gate: Gate) -> Callable[[Request], bool]:
    """The first write under the claim: End is committed, `/migration` does not say so yet."""
    return lambda request: request.marks and gate.claimed  # before it, rights are tried by writes that cannot succeed


def stop_at(cluster: FaultCluster, trap: Trap) -> None:
    """Make the leader stop there next."""
    for gate in cluster.gates.values():
        gate.stop_at(trap(gate))


async def stopped(cluster: FaultCluster) -> ControllerProcess:
    """Wait until the leader stands there; gives it."""
    await cluster.until("the leader comes there", lambda: any(gate.reached.is_set() for gate in cluster.gates.values()))
    (node,) = (node for node, gate in cluster.gates.items() if gate.reached.is_set())
    return cluster.controller(node)


def one_after_the_other(cluster: FaultCluster, traps: list[Trap]) -> list[int]:
    """Whoever leads shall stop at the first trap, the next leader at the second, and so on; gives who stands, as they
    come. The next trap is set as the one before is reached: a leader that comes by itself finds it, too. The last one
    stays until the gates are told to go on: while the test looks, nobody who comes late may pass it."""
    stands: list[int] = []

    def stop_next() -> None:
        trap = traps[min(len(stands), len(traps) - 1)]
        for node, gate in cluster.gates.items():
            gate.stop_at(trap(gate), partial(reached, node))

    def reached(node: int) -> None:
        stands.append(node)
        stop_next()

    stop_next()
    return stands


def has_come(stands: list[int], number: int) -> bool:
    """Whether a controller stands at that trap."""
    return len(stands) > number


@pytest.mark.parametrize("transport", ["grpc", pytest.param("kafka", marks=pytest.mark.lane("test-long"))])
async def test_kill_9_at_every_phase_of_the_copy(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path, transport: str
) -> None:
    """After Begin, between batches, right before End, and between End and `/migration`: one leader after the other."""
    async with cluster_in(tmp_path, zookeeper.hosts, transport=transport) as cluster:
        topics = sorted(name for name in zookeeper_client.get_children(paths.TOPICS) if name.startswith(PLAIN_TOPIC))
        async with Readers(cluster.addresses, [topics[0], topics[len(topics) // 2], topics[-1]]) as readers:
            traps: list[Trap] = [reading(1), reading(20), last_look, first_mark]
            stands = one_after_the_other(cluster, traps)
            start_all(cluster)
            sizes = []
            for number, trap in enumerate(traps):
                await cluster.until("the leader comes there", partial(has_come, stands, number))
                leader = cluster.controller(stands[number])
                status = await cluster.until("it says how it is", leader.status)
                assert status.migration.public_state == ("DualWrite" if trap is first_mark else "MigrateZkData")
                sizes.append(status.quorum.log_end_offset)
                claim = decode_controller(paths.CONTROLLER, zookeeper_client.get(paths.CONTROLLER)[0])
                assert claim.broker_id == leader.node_id
                assert not decode_mark(zookeeper_client).copied
                if trap is not first_mark:
                    assert set(readers.seen) <= {(False,) * 4}
                await asyncio.to_thread(leader.kill)
                cluster.gates[leader.node_id].release()
                leader.start()
            for gate in cluster.gates.values():
                gate.go_on()
            assert sizes[1] - sizes[0] > int(cluster.extra["migrator.copy.batch.records"]), "no batch was copied before"
            image = await cluster.until_converged()
            await cluster.until("readers see the copy", lambda: readers.seen[(True,) * 4] > 0)
        assert set(readers.seen) == {(False,) * 4, (True,) * 4}
        partitions = sum(len(topic.partitions) for topic in image.topics.by_id.values())
        assert partitions == cluster.options.partitions - 1
        elected = sum(len(broker.elections) for broker in cluster.brokers)
        assert elected >= 4, "each aborted copy gives ZooKeeper its controller back"
        assert [broker.violations for broker in cluster.brokers] == [[], [], []]


def decode_mark(client: KazooClient) -> MigrationState:
    """The content of `/migration`."""
    mark = decode_migration(paths.MIGRATION, client.get(paths.MIGRATION)[0])
    assert mark is not None
    return mark


async def test_zookeeper_is_gone_in_the_middle_of_the_first_reading_and_of_the_copy(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """Once for the leader alone, once with a server that is killed; what was begun ends well, or begins again."""
    async with cluster_in(tmp_path, own_zookeeper.hosts, controllers=1) as cluster:
        (gate,) = cluster.gates.values()
        start_all(cluster)
        stop_at(cluster, first_reading)
        leader = await stopped(cluster)
        status = await cluster.until("it says how it is", leader.status)
        assert status.migration.internal_state == State.DECODING.value
        gate.cut()
        await cluster.until_problem("out of reach", "zookeeper.connect")
        gate.mend()
        stop_at(cluster, reading(20))
        await stopped(cluster)
        await asyncio.to_thread(own_zookeeper.kill)
        gate.go_on()
        await cluster.until_problem("out of reach", "zookeeper.connect")
        assert not leader.image().topics.by_id
        await asyncio.to_thread(own_zookeeper.start)
        image = await cluster.until_converged()
        assert sum(len(topic.partitions) for topic in image.topics.by_id.values()) == cluster.options.partitions - 1


def first_reading(gate: Gate) -> Callable[[Request], bool]:
    """In the middle of the reading before the claim, which has a connection of its own."""

    def trap(request: Request) -> bool:
        reads = sum(each.connection == request.connection and each.operation == MULTI_READ for each in gate.requests)
        return request.operation == MULTI_READ and gate.opened(request.connection) and reads == 6

    return trap
