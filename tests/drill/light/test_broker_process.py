"""Light brokers as a process: they stand in ZooKeeper until SIGTERM, and report when they end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kazoo.client import KazooClient

from migrator.parts.processes import ChildProcess, free_port
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.patience import PATIENCE_SECONDS


def test_it_registers_waits_and_leaves(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.ensure_path(paths.BROKER_IDS)
    command = [
        *(sys.executable, "-m", "migrator.drill.light.broker_process", "--zookeeper", zookeeper.hosts),
        *("--controllers", f"127.0.0.1:{free_port()}", "--cluster-id", "XkYOzJkUQQ-rHVYhnWGvTg", "--brokers", "1,2"),
    ]
    with ChildProcess("brokers", command, output=tmp_path / "output") as process:
        process.wait_until(
            lambda: sorted(zookeeper_client.get_children(paths.BROKER_IDS)) == ["1", "2"],
            "both brokers are registered",
            timeout_seconds=PATIENCE_SECONDS,
        )
        assert process.stop() == 0
        reports = [json.loads(line) for line in process.output_text().splitlines() if line.startswith("{")]
    assert [report["broker_id"] for report in reports] == [1, 2]
    assert all(report["epoch"] == -1 and report["violations"] == [] for report in reports)
    assert zookeeper_client.get_children(paths.BROKER_IDS) == []
