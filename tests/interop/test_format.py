"""Directories of kraft.version 1: formatted by stock and by us alike, and one takes over what the other formatted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from migrator.cli.format import command
from migrator.log.bootstrap import read_bootstrap
from migrator.log.files import iter_file_batches
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka, StockNode
from migrator.records.batch import iter_batches
from migrator.records.control import KRaftVersion, KRaftVoters, LeaderChange, SnapshotHeader, control_records
from migrator.records.metadata import FeatureLevelRecord, UserScramCredentialRecord

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
IDS = ("JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A")
FILE = f"{0:020d}-{0:010d}.checkpoint"


def node(kafka: StockKafka, folder: Path, port: int) -> StockNode:
    properties = {
        "process.roles": "controller",
        "node.id": "7",
        "listeners": f"CONTROLLER://localhost:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"localhost:{port}",
    }
    return StockNode(kafka, folder.name, folder, properties, Jvm(heap="256m"))


def by_stock(stock: StockNode, *options: str, cluster_id: str = CLUSTER_ID) -> Path:
    arguments = ("format", "-t", cluster_id, "-c", str(stock.write_properties()), "--release-version", "3.9-IV0")
    stock.kafka.tool("kafka.tools.StorageTool", *arguments, *options, directory=stock.directory)
    return stock.directory / "data"


def by_us(made: StockNode, *options: str, cluster_id: str = CLUSTER_ID) -> Path:
    arguments = ["-t", cluster_id, "-c", str(made.write_properties()), "--release-version", "3.9-IV0"]
    result = CliRunner().invoke(command, [*arguments, *options])
    assert result.exit_code == 0, result.output
    return made.directory / "data"


def layout(path: Path, own_id: bytes) -> list[Any]:
    """All of the file but times, the random directory id, and the voters' order: stock's is a hash map's."""
    found: list[Any] = []
    for position, batch in iter_file_batches(path):
        header = batch.header
        found.append((position, header.base_offset, header.leader_epoch, header.attributes, header.count, header.size))
        for record, version in control_records(batch):
            kept: Any = record
            if isinstance(record, SnapshotHeader):
                kept = (SnapshotHeader, record.last_contained_log_timestamp > 0)
            if isinstance(record, KRaftVoters):
                kept = [(one.voter_directory_id == own_id, one.voter_id, one.endpoints, one.k_raft_version_feature)
                        for one in sorted(record.voters, key=lambda voter: voter.voter_id)]  # fmt: skip
            found.append((kept, version))
    return found


@pytest.mark.parametrize(
    ("options", "cluster_id"),
    [
        ("--standalone", "kafka=prod: #1"),
        ("--initial-controllers", CLUSTER_ID),
        ("--no-initial-controllers", "kafka-prod-eu"),
    ],
)
def test_we_format_as_stock_does(
    kafka_391: StockKafka, tmp_path: Path, free_port: int, options: str, cluster_id: str
) -> None:
    """Any text is a cluster id."""
    listed = f"7@localhost:{free_port}:{IDS[0]},8@localhost:{free_port}:{IDS[1]}"
    given = [options, listed] if options == "--initial-controllers" else [options]
    stock = by_stock(node(kafka_391, tmp_path / "stock", free_port), *given, cluster_id=cluster_id)
    ours = by_us(node(kafka_391, tmp_path / "ours", free_port), *given, cluster_id=cluster_id)
    found = []
    for data in (stock, ours):
        identity = read_meta_properties(data)
        assert identity is not None
        assert identity.cluster_id == cluster_id
        assert identity.directory_id is not None
        folder = data / DIRECTORY_NAME
        names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        found.append(
            (
                identity.node_id,
                identity.directory_id if options == "--initial-controllers" else None,
                names,
                [layout(folder / name, identity.directory_id) for name in names],
            )
        )
    assert found[0] == found[1]
    assert found[0][2] == ([] if options == "--no-initial-controllers" else [FILE])


def test_credentials_are_what_stock_makes_of_them(kafka_391: StockKafka, tmp_path: Path, free_port: int) -> None:
    credentials = (
        'SCRAM-SHA-256=[name=alice,password=alice-secret,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y3Yx"]',
        'SCRAM-SHA-512=[name="alice",iterations=8192,salt="c2FsdC1vZi1hbGljZQ==",saltedpassword="c2FsdGVkLXBhc3N3b3Jk"]',
    )
    given = ("--standalone", *(word for credential in credentials for word in ("--add-scram", credential)))
    stock = by_stock(node(kafka_391, tmp_path / "stock", free_port), *given)
    ours = by_us(node(kafka_391, tmp_path / "ours", free_port), *given)
    first = read_bootstrap(ours)
    assert first == read_bootstrap(stock)
    assert first is not None
    assert [type(record) for record in first] == [FeatureLevelRecord, *[UserScramCredentialRecord] * 2]


def test_a_stock_controller_leads_what_we_formatted(kafka_391: StockKafka, tmp_path: Path, free_port: int) -> None:
    with_us = node(kafka_391, tmp_path, free_port)
    data = by_us(with_us, "--standalone")
    before = MetadataLog.open(data)
    formatted = before.membership()
    before.close()
    with with_us:
        pass
    log = MetadataLog.open(data)
    first = next(iter_batches(log.read(0, 10_000)))
    assert [type(record) for record, _ in control_records(first)] == [LeaderChange, KRaftVersion, KRaftVoters]
    assert (log.membership().kraft_version, log.membership().voters) == (1, formatted.voters)
    assert log.membership().offset == 2
    log.close()
