"""`migrator format` without -r, beside real brokers: the metadata.version is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

from migrator.cli.format import command
from migrator.config.keys import IBP
from migrator.controller.activation import bootstrap_level
from migrator.drill.cluster import CLUSTER_ID, controller_properties, migration_properties
from migrator.errors import OperatorError
from migrator.log.bootstrap import read_bootstrap
from migrator.parts.java import Jvm
from migrator.parts.kafka import KafkaRelease, StockNode, start_together
from migrator.parts.processes import free_port
from migrator.records.versions import parse_version
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace

LONG = pytest.mark.lane("test-long")
CASES: Mapping[str, tuple[tuple[tuple[str, str], ...], str | None]] = {
    "3.6.2": ((("3.6.2", "3.6"),), "3.6-IV2"),
    "its own": ((("3.8.1", ""),), "3.8-IV0"),
    "mixed releases": ((("3.6.2", "3.6"), ("3.8.1", "3.6-IV2")), "3.6-IV2"),
    "mixed versions": ((("3.7.2", ""), ("3.8.1", "")), None),
}
"""Release and inter.broker.protocol.version of each broker, "" for none; and what a controller is formatted with."""


@pytest.mark.parametrize("case", [pytest.param(it, marks=() if it == "3.6.2" else LONG) for it in CASES])
def test_the_version_is_that_of_real_brokers(
    case: str, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    releases, expected = CASES[case]
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    brokers = []
    for broker_id, (release, version) in enumerate(releases, 1):
        properties = {
            "broker.id": str(broker_id),
            "zookeeper.connect": zookeeper.hosts,
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        } | ({IBP: version} if version else {})
        name = f"broker-{broker_id}"
        brokers.append(StockNode(KafkaRelease(release).fetch(), name, tmp_path / name, properties, Jvm(heap="384m")))
    start_together(brokers)
    try:
        metadata, file = tmp_path / "metadata", tmp_path / "controller.properties"
        settings = controller_properties(3001, {3001: free_port()}) | migration_properties(zookeeper.hosts)
        file.write_text("".join(f"{key}={text}\n" for key, text in {**settings, "log.dirs": str(metadata)}.items()))
        done = CliRunner().invoke(command, ["-c", str(file)], standalone_mode=False)
        if expected is None:
            assert isinstance(done.exception, OperatorError)
            assert "broker 1: 3.7-IV4; broker 2: 3.8-IV0" in str(done.exception)
            assert not metadata.exists()
            return
        assert done.exit_code == 0, done.exception
        assert f"The metadata.version is {expected}, the {IBP} of {len(brokers)} broker" in done.output
        assert bootstrap_level(read_bootstrap(metadata) or ()) == parse_version(expected).level
    finally:
        for broker in brokers:
            broker.kill()
