"""A rehearsal, and behind it the migration that it forecast: the same ZooKeeper, the same machine, light brokers that
only note what they hear.

The migration is looked at from outside, as in `tests.bench.migration`.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from migrator.drill.cluster import MIGRATOR, ClusterOptions, zookeeper_client
from migrator.drill.light.broker import LightBrokerMode
from migrator.drill.probes import dual_writing, leader_of, until
from migrator.drill.report import DrillReport
from migrator.parts.processes import run_to_end
from migrator.parts.usage import ProcessorMeter
from migrator.values import value
from tests.bench.observers import ZooKeeperWatch
from tests.bench.peers import BenchCluster

UP_SECONDS = 90.0
PARTITIONS_PER_SECOND_MIN = 1_000
COMMAND_SECONDS = 300.0
TITLES = {
    "rehearsal": "rehearsal, s",
    "copy_forecast": "copy: forecast, s",
    "copy": "copy, s",
    "dual_write_forecast": "to dual-write: forecast, s",
    "dual_write_error": "its error bound, s",
    "dual_write": "to dual-write, s",
    "memory_mb": "peak memory, MB",
    "disk_mb": "log and snapshot, MB",
    "others_rehearsal": "others' share of the processors: rehearsal, %",
    "others_migration": "the same: migration, %",
}


@value
class Rehearsed:
    """``report`` is what `migrator rehearse --json` printed; ``figures`` by the keys of `TITLES`. ``copied``
    counts the partitions that the migration copied."""

    partitions: int
    report: dict[str, Any]
    figures: dict[str, float]
    copied: int


async def rehearse_and_migrate(directory: Path, partitions: int, *, kafka: str = "3.9.1") -> Rehearsed:
    """On a cluster of its own, which ends with it.

    :param kafka: release that has to load the rehearsed log, or ``none``.
    """
    cluster = BenchCluster(directory, ClusterOptions(partitions))
    patience = UP_SECONDS + partitions / PARTITIONS_PER_SECOND_MIN
    try:
        await asyncio.to_thread(cluster.fill)
        late = cluster.brokers[-1]
        for broker in cluster.brokers[:-1]:
            await broker.start()
        await late.start(LightBrokerMode.ZOOKEEPER)
        for controller in cluster.controllers:
            await asyncio.to_thread(controller.format)
        meter = ProcessorMeter([])
        begin = time.monotonic()
        report = await asyncio.to_thread(_rehearse, cluster, directory / "rehearsal", kafka)
        figures = {"rehearsal": time.monotonic() - begin, "others_rehearsal": 100 * meter.others_share}
        for controller in cluster.controllers:
            await asyncio.to_thread(controller.start)
        story = DrillReport({})

        async def registered() -> bool:
            return all(broker.epoch >= 0 for broker in cluster.brokers[:-1])

        await until(cluster, story, "the first brokers are registered", registered, seconds=UP_SECONDS)
        with zookeeper_client(cluster.zookeeper_hosts) as client:
            watch = await asyncio.to_thread(ZooKeeperWatch, client)
            await late.stop()
            await late.start()
            while late.epoch < 0:
                await asyncio.sleep(0.01)
            meter = ProcessorMeter([])
            ready = time.monotonic()
            await until(cluster, story, "dual-write", lambda: dual_writing(cluster), seconds=patience)
            figures["dual_write"] = time.monotonic() - ready
            figures["others_migration"] = 100 * meter.others_share
            figures["copy"] = (watch.copied_at or 0.0) - watch.claims[0].at
        topics = (await leader_of(cluster)).image().topics.by_id.values()
        copied = sum(len(topic.partitions) for topic in topics)
    finally:
        await cluster.close()
    forecast = report["forecast"]
    figures |= {
        "copy_forecast": forecast["copy"]["seconds"],
        "dual_write_forecast": forecast["dual_write"]["seconds"],
        "dual_write_error": forecast["dual_write"]["error"],
        "memory_mb": report["peak_memory_bytes"] / 1e6,
        "disk_mb": report["disk_bytes"] / 1e6,
    }
    return Rehearsed(partitions, report, figures, copied)


def _rehearse(cluster: BenchCluster, out: Path, kafka: str) -> dict[str, Any]:
    """The command, as an operator types it."""
    options = ["-c", str(cluster.controllers[0].property_file), "--out", str(out), "--no-spark", "--kafka", kafka]
    text = run_to_end("rehearse", [MIGRATOR, "rehearse", "--json", *options], timeout_seconds=COMMAND_SECONDS)
    report: dict[str, Any] = json.loads(text[text.index("{") :])
    return report


def run(sizes: list[int], directory: Path, console: Console) -> list[Rehearsed]:
    """One size after the other."""
    results = []
    for partitions in sizes:
        console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {partitions:,} partitions")
        results.append(asyncio.run(rehearse_and_migrate(directory / f"{partitions}", partitions)))
        console.print(f"[dim]{json.dumps(results[-1].figures | results[-1].report['seconds'])}[/dim]")
    return results


def table(results: list[Rehearsed]) -> Table:
    """Figures by size."""
    shown = Table("figure", *(f"{result.partitions:,}" for result in results))
    for column in shown.columns[1:]:
        column.justify = "right"
    for key, title in TITLES.items():
        shown.add_row(title, *(f"{result.figures[key]:,.1f}" for result in results))
    for phase in results[-1].report["seconds"]:
        shown.add_row(f"rehearsal's {phase}, s", *(f"{result.report['seconds'][phase]:,.1f}" for result in results))
    return shown
