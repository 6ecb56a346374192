"""franz-go's own tests against real brokers on our quorum: nothing fails that does not fail on Kafka's controllers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.drill.kafka.cluster import until
from migrator.parts.kafka import StockKafka
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.peers.support import franz_go
from tests.peers.support.franz_go import SuiteResult
from tests.peers.support.go import find_go
from tests.peers.support.on_our_quorum import BROKERS, start


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """franz-go's tests, compiled."""
    go = find_go()
    if go is None:
        pytest.skip("Go is not installed")
    return franz_go.built(go, tmp_path_factory.mktemp("franz-go"))


def test_all_as_on_kafkas_controllers(
    program: Path, kafka_391: StockKafka, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=BROKERS) as cluster:
        start(cluster)
        ours = all_of_them(program, cluster, tmp_path / "ours")
        cluster.replace_controllers_by_stock()
        until("all is in sync on Kafka's controllers", Admin(cluster.bootstrap, BROKERS).in_sync)
        stock = all_of_them(program, cluster, tmp_path / "stock")
        for name, result in (("", ours), ("stock_", stock)):
            record_property(f"{name}passed", len(result.passed))
            record_property(f"{name}failed", len(result.failed))
            record_property(f"{name}skipped", len(result.skipped))
        assert ours.failed <= stock.failed
        assert len(ours.passed) >= 35


def all_of_them(program: Path, cluster: KafkaCluster, directory: Path) -> SuiteResult:
    directory.mkdir()
    return franz_go.run(program, cluster.bootstrap, directory, tests=".", seconds=900, records=20_000)
