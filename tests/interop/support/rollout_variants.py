"""Rollouts on the same desk over ssh to each host, and with Kafka's own controllers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from migrator.drill.kafka.cluster import BROKER_JVM
from tests.interop.support.cluster import KafkaCluster
from tests.interop.support.rollout import RolloutDesk
from tests.rollout.support.sshd import LoopbackSshd

PROCESS = f"{{*ssh}} -- {{host}} {shlex.quote(sys.executable)} -m migrator.rollout.executors.local_process "
MARKS = "kafka.Kafka,controller"


class SshDesk(RolloutDesk):
    """Every node is on a host that only ssh reaches: files, commands, stop and start go over it."""

    def __init__(self, cluster: KafkaCluster, directory: Path, sshd: LoopbackSshd) -> None:
        super().__init__(cluster, directory)
        self._sshd = sshd

    def _content(self) -> dict[str, Any]:
        content = super()._content()
        content["executors"]["default"] = {
            "preset": "ssh",
            "variables": {"ssh": self._sshd.ssh, "marks": MARKS, "output": ""},
            "commands": {
                "stop": PROCESS + "stop {path!q} {marks!q}",
                "start": PROCESS + "start {path!q} {marks!q} {output!q} {*command!q}",
                "incarnation": PROCESS + "incarnation {path!q} {marks!q}",
            },
        }
        for node in (*content["controllers"]["nodes"], *content["brokers"]["nodes"]):
            node["host"] = "127.0.0.1"
        return content


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
