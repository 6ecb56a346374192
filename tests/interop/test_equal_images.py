"""The same ZooKeeper, migrated by a stock controller and by ours: what they copy is equal, record for record."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import orjson
import pytest
from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode

from migrator.clock import wall_ms
from migrator.drill.cluster import ControllerProcess, zookeeper_client
from migrator.drill.controller_channel import ControllerChannel
from migrator.log.formatting import FormatPlan, format_directories
from migrator.migration.machine.states import State
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port
from migrator.records import metadata as m
from migrator.records.metadata import Endpoint
from migrator.records.uuid import ZERO_UUID
from migrator.records.versions import parse_version, record_version
from migrator.values import value
from migrator.wire.schemas import BROKER_HEARTBEAT, BROKER_REGISTRATION, build, request_type
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import decode_broker
from tests.conftest import ZooKeeperSpace
from tests.interop.support.controller_logs import Records, highest_versions, records_of
from tests.interop.support.zookeeper_of_everything import BROKERS, CLUSTER_ID, fill_everything
from tests.interop.test_light_brokers_stock import stock_controller
from tests.migration.support.images import comparable, read_image
from tests.patience import PATIENCE_SECONDS

COPY = "ZK Migration"
"""The name of the transaction; stock's, and ours."""

FAMILIES: Mapping[str, type[m.MetadataRecord] | tuple[type[m.MetadataRecord], ...]] = {
    "topics": (m.TopicRecord, m.PartitionRecord),
    "configs": m.ConfigRecord,
    "quotas": m.ClientQuotaRecord,
    "credentials": m.UserScramCredentialRecord,
    "producer ids": m.ProducerIdsRecord,
    "acls": m.AccessControlEntryRecord,
    "tokens": m.DelegationTokenRecord,
    "state": m.ZkMigrationStateRecord,
}

ZOOKEEPER_DIFFERENCES: Mapping[str, str] = {
    f"{paths.topic('no-states')}/partitions": "Stock invents the state of a partition without one, compares ZooKeeper "
    "with its own invention, and so never writes it; ours writes what its image says",
    paths.topic_config("no-states"): "KAFKA-16003, where stock only helped topics created later: brokers want the node",
    paths.token("of-version-"): "Stock writes every token anew at each takeover; ours leaves alone what says the same",
    paths.token("no-data"): "Stock deletes it; it says nothing, and brokers pass over it",
    "/kafka-acl/Topic/no": "Stock deletes resources without entries; they say nothing, and are no difference to ours",
}
"""Below which paths the ZooKeepers that the two leave differ, and why ours is right: by beginning of path."""


@value
class Migrated:
    """The result of one controller: its log, as records with their versions, and the content of ZooKeeper."""

    log: Records
    zookeeper: Mapping[str, object]

    @property
    def copied(self) -> list[m.MetadataRecord]:
        """The records between the copy's Begin and its End."""
        records = [record for record, _ in self.log]
        begin = records.index(m.BeginTransactionRecord(COPY))
        end = records.index(m.EndTransactionRecord(), begin)
        return [record for record in records[begin + 1 : end] if not isinstance(record, m.NoOpRecord)]

    def family(self, name: str) -> Counter[m.MetadataRecord]:
        """Its records, whatever their order, as Kafka knows them."""
        return Counter(as_kafka_knows(record) for record in self.copied if isinstance(record, FAMILIES[name]))


def as_kafka_knows(record: m.MetadataRecord) -> m.MetadataRecord:
    """Without our tagged fields, which Kafka skips; the ids of ACLs are random."""
    match record:
        case m.AccessControlEntryRecord():
            return replace(record, id=ZERO_UUID)
        case m.ZkMigrationStateRecord():
            return m.ZkMigrationStateRecord(record.zk_migration_state)
    return record


LONG = pytest.mark.lane("test-long")


@pytest.mark.parametrize("release", ["3.6", pytest.param("3.7", marks=LONG), pytest.param("3.8", marks=LONG), "3.9"])
async def test_the_copies_are_equal(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path, release: str
) -> None:
    now_ms = wall_ms()
    for chroot in ("/stock", "/ours"):
        zookeeper_client.create(chroot)
        await asyncio.to_thread(fill, zookeeper.hosts + chroot, now_ms)
    stock, ours = await asyncio.gather(
        by_stock(kafka_391, tmp_path / "stock", zookeeper.hosts + "/stock", release),
        by_us(kafka_391, tmp_path / "ours", zookeeper.hosts + "/ours", release),
    )
    for family in FAMILIES:
        assert ours.family(family), family
        assert differences(stock.family(family), ours.family(family)) == {}, family
    images = [comparable(read_image(side.copied)) for side in (stock, ours)]
    assert images[0] == images[1]
    versions = highest_versions(stock.log)
    assert highest_versions(ours.log) == versions | {m.PartitionRecord: partition_version(release)}
    assert versions[m.PartitionRecord] == 0, "stock's copy does not name directories, whatever the version"
    found = differences(stock.zookeeper, ours.zookeeper)
    assert sorted({path for path in found if not path.startswith(tuple(ZOOKEEPER_DIFFERENCES))}) == [], found
    assert [path for path in ZOOKEEPER_DIFFERENCES if not any(each.startswith(path) for each in found)] == []


def partition_version(release: str) -> int:
    return record_version(m.PartitionRecord, parse_version(release).level)


def differences(stock: Mapping[Any, object], ours: Mapping[Any, object]) -> dict[str, tuple[object, object]]:
    """Differences: the values of both sides by key, as text."""
    return {
        str(key): (stock.get(key), ours.get(key))
        for key in stock.keys() | ours.keys()
        if (key in stock, stock.get(key)) != (key in ours, ours.get(key))
    }


def fill(hosts: str, now_ms: int) -> None:
    with zookeeper_client(hosts) as client:
        fill_everything(client, now_ms)


async def by_stock(kafka: StockKafka, directory: Path, hosts: str, release: str) -> Migrated:
    port = free_port()
    controller = stock_controller(kafka, directory, hosts, port)
    format_directory(directory / "data", release)
    try:
        controller.launch()
        async with played_brokers(port, hosts, parse_version(release).level):
            await asyncio.to_thread(
                controller.process.wait_for_output, "to DUAL_WRITE state", timeout_seconds=PATIENCE_SECONDS
            )
    finally:
        controller.kill()
    return Migrated(records_of(directory / "data"), await asyncio.to_thread(content, hosts))


async def by_us(kafka: StockKafka, directory: Path, hosts: str, release: str) -> Migrated:
    port = free_port()
    properties = dict(stock_controller(kafka, directory, hosts, port).properties)
    del properties["log.dirs"]
    controller = ControllerProcess(3000, directory, properties)
    format_directory(controller.metadata_directory, release)
    try:
        controller.start()
        async with asyncio.timeout(PATIENCE_SECONDS), played_brokers(port, hosts, parse_version(release).level):
            while not await dual_writes(controller):
                await asyncio.sleep(0.05)
    finally:
        await asyncio.to_thread(controller.kill)
    return Migrated(records_of(controller.metadata_directory), await asyncio.to_thread(content, hosts))


async def dual_writes(controller: ControllerProcess) -> bool:
    status = await controller.status()
    return status is not None and status.migration.internal_state == State.DUAL_WRITING.value


def format_directory(directory: Path, release: str) -> None:
    plan = FormatPlan((directory,), directory, CLUSTER_ID, 3000, parse_version(release))
    format_directories(plan, random=Random(1), now_ms=0)


@asynccontextmanager
async def played_brokers(port: int, hosts: str, level: int) -> AsyncIterator[None]:
    """Registered with the addresses that ZooKeeper has of them, and heard of again and again as brokers that want to
    stay fenced: nobody changes a partition."""
    channel = ControllerChannel([("127.0.0.1", port)], "brokers")
    at = await asyncio.to_thread(addresses, hosts)
    beating = asyncio.create_task(register_and_beat(channel, at, level))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await channel.close()


def addresses(hosts: str) -> dict[int, Endpoint]:
    """Of the brokers' listeners, by broker."""
    with zookeeper_client(hosts) as client:
        znodes = {broker: client.get(paths.broker(broker))[0] for broker in BROKERS}
    return {broker: decode_broker(paths.broker(broker), data).endpoints[0] for broker, data in znodes.items()}


async def register_and_beat(channel: ControllerChannel, at: Mapping[int, Endpoint], level: int) -> None:
    epochs = {broker: await registered(channel, broker, at[broker], level) for broker in BROKERS}
    while True:
        for broker, epoch in epochs.items():
            beat = build(
                request_type(BROKER_HEARTBEAT, 1),
                broker_id=broker,
                broker_epoch=epoch,
                current_metadata_offset=epoch,
                want_fence=True,
                want_shut_down=False,
            )
            await channel.request(beat, timeout_seconds=PATIENCE_SECONDS)
        await asyncio.sleep(0.3)


async def registered(channel: ControllerChannel, broker: int, at: Endpoint, level: int) -> int:
    """Gives the broker's epoch."""
    request = build(
        request_type(BROKER_REGISTRATION, 4),
        broker_id=broker,
        cluster_id=CLUSTER_ID,
        incarnation_id=UUID(int=(broker << 64) + 1),
        listeners=[{"name": "PLAINTEXT", "host": at.host, "port": at.port, "security_protocol": 0}],
        features=[{"name": "metadata.version", "min_supported_version": level, "max_supported_version": level}],
        is_migrating_zk_broker=True,
        log_dirs=(UUID(int=(broker << 64) + 2),),
        previous_broker_epoch=-1,
    )
    response = await channel.request(request, timeout_seconds=PATIENCE_SECONDS)
    assert response.error_code is ErrorCode.none, response
    return int(response.broker_epoch)


OWN = (paths.CONTROLLER, paths.MIGRATION, paths.CONFIG_CHANGES, paths.LITERAL_ACL_CHANGES, paths.PREFIXED_ACL_CHANGES)


def content(hosts: str) -> dict[str, object]:
    """The content of a ZooKeeper, without claims and notices."""
    with zookeeper_client(hosts) as client:
        return {path: read(client, path) for path in walk(client, "/") if not path.startswith(OWN)}


def walk(client: KazooClient, path: str) -> Iterator[str]:
    for name in client.get_children(path):
        child = f"{path.rstrip('/')}/{name}"
        yield child
        yield from walk(client, child)


def read(client: KazooClient, path: str) -> object:
    data, _ = client.get(path)
    if not data or not data.startswith(b"{"):
        return data
    fields = orjson.loads(data)
    if "acls" in fields:
        fields["acls"] = sorted(fields["acls"], key=repr)
    return fields
