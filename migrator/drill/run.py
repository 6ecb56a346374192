"""Runs a drill from an empty directory to a report, and leaves nothing behind, also after Ctrl-C."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

from confluent_kafka import KafkaException
from kazoo.exceptions import KazooException

from migrator.drill.light_cluster import LightCluster
from migrator.drill.real_cluster import RealCluster
from migrator.drill.report import DrillFailedError, Report
from migrator.drill.scenario import DrillOptions, run_scenario
from migrator.errors import MigratorError, OperatorError
from migrator.parts.kafka import StockKafka

DATA = "cluster"
"""Folder of what the cluster leaves, below the drill's directory; the report lies beside it."""


def run_drill(
    options: DrillOptions, report: Report, directory: Path, *, keep: bool, kafka: StockKafka | None = None
) -> None:
    """Run it, and write the report to ``directory``.

    :param keep: leave the cluster's directories also when everything held.
    :param kafka: the release of the brokers; light brokers without one.
    :raises OperatorError: the directory holds the data of another drill.
    :raises KeyboardInterrupt: after everything that ran was ended.
    """
    data = directory / DATA
    if data.exists():
        raise OperatorError(
            "an earlier drill left its data there", where=str(data), remedy="Delete it, or name another --dir"
        )
    data.mkdir(mode=0o700, parents=True)
    try:
        asyncio.run(_run(options, report, data, kafka))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        report.write(directory)
    if report.held and not keep:
        shutil.rmtree(data)


async def _run(options: DrillOptions, report: Report, data: Path, kafka: StockKafka | None) -> None:
    task = asyncio.current_task()
    if task is not None:  # SIGTERM as Ctrl-C
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    cluster = LightCluster(data, options.cluster) if kafka is None else RealCluster(data, options.cluster, kafka)
    report.secured = cluster.security.secured
    try:
        await run_scenario(cluster, options, report)
    except (DrillFailedError, MigratorError, KazooException, KafkaException, TimeoutError, OSError) as error:
        report.failure = f"{type(error).__name__}: {error}" if not isinstance(error, DrillFailedError) else str(error)
    except asyncio.CancelledError:
        report.failure = "interrupted"
        raise
    finally:
        await cluster.close()
