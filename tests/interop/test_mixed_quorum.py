"""A stock 3.9.1 voter beside ours: either side leads, one log, and who would end the migration never leads.

Ours speak gRPC with each other, and Kafka's protocol with the stock voter. That one has short time-outs, so that it
stands for election often. No election is left to chance: a voter that was frozen (SIGSTOP) while the other two
committed lacks records, and a peer that has them does not elect it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kio.schema.errors import ErrorCode

from migrator.drill.cluster import ClusterOptions, ControllerProcess, zookeeper_client
from migrator.drill.light.cluster import LightCluster
from migrator.drill.probes import dual_writing, leader_of
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.observe.status import NodeRole
from migrator.parts.kafka import StockKafka
from migrator.records.metadata import ZkMigrationState
from migrator.wire.schemas import build, request_type
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.migration import MigrationState, decode_migration
from tests.drill.support.stock_controllers import StockController
from tests.patience import PATIENCE_SECONDS

LACKING = 3
"""So many times the others' logs grow while a voter is frozen. What is on its way to it then is at most the first."""
OURS = {
    "controller.quorum.fetch.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "2000",
}
STOCK = {
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "300",
}
REFUSAL = "This controller refuses its vote to controller {}: it is a stock controller without"
CREATE_TOPICS = request_type(19, 7)
DAMAGED = "in-the-terms-of-stock-0"


class Mixed:
    """Two of our voters, and a stock one."""

    def __init__(self, cluster: LightCluster, stock: StockController) -> None:
        self.cluster = cluster
        self.stock = stock
        self.created: set[str] = set()
        self._channel = cluster.channel("creator")

    async def start(self, *controllers: ControllerProcess) -> None:
        for controller in controllers:
            await asyncio.to_thread(controller.start)

    async def restart_stock(self, *, migrating: bool) -> None:
        """With the flag on or off; it has caught up when this returns."""
        await asyncio.to_thread(self.stock.stop)
        self.stock.set_migration(enabled=migrating)
        await self.start(self.stock)
        await until("the stock controller follows", self.stock_follows)

    async def stock_follows(self) -> bool:
        status = await self.stock.status()
        return status is not None and self.said_by_stock()[-1] == "FollowerState"

    def said_by_stock(self) -> list[str]:
        """The roles that its process has had, in order."""
        process = self.stock.process
        return [] if process is None else re.findall(r"Completed transition to (\w+)", process.output_text())

    async def create(self, prefix: str, count: int = 5) -> None:
        """Create topics, one after the other, at the leader."""
        for number in range(count):
            name = f"{prefix}-{number}"
            topic = {"name": name, "num_partitions": 2, "replication_factor": 2, "assignments": (), "configs": ()}
            request = build(CREATE_TOPICS, topics=(topic,), timeout_ms=10_000, validate_only=False)
            answer = await self._channel.request(request, timeout_seconds=PATIENCE_SECONDS)
            done = {ErrorCode.none, ErrorCode.topic_already_exists}  # the latter: a deposed leader carried it out
            assert answer.topics[0].error_code in done, answer
            self.created.add(name)

    async def leads(self, stock: bool) -> bool:
        """Whether a controller of that kind leads."""
        leader = await self.cluster.leader()
        return leader is not None and (leader is self.stock) == stock

    async def grow_without(self, frozen: ControllerProcess, *others: ControllerProcess) -> None:
        """Freeze a voter until all the others have records that it lacks, and that cannot be on their way to it."""
        await asyncio.to_thread(frozen.pause)
        longest = 0

        async def all_grew() -> bool:
            return min(map(log_size, others)) > longest

        for _ in range(LACKING):
            longest = max(map(log_size, self.cluster.controllers))
            await until("the others' logs grow", all_grew)

    async def only_stock_has_all(self) -> tuple[ControllerProcess, ControllerProcess]:
        """Our leader is dead, and our other voter has fewer records than the stock one, so it cannot be elected.
        Gives the dead one and the other one."""
        killed, other = await self.leader_and_other()
        await self.grow_without(other, killed, self.stock)
        await asyncio.to_thread(killed.kill)
        await asyncio.to_thread(other.resume)
        return killed, other

    async def refuses_stock(self) -> None:
        """Our leader dies. The stock voter stands, and is refused even by the one that has fewer records than it has;
        who has more than the stock voter is elected although that one keeps standing."""
        for each in self.ours:  # a process says but once of a candidate that it refuses it
            await asyncio.to_thread(each.stop)
            await self.start(each)
            await until("everybody follows", self.all_follow)
        killed, other = await self.only_stock_has_all()
        await until("the stock controller is refused", lambda: self.has_refused(other))
        await self.start(killed)
        await until("everybody follows again", self.all_follow)

        await self.grow_without(self.stock, *self.ours)
        leader = await leader_of(self.cluster)
        await asyncio.to_thread(leader.kill)
        await asyncio.to_thread(self.stock.resume)
        await until("another of ours leads", lambda: self.leads(stock=False))
        await self.start(leader)
        await until("everybody follows again", self.all_follow)
        assert "Leader" not in self.said_by_stock()

    async def has_refused(self, controller: ControllerProcess) -> bool:
        """Whether one of ours says that it gives the stock voter no vote, and why."""
        process = controller.process
        assert process is not None
        said = re.findall(REFUSAL.format(self.stock.node_id), process.output_text())
        return bool(said)

    async def elects_stock(self) -> ControllerProcess:
        """Our leader dies, and the stock voter is elected. Gives the controller that was killed."""
        killed, _ = await self.only_stock_has_all()
        await until("the stock controller leads", lambda: self.leads(stock=True))
        return killed

    async def leader_and_other(self) -> tuple[ControllerProcess, ControllerProcess]:
        """Ours, the leader first. A frozen leader could not be replaced: the stock voter may have more records."""
        first, second = self.ours
        leader = await leader_of(self.cluster)
        return (second, first) if leader is second else (first, second)

    @property
    def ours(self) -> tuple[ControllerProcess, ControllerProcess]:
        first, second, _ = self.cluster.controllers
        return first, second

    async def all_follow(self) -> bool:
        """Whether all three run, and agree on the leader's epoch."""
        statuses = await self.cluster.statuses()
        epochs = {status.quorum.leader_epoch for status in statuses.values()}
        leaders = [status for status in statuses.values() if status.quorum.role is NodeRole.LEADER]
        return len(statuses) == 3 and len(epochs) == 1 and len(leaders) == 1

    def states(self) -> set[ZkMigrationState]:
        return {each.image().features.zk_migration_state for each in self.cluster.controllers}

    async def close(self) -> None:
        await self._channel.close()
        await self.cluster.close()


@asynccontextmanager
async def mixed_quorum(kafka: StockKafka, directory: Path) -> AsyncIterator[Mixed]:
    options = ClusterOptions(partitions=60, brokers=2, controllers=3, transport="grpc")
    cluster = LightCluster(directory, options)
    *ours, last = cluster.controllers
    for controller in ours:
        controller.properties |= OURS
    last.properties |= STOCK
    stock = StockController(kafka, last)
    cluster.controllers = [*ours, stock]
    mixed = Mixed(cluster, stock)
    try:
        await asyncio.to_thread(cluster.fill)
        await cluster.brokers[0].start()
        for controller in cluster.controllers:
            await asyncio.to_thread(controller.format)
        yield mixed
    finally:
        await mixed.close()


async def until(what: str, condition: Callable[[], Awaitable[bool]], *, seconds: float = PATIENCE_SECONDS) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:.0f} s: {what}") from None


def damage(hosts: str) -> None:
    """A change that only a full comparison finds: no record touches this znode again."""
    with zookeeper_client(hosts) as client:
        client.set(paths.topic_config(DAMAGED), b'{"version":1,"config":{"retention.ms":"1"}}')


def damage_is_gone(hosts: str) -> bool:
    with zookeeper_client(hosts) as client:
        return b"retention" not in client.get(paths.topic_config(DAMAGED))[0]


def mark(hosts: str) -> MigrationState:
    with zookeeper_client(hosts) as client:
        found = decode_migration(paths.MIGRATION, client.get(paths.MIGRATION)[0])
    assert found is not None
    return found


def topics_in_zookeeper(hosts: str) -> set[str]:
    with zookeeper_client(hosts) as client:
        return set(client.get_children(paths.TOPICS))


def log_size(controller: ControllerProcess) -> int:
    """Bytes of its log. Logs of one quorum are alike, so the longer one has more records."""
    return sum(segment.stat().st_size for segment in (controller.metadata_directory / DIRECTORY_NAME).glob("*.log"))


def log_bytes(controller: ControllerProcess) -> bytes:
    log = MetadataLog.open(controller.metadata_directory)
    try:
        assert log.start_offset() == 0
        return log.read(0, 1 << 30)
    finally:
        log.close()


async def test_a_stock_voter_beside_ours(kafka_391: StockKafka, tmp_path: Path) -> None:
    async with mixed_quorum(kafka_391, tmp_path) as mixed:
        cluster, stock = mixed.cluster, mixed.stock
        hosts = cluster.zookeeper_hosts

        stock.set_migration(enabled=False)
        await mixed.start(*cluster.controllers)
        await until("one of ours leads", lambda: mixed.leads(stock=False))
        await until("everybody follows", mixed.all_follow)
        await mixed.refuses_stock()
        assert mixed.states() == {ZkMigrationState.PRE_MIGRATION}

        await mixed.restart_stock(migrating=True)
        await cluster.brokers[1].start()
        await until("ours dual-writes", lambda: dual_writing(cluster))
        await mixed.create("before")
        await until("the mark is proved by the log", lambda: proved(mixed))

        killed = await mixed.elects_stock()
        await mixed.create("in-the-terms-of-stock")
        await mixed.start(killed)
        await until("everybody follows the stock controller", mixed.all_follow)
        await until("the stock controller dual-writes", lambda: stock_dual_writes(mixed))
        await until("ZooKeeper has its topics", lambda: in_zookeeper(mixed))
        await asyncio.to_thread(damage, hosts)
        theirs = await asyncio.to_thread(mark, hosts)
        assert (theirs.kraft_controller_id, theirs.batch_crc) == (stock.node_id, None), (
            "stock drops what it does not know"
        )

        await asyncio.to_thread(stock.stop)
        await until("one of ours leads again", lambda: mixed.leads(stock=False))
        await until("ours dual-writes again", lambda: dual_writing(cluster))
        await until("the mark is proved by the log again", lambda: proved(mixed))
        assert await asyncio.to_thread(damage_is_gone, hosts), "the next leader of ours compares everything"
        await mixed.create("after")

        stock.set_migration(enabled=False)
        await mixed.start(stock)
        await until("everybody follows ours", mixed.all_follow)
        await mixed.refuses_stock()
        await until("ours dual-writes at last", lambda: dual_writing(cluster))
        await mixed.create("last")
        await until("ZooKeeper has all topics", lambda: in_zookeeper(mixed))
        assert mixed.states() == {ZkMigrationState.MIGRATION}

        for controller in cluster.controllers:
            await asyncio.to_thread(controller.stop)
        logs = [log_bytes(controller) for controller in cluster.controllers]
        shortest = min(map(len, logs))
        assert shortest > 0
        assert len({log[:shortest] for log in logs}) == 1, "the logs differ"
        for controller in cluster.controllers:
            assert mixed.created <= set(controller.image().topics.ids)


async def stock_dual_writes(mixed: Mixed) -> bool:
    status = await mixed.stock.status()
    return status is not None and status.migration.internal_state == "dual-writing"


async def proved(mixed: Mixed) -> bool:
    return (await asyncio.to_thread(mark, mixed.cluster.zookeeper_hosts)).batch_crc is not None


async def in_zookeeper(mixed: Mixed) -> bool:
    return mixed.created <= await asyncio.to_thread(topics_in_zookeeper, mixed.cluster.zookeeper_hosts)
