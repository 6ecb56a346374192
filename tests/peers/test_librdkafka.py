"""librdkafka's own tests against real brokers on our quorum: nothing fails that passes on Kafka's controllers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.drill.kafka.cluster import until
from migrator.parts.kafka import StockKafka
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.peers.support import librdkafka
from tests.peers.support.franz_go import SuiteResult
from tests.peers.support.on_our_quorum import BROKERS, start

pytestmark = pytest.mark.lane("test-long")
AS_ITS_README_WANTS = {
    "num.partitions": "4",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}
SUITES = {
    "admin": ("0081", "0107", "0069", "0044"),
    "transactions": ("0103", "0129", "0090"),
    "groups": ("0018", "0019", "0030", "0045", "0050", "0051", "0102", "0113", "0118", "0130"),
}
SECONDS = 300.0


@pytest.mark.parametrize("suite", SUITES)
def test_as_on_kafkas_controllers(
    suite: str, kafka_391: StockKafka, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if not librdkafka.can_be_built():
        pytest.skip("librdkafka's tests come from the source package of Debian 12, and need a compiler")
    tests = librdkafka.build()

    def run(where: str) -> SuiteResult:
        directory = tmp_path / where
        directory.mkdir()
        numbers = SUITES[suite]
        return librdkafka.run(tests, cluster.bootstrap, directory, numbers=numbers, seconds=SECONDS)

    with KafkaCluster(
        kafka_391, tmp_path, controllers=1, brokers=BROKERS, broker_properties=AS_ITS_README_WANTS
    ) as cluster:  # fmt: skip
        start(cluster)
        ours = run("ours")
        cluster.replace_controllers_by_stock()
        until("all is in sync on Kafka's controllers", Admin(cluster.bootstrap, BROKERS).in_sync)
        stock = run("stock")
        for name, result in (("", ours), ("stock_", stock)):
            record_property(f"{name}passed", len(result.passed))
            record_property(f"{name}failed", len(result.failed))
            record_property(f"{name}skipped", len(result.skipped))
        assert ours.failed <= stock.failed
        assert ours.passed
