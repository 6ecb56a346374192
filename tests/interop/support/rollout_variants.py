"""A rollout with Kafka's own controllers, on the same desk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from migrator.drill.kafka.cluster import BROKER_JVM
from tests.interop.support.cluster import KafkaCluster
from tests.interop.support.rollout import RolloutDesk


class StockDesk(RolloutDesk):
    """Kafka's own controllers migrate the cluster."""

    def __init__(self, cluster: KafkaCluster, directory: Path) -> None:
        super().__init__(cluster, directory, handover=False)
        for controller in cluster.controllers:
            controller.properties = controller.stock_properties

    def _content(self) -> dict[str, Any]:
        content = super()._content()
        content["steps"]["verify"] = False  # tests/interop/test_proof_on_stock.py is about that
        kafka = self.cluster.kafka
        words = ("format", "--ignore-formatted", "-t", "{cluster_id}", "-c", "{path}", "-r", "3.9")
        content["controllers"] |= {
            "kind": "stock",
            "format": kafka.command("kafka.tools.StorageTool", *words, directory=self.directory, jvm=BROKER_JVM),
            "nodes": [
                {"id": node["id"], "properties": node["properties"], "variables": node["stock"]["variables"]}
                for node in content["controllers"]["nodes"]
            ],
        }
        return content
