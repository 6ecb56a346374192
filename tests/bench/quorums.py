"""Controllers of one peer without ZooKeeper, voters in their log: what benchmarks of a quorum start, and fill."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.drill.light.broker import directory_of
from migrator.errors import MigratorError
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.java import Jvm
from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode
from migrator.records import metadata as m
from migrator.records.uuid import Uuid, random_uuid
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import build, request_type
from tests.bench.peers import STOCK_JVM, STOCK_VERSION
from tests.bench.verify_inputs import LEVEL, write_log
from tests.interop.support.changing_voters import ChangingVoters
from tests.interop.support.mixed_voters import StockVoter

TITLES = {"stock": f"stock {STOCK_VERSION}", "ours": "ours"}
PARTITIONS_A_TOPIC, TOPICS_A_REQUEST, REPLICAS = 10, 50, 3
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 7
REQUEST_SECONDS = 60.0
TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


class StockVoters(ChangingVoters):
    """The same controllers, all of them stock Kafka's."""

    def __init__(
        self,
        directory: Path,
        kafka: StockKafka,
        *,
        size: int,
        voters: int,
        jvm: Jvm = STOCK_JVM,
        log_level: str = "INFO",
    ) -> None:
        super().__init__(directory, size=size, voters=voters)
        self.directory, self._kafka = directory, kafka
        self._voters = {node: _BenchVoter(kafka, like, jvm, log_level) for node, like in self.controllers.items()}
        self.controllers = {**self._voters}

    def format_first(self, node: int, how: Iterable[str]) -> None:
        """See its base."""
        self._voters[node].format_with(*how)

    def command(self, *arguments: str) -> None:
        """``kafka-metadata-quorum``, as an operator types it: at any controller that runs.

        :raises OperatorError: it was refused.
        """
        at = ("--bootstrap-controller", ",".join(f"127.0.0.1:{port}" for port in self.ports.values()))
        self._kafka.tool(TOOL, *at, *arguments, directory=self.directory)


class _BenchVoter(StockVoter):
    """With the memory and the compilers that a real one has."""

    def __init__(self, kafka: StockKafka, like: Any, jvm: Jvm, log_level: str) -> None:
        super().__init__(kafka, like)
        self._release, self._jvm, self._log_level = kafka, jvm, log_level

    def _node(self) -> StockNode:
        name = f"controller {self.node_id}"
        return self._release.node(name, self.directory, self.properties, jvm=self._jvm, log_level=self._log_level)


@asynccontextmanager
async def running(
    peer: str,
    directory: Path,
    *,
    size: int,
    voters: int,
    jvm: Jvm = STOCK_JVM,
    log_level: str = "INFO",
    properties: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> AsyncIterator[ChangingVoters]:
    """A quorum of a peer that has a leader; the JVM and the log level are those of stock controllers.

    :param log: the segment that every controller begins with, made by `prepared_log`.
    """
    if peer == "stock":
        kafka = KafkaRelease(STOCK_VERSION).fetch()
        quorum: ChangingVoters = StockVoters(directory, kafka, size=size, voters=voters, jvm=jvm, log_level=log_level)
    else:
        quorum = ChangingVoters(directory, size=size, voters=voters)
    for controller in quorum.controllers.values():
        controller.properties |= properties or {}
    try:
        await asyncio.to_thread(_format_and_start, quorum, log)
        await quorum.until_caught_up()
        yield quorum
    finally:
        await asyncio.to_thread(quorum.close)


def _format_and_start(quorum: ChangingVoters, log: Path | None) -> None:
    quorum.format()
    for controller in quorum.controllers.values():
        if log is not None:
            directory = controller.metadata_directory / DIRECTORY_NAME
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, directory)
        controller.start()


async def fill(quorum: ChangingVoters, partitions: int, brokers: Sequence[int]) -> None:
    """Topics with three replicas: partition 0 is on the first three brokers, partition 1 on the second to the fourth,
    and so on. So a broker of ten has three partitions of each topic and leads one.

    :raises TransportError, PeerError, MigratorError: the leader does not create them.
    """
    leader = (await quorum.until(lambda _: True)).leader_id
    client = KafkaClient("127.0.0.1", quorum.ports[leader], "bench")
    on = _replicas(brokers)
    assignments = [{"partition_index": index, "broker_ids": replicas} for index, replicas in enumerate(on)]
    topic = {"num_partitions": -1, "replication_factor": -1, "assignments": assignments, "configs": ()}
    count = partitions // PARTITIONS_A_TOPIC
    try:
        for first in range(0, count, TOPICS_A_REQUEST):
            names = [f"topic-{number}" for number in range(first, min(first + TOPICS_A_REQUEST, count))]
            request = creation([{"name": name, **topic} for name in names])
            for answer in (await client.request(request, REQUEST_SECONDS)).topics:
                if answer.error_code is not ErrorCode.none:
                    raise MigratorError(f"creation of {answer.name}: {answer.error_code.name}")
    finally:
        await client.close()


def prepared_log(directory: Path, partitions: int, brokers: Sequence[int]) -> Path:
    """What `fill` would create, as the segment of a log."""
    return write_log(directory, _records(partitions, brokers))


def _records(partitions: int, brokers: Sequence[int]) -> Iterator[m.MetadataRecord]:
    ids, on = random.Random(0), _replicas(brokers)
    yield m.FeatureLevelRecord("metadata.version", LEVEL)
    for number in range(partitions // PARTITIONS_A_TOPIC):
        topic_id = random_uuid(ids)
        yield m.TopicRecord(f"topic-{number}", topic_id)
        for index, replicas in enumerate(on):
            directories = tuple(Uuid(directory_of(broker).bytes) for broker in replicas)
            yield m.PartitionRecord(index, topic_id, replicas, replicas, (), (), replicas[0], 0, 0, 0, directories)


def _replicas(brokers: Sequence[int]) -> list[tuple[int, ...]]:
    """Of each partition of a topic."""
    ring = [*brokers, *brokers]
    starts = [number % len(brokers) for number in range(PARTITIONS_A_TOPIC)]
    return [tuple(ring[start : start + REPLICAS]) for start in starts]


def creation(topics: Sequence[Mapping[str, Any]]) -> Any:
    """A CreateTopics request."""
    seconds = dt.timedelta(seconds=REQUEST_SECONDS)
    kind = request_type(CREATE_TOPICS, CREATE_TOPICS_VERSION)
    return build(kind, topics=topics, timeout=seconds, validate_only=False)
