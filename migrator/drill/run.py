"""Runs a drill from an empty directory to a report, and leaves nothing behind, also after Ctrl-C.

`migrator drill` calls `run_drill`. It makes the cluster, runs the scenario and writes the report, whatever happened.
Processes have ended when it returns. Data is kept only after a failure or by order; only this user can read it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from kazoo.exceptions import KazooException

from migrator.drill.cluster import Cluster
from migrator.drill.doors.every_door import MAX_EXAMPLES
from migrator.drill.doors.leaks import given_away, open_to_others, secrets_of
from migrator.drill.kafka.real_cluster import RealCluster
from migrator.drill.light.cluster import LightCluster
from migrator.drill.place import made
from migrator.drill.report import DATA, DrillFailedError, DrillReport
from migrator.drill.scenario.steps import DrillOptions, run_scenario
from migrator.drill.security.protection import Secured
from migrator.drill.zookeeper_place import ClaimedPlace
from migrator.errors import InvariantViolation, MigratorError, OperatorError
from migrator.observe.printable import json_text
from migrator.parts.kafka import StockKafka


def run_drill(
    options: DrillOptions, report: DrillReport, directory: Path, *, keep: bool, kafka: StockKafka | None = None
) -> None:
    """Run it, and write the report to ``directory``.

    :param keep: keep the cluster's directories, also when every check held, and its znodes in an outside ZooKeeper.
    :param kafka: the release of the brokers; light brokers without one.
    :raises OperatorError: the directory cannot be made or holds the data of another drill, or the outside ZooKeeper
        cannot be used.
    :raises KeyboardInterrupt: after all processes have ended.
    """
    data = directory / DATA
    outside = options.cluster.outside
    with made(directory) as forget:
        try:
            claimed = None if outside is None else ClaimedPlace(outside)
        except BaseException:
            forget()
            raise
        try:
            with _for_ourselves_alone(), _logged_to(data / "drill.log"):
                asyncio.run(_run(options, report, data, kafka))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            if claimed is not None and not keep:
                _give_back(claimed, report)
            report.write(directory)
        if report.held and not keep:
            shutil.rmtree(data)


def _give_back(claimed: ClaimedPlace, report: DrillReport) -> None:
    """Give the outside ZooKeeper back, when no process of the drill runs any more."""
    report.wait_for(f"{claimed.place.hosts} is left as it was")
    try:
        claimed.give_back()
    except OperatorError as error:
        report.failure = ". ".join(filter(None, (report.failure, str(error))))
    report.wait_for("")


@contextmanager
def _for_ourselves_alone() -> Iterator[None]:
    """Within the block, files of this process and its children can be read by no other user."""
    before = os.umask(stat.S_IRWXG | stat.S_IRWXO)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Write the log of this process (also of light brokers) to a file; on the terminal it would disturb the report."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


async def _run(options: DrillOptions, report: DrillReport, data: Path, kafka: StockKafka | None) -> None:
    cluster = LightCluster(data, options.cluster) if kafka is None else RealCluster(data, options.cluster, kafka)
    report.secured = cluster.security.secured
    try:
        await run_scenario(cluster, options, report)
    except InvariantViolation:  # a defect of this process, and no failed check
        raise
    except (DrillFailedError, MigratorError, KazooException, KafkaException, TimeoutError, OSError) as error:
        report.failure = f"{type(error).__name__}: {error}" if not isinstance(error, DrillFailedError) else str(error)
    except asyncio.CancelledError:
        report.interrupted = True
        raise
    finally:
        await cluster.close()
    if isinstance(cluster.security, Secured) and options.cluster.secure and not report.failure:
        await asyncio.to_thread(_look_for_secrets, cluster, cluster.security, report)


def _look_for_secrets(cluster: Cluster, security: Secured, report: DrillReport) -> None:
    """Search all files for secrets, when no process runs any more and everything is written."""
    with report.step("No secret stands where it does not belong"):
        secrets = secrets_of(security, cluster.directory)
        count, found = given_away(cluster.directory, secrets)
        shown = "\n".join((*cluster.watch.shown, json_text(report.to_json()), report.summary()))
        found += [f"arguments, environments or the report: {kind.value}" for kind in secrets.find(shown.encode())]
        report.figure("secrets", len(secrets))
        report.figure("files that were read", count)
        report.figure("arguments and environment variables of processes", len(cluster.watch.shown))
        report.none_of("secrets given away", len(found), found)
        readable = open_to_others(cluster.directory)
        report.none_of("files open to others", len(readable), readable[:MAX_EXAMPLES])
