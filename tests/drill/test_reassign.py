"""After a migration, three controllers become three others while clients write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from migrator.drill.cluster import MIGRATOR, WAIT_SECONDS, Cluster, ClusterOptions
from migrator.drill.light.cluster import LightCluster
from migrator.drill.probes import all_report, dual_writing, until
from migrator.drill.report import DrillReport
from migrator.drill.scenario.reassign import reassign
from migrator.migration.machine.states import PublicState
from migrator.parts.processes import ChildProcess
from tests.patience import PATIENCE_SECONDS

PARTITIONS = 200
OLD, NEW = {3001, 3002, 3003}, {3004, 3005, 3006}


@pytest.mark.lane("test-all")
async def test_three_controllers_become_three_others_under_changes(tmp_path: Path) -> None:
    cluster = LightCluster(tmp_path, ClusterOptions(PARTITIONS))
    report = DrillReport({})
    try:
        with report.step("the way to Finished"):
            await migrated(cluster, report)
        first = cluster.workload()
        running = asyncio.create_task(first.run())
        await until(cluster, report, "changes", lambda: changed(first.acknowledged.total()), seconds=WAIT_SECONDS)
        first.stop()
        await running
        await first.close()
        old = list(cluster.controllers)
        workload = await reassign(cluster, report, first)
        assert [(step.name, check) for step in report.steps for check in step.checks if not check.held] == []
        assert {controller.node_id for controller in cluster.controllers} == NEW
        assert {controller.node_id for controller in old if controller.runs} == set()
        assert workload.acknowledged.total() > 0
        assert list(workload.ledger.missing_from(cluster.controllers[0].image())) == []
        assert set(cluster.controllers[0].image().cluster.controllers) >= NEW
    finally:
        await cluster.close()


async def migrated(cluster: Cluster, report: DrillReport) -> None:
    """From ZooKeeper to the end, as short as it can be."""
    await cluster.begin(report)
    for controller in cluster.controllers:
        await asyncio.to_thread(controller.format)
        await asyncio.to_thread(controller.start)
    await cluster.migrate_first_brokers(report)
    await cluster.migrate_last_broker(report)
    await until(cluster, report, "dual-write", lambda: dual_writing(cluster), seconds=WAIT_SECONDS)
    await cluster.roll_to_kraft(report)
    for controller in cluster.controllers:
        controller.set_migration(enabled=False)
        await asyncio.to_thread(controller.stop)
        await asyncio.to_thread(controller.start)
    finished = PublicState.FINISHED.label
    await until(cluster, report, "Finished", lambda: all_report(cluster, finished), seconds=WAIT_SECONDS)


async def changed(count: int) -> bool:
    return count > 20


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--reassign", "--rollback-at", "DualWrite"), "--reassign does not go with --rollback-at"),
        (("--rollback-at", "Stock"), "--rollback-at stock needs Kafka's brokers"),
    ],
)
def test_options_that_exclude_each_other(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    words = ["--kafka", "none", *options, "--dir", str(tmp_path / "drill")]
    with ChildProcess("drill", [MIGRATOR, "drill", *words], output=tmp_path / "output") as drill:
        assert drill.wait(timeout_seconds=PATIENCE_SECONDS) == 2
        said = " ".join(drill.output_text().split())
    assert told in said
    assert not (tmp_path / "drill").exists()
