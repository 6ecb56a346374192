"""The property files of the drill's brokers; nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.drill.kafka.cluster import KafkaBrokerMode, KafkaCluster
from migrator.parts.kafka import StockKafka


@pytest.mark.lane("test")
@pytest.mark.parametrize(("release", "asked", "said"), [("3.8.1", None, "3.8"), ("3.9.1", "3.6", "3.6")])
def test_brokers_in_zookeeper_mode_speak_the_protocol_of_their_release(
    tmp_path: Path, release: str, asked: str | None, said: str
) -> None:
    """An older release does not know the newest one, and its brokers end."""
    kafka = StockKafka(release, tmp_path)
    cluster = KafkaCluster(kafka, tmp_path, controllers=1, brokers=1, zookeeper="zk", release_version=asked)
    assert cluster.properties_of(1, KafkaBrokerMode.MIGRATING)["inter.broker.protocol.version"] == said
