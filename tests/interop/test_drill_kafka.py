"""`migrator drill` on real brokers, as people run it: to the end, and back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from migrator.drill.cluster import MIGRATOR
from migrator.parts.kafka import StockKafka

DRILL_SECONDS = 900.0
PARTITIONS = "30"
LONG = pytest.mark.lane("test-long")
BEFORE_THE_END = ("MigrationIneligible", "MigrateZkData", "DualWrite")
SMALL = ("--brokers", "2", "--controllers", "1", "--transport", "kafka")
SIZES = {"small": SMALL, "usual": (), "of 3.8": (*SMALL, "--kafka", "3.8.1")}
KILLS = [
    pytest.param("DualWrite", "grpc", "2", marks=LONG),
    *(pytest.param(state, "grpc", "3", marks=LONG) for state in (*BEFORE_THE_END, "Finished")),
    *(pytest.param(state, "kafka", "3", marks=LONG) for state in (*BEFORE_THE_END, "Finished")),
]
ROLLBACKS = [
    *(pytest.param(state, "small", marks=LONG) for state in ("DualWrite", "Finished", "stock")),
    pytest.param("Finished", "of 3.8", marks=LONG),
    *(pytest.param(state, "usual", marks=LONG) for state in BEFORE_THE_END),
]
TRAFFIC = {"produce", "consume", "commit", "acknowledged", "read", "transactions ended"}


def drilled(directory: Path, *options: str) -> dict[str, Any]:
    """The report of a drill that ran to its end."""
    command = [MIGRATOR, "drill", "--kafka", "3.9.1", "--partitions", PARTITIONS, "--dir", str(directory), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DRILL_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost records" in done.stdout.replace("\n", " ")
    report: dict[str, Any] = json.loads((directory / "report.json").read_text())
    assert report["held"] is True
    assert report["options"]["kafka"] == ("3.8.1" if "3.8.1" in options else "3.9.1")
    assert report["totals"]["lost records"] == report["totals"]["duplicated records"] == 0
    for step in report["steps"][1:-1]:
        assert step["traffic"].keys() == TRAFFIC, step["name"]
    read_back = report["steps"][-1]["figures"]
    assert read_back["records acknowledged"] == read_back["records read back"] == read_back["records sent"] > 1000
    assert read_back["transactions committed"] > 10
    assert read_back["transactions aborted"] > 2
    return report


@pytest.mark.parametrize(("state", "transport", "brokers"), KILLS)
def test_to_the_end_with_a_leader_killed_on_the_way(
    kafka_391: StockKafka, tmp_path: Path, state: str, transport: str, brokers: str
) -> None:
    report = drilled(tmp_path, "--kill-leader-at", state, "--transport", transport, "--brokers", brokers)
    assert report["totals"]["differences"] == report["totals"]["lost changes"] == 0
    names = [step["name"] for step in report["steps"]]
    assert names[1] == "The plan of the rollout"
    assert {"Soak: both sides are written, and stay equal", "The archive of the rollout is whole"} < set(names)
    assert f"Stock Kafka {kafka_391.version} controllers take over" in names
    assert [phase["phase"] for phase in report["phases"]][-1] == "last broker registered to dual-write"
    assert names[-1] == "Every acknowledged record is read back once"


@pytest.mark.parametrize(("state", "size"), ROLLBACKS)
def test_back_to_a_zookeeper_controller_that_works(
    kafka_391: StockKafka, tmp_path: Path, state: str, size: str
) -> None:
    report = drilled(tmp_path, "--rollback-at", state, *SIZES[size])
    names = [step["name"] for step in report["steps"]]
    assert "The ZooKeeper controller elects, creates, reassigns and deletes" in names
    assert ("A forgotten quorum wakes up and keeps away" in names) is (state in ("DualWrite", "Finished", "stock"))
    assert ("Changes of every kind after the end" in names) is (state in ("Finished", "stock"))
    assert ("A rollback without a reopening is refused" in names) is (state == "Finished")
    assert ("This program's controllers take over again" in names) is (state == "stock")
    assert report["totals"].get("lost changes", 0) == 0


def an_inventory(directory: Path, protocol: str, *, brokers: int, controllers: int) -> str:
    """The path of an operator's inventory: brokers on three racks, each listener with the protocol."""
    voters = ",".join(f"{3001 + at}@c{at}.example.com:9093" for at in range(controllers))
    content = {
        "cluster": "payments",
        "access": "operator.properties",
        "controllers": {
            "nodes": [
                {"id": 3001 + at, "host": f"c{at}.example.com", "properties": "/etc/kafka/c.properties"}
                for at in range(controllers)
            ]
        },
        "brokers": {
            "roll": "rack",
            "settings": {"controller.listener.names": "QUORUM", "controller.quorum.voters": voters},
            "nodes": [
                {
                    "id": 11 + at,
                    "rack": "abc"[at * 3 // brokers],
                    "host": f"broker-{at}.example.com",
                    "properties": "/etc/kafka/server.properties",
                }
                for at in range(brokers)
            ],
        },
        "executors": {"default": {"preset": "ssh-systemd"}},
    }
    (directory / "inventory.yaml").write_text(json.dumps(content))
    (directory / "operator.properties").write_text(
        "controller.listener.names=QUORUM\ninter.broker.listener.name=INSIDE\n"
        f"listener.security.protocol.map=QUORUM:{protocol},INSIDE:{protocol},OUTSIDE:{protocol}\n"
    )
    return str(directory / "inventory.yaml")


@LONG
@pytest.mark.parametrize("back", [(), ("--rollback-at", "DualWrite")], ids=["forward", "back"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_the_shape_of_an_inventory(kafka_391: StockKafka, tmp_path: Path, protocol: str, back: tuple[str, ...]) -> None:
    """Racks are restarted as a whole."""
    inventory = an_inventory(tmp_path, protocol, brokers=6, controllers=1)
    report = drilled(tmp_path / "drill", "--inventory", inventory, *back)
    assert report["steps"][0]["figures"]["as in the inventory of payments"] == "1 controller, 6 brokers, 3 racks"


@LONG
def test_voters_move_after_a_migration_by_an_inventory(kafka_391: StockKafka, tmp_path: Path) -> None:
    inventory = an_inventory(tmp_path, "SASL_SSL", brokers=3, controllers=3)
    drilled(tmp_path / "drill", "--inventory", inventory, "--reassign")
