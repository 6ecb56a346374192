"""`migrator drill --secure`: no port in clear, permissions everywhere, and nothing lost."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from migrator.drill.cluster import MIGRATOR
from migrator.parts.kafka import StockKafka

DRILL_SECONDS = 1500.0
LONG = pytest.mark.lane("test-long")
SMALL = ("--brokers", "2", "--controllers", "1", "--partitions", "30", "--keep")
WHOLE = ("--partitions", "30")
TO_THE_END = ("ZooKeeper mode", "dual-write", "brokers in KRaft mode", "the migration is finished", "the end")
BACK = ("ZooKeeper mode", "dual-write", "back in ZooKeeper mode")
IN_VAIN = ("lost records", "duplicated records", "lost changes", "differences")
WITHOUT_ACCESS = ("intrusions", "ports in clear", "open znodes", "secrets given away", "files open to others")
PASSWORD = re.compile(
    r'password="([^"]+)"|^(?:password\.encoder\.secret|delegation\.token\.secret\.key)=(.+)$', re.MULTILINE
)
KEY = re.compile("-----BEGIN PRIVATE KEY-----\\n.*\\n(.*)\\n")
READ_BY_PEOPLE = {".log", ".jsonl", ".json", ".html", ".txt", ".svg"}


def drilled(directory: Path, *options: str) -> dict[str, Any]:
    """The report of a secured drill that ran to its end."""
    command = [MIGRATOR, "drill", "--secure", "--json", "--dir", str(directory), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DRILL_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report == json.loads((directory / "report.json").read_text())
    assert report["held"] is True
    assert report["secured"]
    assert all(report["totals"][name] == 0 for name in WITHOUT_ACCESS)
    assert report["refused"]["denied"] == report["refused"]["attempts"] > 0
    assert report["refused"]["let in"] == report["refused"]["unproved"] == []
    assert "denied" in (directory / "summary.txt").read_text().splitlines()[0]
    return report


def phases(report: dict[str, Any]) -> tuple[str, ...]:
    """Where the doors were tried."""
    begin = "No intruder gets in: "
    return tuple(step["name"].removeprefix(begin) for step in report["steps"] if step["name"].startswith(begin))


def steps(report: dict[str, Any], begin: str) -> list[dict[str, Any]]:
    return [step for step in report["steps"] if step["name"].startswith(begin)]


@pytest.mark.parametrize(
    ("kafka", "transport"),
    [
        ("none", "grpc"),
        pytest.param("none", "kafka", marks=LONG),
        pytest.param("3.9.1", "grpc", marks=LONG),
        pytest.param("3.9.1", "kafka", marks=LONG),
    ],
)
def test_a_small_one_to_the_end(tmp_path: Path, kafka: str, transport: str) -> None:
    report = drilled(tmp_path, "--kafka", kafka, "--transport", transport, *SMALL)
    assert report["totals"]["lost changes"] == report["totals"]["differences"] == 0
    assert phases(report) == TO_THE_END
    assert all("attempts that were denied" in step["figures"] for step in steps(report, "No intruder"))
    besieged = steps(report, "The quorum waits") + steps(report, "Copy") + steps(report, "Controllers restart")
    assert len(besieged) == 3
    assert all("attempts that were denied" in step["figures"] for step in besieged)
    (compared,) = steps(report, "One znode is corrupted")
    assert compared["figures"]["ports that Spark opened, on loopback"] > 0
    nothing_is_given_away(tmp_path)


def nothing_is_given_away(directory: Path) -> None:
    """As the drill says itself; looked for here with what its own property files and PEM files hold."""
    cluster = directory / "cluster"
    settings = [path.read_text() for path in cluster.rglob("*.properties")]
    planted = {found for text in settings for pair in PASSWORD.findall(text) for found in pair if found}
    planted |= {line for path in cluster.rglob("*.pem") for line in KEY.findall(path.read_text())}
    assert len(planted) > 5
    texts = [path for path in directory.rglob("*") if path.suffix in READ_BY_PEOPLE and "metadata-0" not in str(path)]
    assert {"controller.log", "verify.log", "verify.html", "status.log", "report.json"} <= {path.name for path in texts}
    assert {path.name: text for path in texts for text in planted if text in path.read_text("utf-8", "replace")} == {}


@LONG
@pytest.mark.parametrize("transport", ["grpc", "kafka"])
def test_the_whole_way_with_a_leader_killed(kafka_391: StockKafka, tmp_path: Path, transport: str) -> None:
    options = ("--kill-leader-at", "DualWrite", "--transport", transport)
    report = drilled(tmp_path, "--kafka", kafka_391.version, *WHOLE, *options)
    assert all(report["totals"][name] == 0 for name in IN_VAIN)
    assert phases(report) == TO_THE_END


@LONG
@pytest.mark.parametrize("state", ["MigrationIneligible", "MigrateZkData", "DualWrite"])
def test_the_way_back(kafka_391: StockKafka, tmp_path: Path, state: str) -> None:
    report = drilled(tmp_path, "--kafka", kafka_391.version, *WHOLE, "--rollback-at", state)
    assert report["totals"]["lost records"] == report["totals"]["duplicated records"] == 0
    assert phases(report)[0] == BACK[0]
    assert phases(report)[-1] == BACK[-1]
