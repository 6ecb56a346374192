"""The log of a running controller, stock Kafka's or ours, fetched as an observer does: that of its directory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import Row, SparkSession

from migrator.config.properties import parse_properties
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.log.snapshots import SnapshotWriter
from migrator.parts.certificates import Authority
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import ChildProcess, free_port
from migrator.raft.messages import EpochOffset
from migrator.raft.states import ElectionState
from migrator.records import metadata as m
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.control import LeaderChange, Voter, build_control_batch
from migrator.records.uuid import DIRECTORY_UNASSIGNED
from migrator.records.versions import parse_version
from migrator.verify.kraft.files import end_of_log, read_image
from migrator.verify.kraft.log_tail import ObservedTail
from migrator.verify.kraft.observed import Observed, by_address, observed
from migrator.verify.spark.kraft_source import metadata_rows
from migrator.verify.spark.sides import register
from tests.records.support.samples import UUID

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
NODE_ID = 7
VERSION = parse_version("3.9")
SNAPSHOT = EpochOffset(2, 50)
SECURITY = "security.properties"
CONFIGS = 9_000
"""Enough for a snapshot of several batches."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A formatted directory with a snapshot and a log behind it."""
    data = tmp_path / "data"
    format_directories(FormatPlan((data,), data, CLUSTER_ID, NODE_ID, VERSION), random=Random(1), now_ms=1000)
    folder = data / DIRECTORY_NAME
    folder.mkdir()
    records: list[m.MetadataRecord] = [
        m.FeatureLevelRecord("metadata.version", VERSION.level),
        m.ZkMigrationStateRecord(m.ZkMigrationState.NONE),
        m.TopicRecord("orders", UUID),
        m.PartitionRecord(0, UUID, (1, 2), (1, 2), (), (), 1, 0, 4, 5, (DIRECTORY_UNASSIGNED,) * 2),
        *(m.ConfigRecord(m.ConfigResourceType.TOPIC, "orders", f"key-{n}", "x" * 200) for n in range(CONFIGS)),
    ]
    with SnapshotWriter(folder, SNAPSHOT, last_contained_log_timestamp_ms=1000, now_ms=1000) as writer:
        writer.append(encode_all(records, VERSION.level), now_ms=1000)
        writer.freeze(now_ms=1000)
    log = MetadataLog.open(data)
    leader = LeaderChange(NODE_ID, (Voter(NODE_ID),), (Voter(NODE_ID),))
    log.append(build_control_batch([leader], timestamp_ms=2000, base_offset=50, leader_epoch=3))
    change = m.PartitionChangeRecord(0, UUID, isr=(2,), leader=2)
    log.append(build_batch(encode_all([change], VERSION.level), timestamp_ms=3000, base_offset=51, leader_epoch=3))
    log.close()
    QuorumStateFile(folder, [NODE_ID]).write(ElectionState(3, leader_id=NODE_ID))
    return data


def properties(data: Path, port: int) -> dict[str, str]:
    """Of a controller; those of its security are taken from a file beside the directory, if there is one."""
    secured = data.parent / SECURITY
    return (parse_properties(secured.read_text()) if secured.exists() else {}) | {
        "process.roles": "controller",
        "node.id": str(NODE_ID),
        "listeners": f"CONTROLLER://localhost:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE_ID}@localhost:{port}",
        "log.dirs": str(data),
    }


@contextmanager
def stock(data: Path, port: int, request: pytest.FixtureRequest) -> Iterator[None]:
    kafka: StockKafka = request.getfixturevalue("kafka_391")
    with kafka.node("stock", data.parent, properties(data, port)):
        yield


@contextmanager
def ours(data: Path, port: int, _: pytest.FixtureRequest) -> Iterator[None]:
    file = data.parent / "controller.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in properties(data, port).items()))
    command = [str(Path(sys.executable).with_name("migrator")), "controller", "-c", str(file)]
    with ChildProcess("controller", command, output=data.parent / "controller.log"):
        yield


def secure(directory: Path) -> None:
    """Controllers of this directory ask for a certificate and a password."""
    authority = Authority("quorum")
    key, certificate = authority.issue("controller")
    (directory / "key-and-chain.pem").write_text(key + certificate)
    (directory / "ca.pem").write_text(authority.pem)
    (directory / SECURITY).write_text(
        "listener.security.protocol.map=CONTROLLER:SASL_SSL\n"
        "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.controller.protocol=PLAIN\n"
        "listener.name.controller.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule"
        ' required username="controller" password="let me in" user_controller="let me in";\n'
        "listener.name.controller.ssl.client.auth=required\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={directory / 'key-and-chain.pem'}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={directory / 'ca.pem'}\n"
    )


def topics_and_configs(image: MetadataImage) -> tuple[object, object]:
    topic = image.topics.by_id[UUID]
    return (topic.name, dict(topic.partitions)), {key.name: dict(config) for key, config in image.configs.items()}


@pytest.mark.parametrize("controller", [pytest.param(stock, marks=pytest.mark.lane("test-all")), ours])
def test_what_is_fetched_is_what_the_directory_holds(
    controller: Callable[..., object], directory: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    port = free_port()
    quorum = observed(f"localhost:{free_port()},localhost:{port}", None)
    with controller(directory, port, request):  # type: ignore[attr-defined]
        end = quorum.end_offset()
        fetched = tmp_path / "fetched"
        reached = quorum.fetch(fetched, end - 1)
        assert reached.offset >= end > SNAPSHOT.offset + 2
        until = end - 1
        seen, expected = read_image(fetched, until), read_image(directory, until)
        assert topics_and_configs(seen) == topics_and_configs(expected)
        assert seen.topics.by_id[UUID].partitions[0].leader == 2
        assert len(dict(topics_and_configs(seen)[1]["orders"])) == CONFIGS  # type: ignore[index]

        tail = ObservedTail(quorum, tmp_path / "tail")
        first = tail.end_offset
        while tail.end_offset <= first:  # a controller appends twice a second; the test's time-out bounds it
            tail.advance()
        assert end_of_log(directory) >= tail.end_offset
    names = {path.suffix for path in (fetched / DIRECTORY_NAME).iterdir()}
    assert names == {".checkpoint", ".log"}


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("controller", [stock, ours])
def test_spark_reads_a_quorum_that_asks_for_a_certificate_and_a_password(
    controller: Callable[..., object],
    directory: Path,
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    secure(tmp_path)
    port = free_port()
    file = tmp_path / "verify.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in properties(directory, port).items()))
    register(spark)

    def rows(**source: str) -> list[Row]:
        with metadata_rows(spark, {"salt": "00", "shards": "3", **source}) as frame:
            return sorted(frame.collect())

    expected = rows(directory=str(directory))
    with controller(directory, port, request):  # type: ignore[attr-defined]
        assert rows(controllers=f"localhost:{port}", config=str(file)) == expected
        stranger = replace(observed(f"localhost:{port}", None), patience_seconds=1.0)
        with pytest.raises(OperatorError, match="no leader answered"):
            stranger.end_offset()
    assert len(expected) > CONFIGS


def test_nobody_there_is_an_error_that_names_the_address(free_port: int) -> None:
    with pytest.raises(OperatorError, match="no leader answered") as raised:
        Observed(by_address([("localhost", free_port)]), patience_seconds=1.0).end_offset()
    assert raised.value.where == f"localhost:{free_port}"


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(OperatorError, match="is not host:port"):
        observed("localhost", None)
