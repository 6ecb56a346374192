"""The drill's own steps, on a stock quorum: what the drill expects of us, Kafka's controllers do as well."""

from __future__ import annotations

from pathlib import Path

from migrator.drill.cluster import ClusterOptions
from migrator.drill.report import DrillReport
from migrator.drill.scenario.steps import COPYING, DrillOptions, run_scenario
from migrator.parts.kafka import StockKafka
from tests.drill.support.stock_controllers import StockQuorumCluster


async def test_rollback_from_the_middle_of_the_copy(kafka_391: StockKafka, tmp_path: Path) -> None:
    options = DrillOptions(ClusterOptions(partitions=100, controllers=1, transport="kafka"), rollback_at=COPYING)
    report = DrillReport({})
    cluster = StockQuorumCluster(kafka_391, tmp_path, options.cluster)
    try:
        await run_scenario(cluster, options, report)
    finally:
        await cluster.close()
    assert report.held, report.summary()
