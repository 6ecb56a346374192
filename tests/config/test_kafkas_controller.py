"""Property files with which our controller starts, and Kafka's own does not: they are named before ours is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.kafkas_controller import refused_by_kafka
from migrator.config.load import load_settings
from migrator.config.properties import parse_properties, read_decoded
from migrator.config.property_edits import file_of
from migrator.errors import OperatorError
from migrator.handover.files import StockFile
from migrator.parts.kafka import StockKafka
from migrator.rollout.target_release import parse_target

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
GOOD = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093,OTHER://localhost:9094",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT,THIRD:PLAINTEXT",
}
NAMES = "controller.listener.names"
REFUSED = [
    ({NAMES: "CONTROLLER,OTHER,THIRD"}, NAMES),
    ({NAMES: "CONTROLLER,other"}, NAMES),
    ({NAMES: "CONTROLLER, OTHER"}, NAMES),
    ({NAMES: "CONTROLLER,OTHER", "connections.max.idle.ms": "100"}, "connections.max.idle.ms"),
    ({NAMES: "CONTROLLER,OTHER", "max.connections.per.ip": "0"}, "max.connections.per.ip"),
]
TAKEN = [
    {NAMES: "CONTROLLER,OTHER"},
    {NAMES: "CONTROLLER,OTHER  "},
    {NAMES: "CONTROLLER,OTHER", "connections.max.idle.ms": "-1"},
    {NAMES: "CONTROLLER,OTHER", "max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:9"},
]


def ours(folder: Path, more: dict[str, str]) -> StockFile:
    """With which our controller starts."""
    path = folder / "controller.properties"
    path.write_text(file_of(GOOD | {"log.dirs": str(folder / "data")} | more))
    load_settings(path)
    return StockFile(path, parse_target("3.9.1"))


@pytest.mark.parametrize(("more", "key"), REFUSED)
def test_a_setting_that_kafka_refuses_is_named(tmp_path: Path, more: dict[str, str], key: str) -> None:
    file = ours(tmp_path, more)
    with pytest.raises(OperatorError, match="Kafka does not start") as raised:
        file.check()
    assert raised.value.where.endswith(f": {key}")
    assert raised.value.remedy


@pytest.mark.parametrize("more", TAKEN)
def test_what_kafka_takes_is_not_named(tmp_path: Path, more: dict[str, str]) -> None:
    ours(tmp_path, more).check()


def test_a_value_in_another_file_is_taken_for_a_good_one() -> None:
    assert not list(refused_by_kafka(GOOD | {"listeners": "${file:/etc/kafka/hosts:listeners}"}))
    assert not list(refused_by_kafka({NAMES: "CONTROLLER"}))


@pytest.mark.lane("test-all")
@pytest.mark.parametrize(("more", "taken"), [*((more, False) for more, _ in REFUSED), (TAKEN[2], True)])
def test_kafka_judges_likewise(tmp_path: Path, kafka_391: StockKafka, more: dict[str, str], *, taken: bool) -> None:
    file = ours(tmp_path, more)
    file.write()
    assert bool(list(refused_by_kafka(_parsed(file)))) is not taken
    if taken:
        assert "Formatting" in kafka_391.format(file.path, CLUSTER_ID)
    else:
        with pytest.raises(OperatorError, match="StorageTool ended with exit code 1"):
            kafka_391.format(file.path, CLUSTER_ID)


def _parsed(file: StockFile) -> dict[str, str]:
    return parse_properties(read_decoded(file.path))
