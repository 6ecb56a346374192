"""A light broker from Kafka's property file, as a process: who it is, how it runs, and what it tells who asks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.config.load import typed_settings
from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.light.broker import LightBrokerMode
from migrator.errors import OperatorError
from migrator.log.meta_properties import MetaProperties, write_meta_properties
from migrator.parts.processes import ChildProcess, free_port
from migrator.records.metadata import Endpoint
from migrator.rollout.plan.modes import watched_keys
from migrator.rollout.ports import Some
from migrator.rollout.seeing.brokers import BrokerEyes, PartitionList, SettingsAnswer
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.kit.light_broker import mode_of, options_of

SECRET = "s3cr3t-of-the-broker"


def written(directory: Path, port: int, *lines: str) -> Path:
    data = directory / "data"
    data.mkdir()
    write_meta_properties(data, MetaProperties(CLUSTER_ID, 7))
    file = directory / "server.properties"
    file.write_text("\n".join((f"log.dirs={data}", f"listeners=PLAINTEXT://127.0.0.1:{port}", *lines)))
    return file


@pytest.mark.parametrize(
    ("file", "mode"),
    [
        ({}, LightBrokerMode.ZOOKEEPER),
        ({"zookeeper.metadata.migration.enable": "true"}, LightBrokerMode.MIGRATING),
        ({"process.roles": "broker", "zookeeper.metadata.migration.enable": "true"}, LightBrokerMode.KRAFT),
    ],
)
def test_the_file_says_how_it_runs(file: dict[str, str], mode: LightBrokerMode) -> None:
    assert mode_of(file) is mode


def test_the_file_says_who_it_is_and_where_the_others_are(tmp_path: Path) -> None:
    file = written(tmp_path, 9092, "node.id=7", "broker.rack=north", "controller.quorum.voters=1@a:93,2@b:94")
    options, port = options_of(file)
    assert (options.broker_id, options.rack, options.cluster_id, port) == (7, "north", CLUSTER_ID, 9092)
    assert options.controllers == [("a", 93), ("b", 94)]
    assert options.life != options_of(file)[0].life, "the quorum tells a restart by it"


@pytest.mark.parametrize("line", ["", "broker.id=seven"])
def test_a_file_that_lacks_something_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(OperatorError, match="a light broker cannot run with it"):
        options_of(written(tmp_path, 9092, line))


def test_it_tells_what_it_has_read_and_how_partitions_are(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.ensure_path(paths.BROKER_IDS)
    zookeeper_client.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[7,8]}}', makepath=True)
    state = b'{"version":1,"leader":8,"leader_epoch":3,"controller_epoch":1,"isr":[7,8]}'
    zookeeper_client.create(paths.partition_state("t", 0), state, makepath=True)
    port = free_port()
    connect, secret = f"zookeeper.connect={zookeeper.hosts}", f"zookeeper.ssl.keystore.password={SECRET}"
    file = written(tmp_path, port, "broker.id=7", connect, secret)
    keys = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@h:1",
        "listeners": "CONTROLLER://:1",
        "log.dirs": str(tmp_path),
    }
    eyes = BrokerEyes(typed_settings(keys, "access"), watched=watched_keys({}))
    ends = (Endpoint("PLAINTEXT", "127.0.0.1", port, 0),)
    command = [sys.executable, "-m", "tests.kit.light_broker", str(file)]
    with ChildProcess("broker", command, output=tmp_path / "output") as process:
        process.wait_until(
            lambda: zookeeper_client.get_children(paths.BROKER_IDS) == ["7"], "it is registered", timeout_seconds=60
        )
        answer = asyncio.run(eyes.ask(7, ends))
        assert isinstance(answer, SettingsAnswer)
        assert answer.file == {"zookeeper.connect": zookeeper.hosts, "zookeeper.ssl.keystore.password": None}
        listed = asyncio.run(eyes.partitions(ends))
        assert isinstance(listed, PartitionList)
        partitions = listed.seen({}, 1)
        assert (partitions.under_replicated, partitions.offline) == (Some(1, ("t-0",)), Some())
        assert process.stop() == 0
    assert SECRET not in (tmp_path / "output").read_text()
