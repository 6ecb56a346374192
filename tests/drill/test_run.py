"""A drill that is interrupted ends everything it has started, and still writes its report."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from migrator.drill.cluster import MIGRATOR
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import ChildProcess, free_port, port_is_open
from tests.patience import PATIENCE_SECONDS

HEARS_OF_SIGHUP = (
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
"""The shell of the tests may ignore it (nohup), and then a drill ignores it, too."""


def test_a_drill_with_light_brokers_is_interrupted(tmp_path: Path) -> None:
    report = interrupted(tmp_path, signal.SIGHUP, "--kafka", "none", "--partitions", "50")
    assert report["options"]["kafka"] == "none"


def test_one_with_real_brokers_has_the_shape_of_an_inventory(kafka_391: StockKafka, tmp_path: Path) -> None:
    inventory, mark = an_inventory(tmp_path)
    options = ("--kafka", kafka_391.version, "--partitions", "20", "--inventory", str(inventory))
    report = interrupted(tmp_path, signal.SIGINT, *options)
    assert report["options"]["kafka"] == kafka_391.version
    assert report["options"]["cluster"]["partitions"] == 20
    cluster = tmp_path / "drill" / "cluster"
    broker = (cluster / "broker-12" / "node.properties").read_text()
    assert "broker.rack=b" in broker
    assert "INSIDE:SASL_SSL" in broker
    rehearsed = (cluster / "rollout" / "inventory.yaml").read_text()
    assert "kafka-b" in rehearsed
    assert "example.com" not in rehearsed
    assert not mark.exists()


def test_light_brokers_stand_in_for_a_kafka_that_cannot_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unreachable(tmp_path / "cache", monkeypatch)
    report = interrupted(tmp_path, signal.SIGTERM)
    assert report["options"]["kafka"] == "none"
    assert report["options"]["cluster"]["partitions"] == 2000
    said = (tmp_path / "output").read_text().replace("\n", " ")
    assert "Apache Kafka 3.9.1 cannot be fetched: the drill continues with light brokers" in said
    assert "Drill with light brokers instead of Apache Kafka" in said
    assert report["brokers"]["kind"] == "light"


def test_a_kafka_that_was_asked_for_and_cannot_be_fetched_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unreachable(tmp_path / "cache", monkeypatch)
    command = [MIGRATOR, "drill", "--kafka", "3.9.1", "--dir", str(tmp_path / "drill")]
    with ChildProcess("drill", command, output=tmp_path / "output") as drill:
        assert drill.wait(timeout_seconds=PATIENCE_SECONDS) == 2
        assert "Connect this machine" in drill.output_text().replace("\n", " ")
    assert not (tmp_path / "drill").exists()


def an_inventory(directory: Path) -> tuple[Path, Path]:
    """An operator's inventory; and a file that its executor makes, if it is ever run."""
    mark = directory / "touched"
    touch = f"touch {mark} {mark}-{{name}}"
    actions = ("read", "write", "stop", "start", "restart", "incarnation", "run")
    content = {
        "cluster": "payments",
        "access": "operator.properties",
        "controllers": {"nodes": [{"id": 3001, "host": "c1.example.com", "properties": "/etc/kafka/c.properties"}]},
        "brokers": {
            "roll": "rack",
            "settings": {"controller.listener.names": "QUORUM", "controller.quorum.voters": "3001@c1.example.com:9093"},
            "controller_protocol": "SSL",
            "nodes": [
                {
                    "id": number, "name": f"kafka-{rack}", "rack": rack, "host": f"{rack}.example.com",
                    "properties": "/etc/kafka/server.properties",
                }
                for number, rack in ((11, "a"), (12, "b"))
            ],
        },
        "executors": {"default": {"preset": "template", "commands": dict.fromkeys(actions, touch)}},
    }  # fmt: skip
    (directory / "inventory.yaml").write_text(yaml.safe_dump(content))
    (directory / "operator.properties").write_text(
        "zookeeper.ssl.client.enable=true\ncontroller.listener.names=QUORUM\ninter.broker.listener.name=INSIDE\n"
        "listener.security.protocol.map=QUORUM:SSL,INSIDE:SASL_SSL,OUTSIDE:PLAINTEXT\n"
    )
    return directory / "inventory.yaml", mark


def make_unreachable(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and a network that refuses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={free_port()}")


def interrupted(tmp_path: Path, number: signal.Signals, *options: str) -> dict[str, Any]:
    """The report of a drill that is interrupted when a controller runs, and that leaves nothing running."""
    directory = tmp_path / "drill"
    command = [sys.executable, "-c", HEARS_OF_SIGHUP, MIGRATOR, "drill", "--dir", str(directory), *options]
    with ChildProcess("drill", command, output=tmp_path / "output") as drill:
        controller = directory / "cluster" / "controller-3001" / "controller.log"
        drill.wait_until(controller.exists, "a controller process", timeout_seconds=PATIENCE_SECONDS)
        drill.send(number)
        assert drill.wait(timeout_seconds=PATIENCE_SECONDS) == 130
    configuration = (directory / "cluster" / "zookeeper" / "zoo.cfg").read_text()
    port = re.search(r"(?i)clientPort=([0-9]+)", configuration)
    assert port is not None
    assert not port_is_open(int(port.group(1)))
    report: dict[str, Any] = json.loads((directory / "report.json").read_text())
    assert report["held"] is False
    assert report["outcome"] == "interrupted"
    assert report["failure"] == report["remedy"] == ""
    said = (tmp_path / "output").read_text().replace("\n", " ")
    assert "Interrupted after" in said
    assert str(directory / "cluster") in said
    return report


def test_a_directory_with_an_earlier_drill_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    command = [MIGRATOR, "drill", "--kafka", "none", "--dir", str(tmp_path)]
    with ChildProcess("drill", command, output=tmp_path / "output") as drill:
        assert drill.wait(timeout_seconds=PATIENCE_SECONDS) == 2
        assert "an earlier drill left its data there" in drill.output_text().replace("\n", " ")
