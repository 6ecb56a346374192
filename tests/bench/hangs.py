"""The leader hangs under brokers in ZooKeeper mode: who loses its place, and how long a producer waits.

The brokers are unmodified, and all time-outs are the default ones. The same steps are taken with our controllers and
with stock ones.
"""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console

from migrator.drill.kafka.clients import Traffic
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.errors import MigratorError
from migrator.log.dump import dump_file
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.kafka import start_together
from migrator.parts.usage import ProcessorMeter
from tests.bench.figures import Figure, Result
from tests.bench.rolls import BROKERS, RECORDS_PER_SECOND, TITLES, TOPIC, WAIT_SECONDS, real_cluster, until_dual_write
from tests.interop.support.cluster import Admin, KafkaCluster

HANG_SECONDS = 14.0
SETTLED_SECONDS = 25.0
"""Before the hang: a new leader believes only connections that are older than two sessions of 9 s."""
AFTER_SECONDS = 30.0
HANG_FIGURES = (
    Figure("hang_pause", "leader hangs 14 s: longest produce pause", "s", "<= 4"),
    Figure("hang_fenced", "fencings of brokers meanwhile", "", "0"),
    Figure("others_percent", "the processors' share that others took meanwhile", "%"),
)


def run_hang(peer: str, directory: Path, controllers: int, console: Console) -> Result:
    """One peer's hang; what fails ends it."""
    figures: dict[str, float] = {}
    failure = None
    try:
        with real_cluster(peer, directory, controllers) as (cluster, _):
            console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {peer}: brokers and controllers start")
            _migrate(cluster)
            meter = ProcessorMeter(())
            figures["hang_pause"] = _hang(cluster, console)
            figures["others_percent"] = 100 * meter.others_share
            cluster.stop_controllers()
            figures["hang_fenced"] = _fencings(cluster)
    except (MigratorError, KafkaException, OSError) as error:
        failure = f"{type(error).__name__}: {error}"
    return Result(peer, TITLES[peer], figures, failure)


def _migrate(cluster: KafkaCluster) -> None:
    for broker, node in cluster.brokers.items():
        node.properties = cluster.properties_of(broker, KafkaBrokerMode.MIGRATING)
    start_together(list(cluster.brokers.values()))
    cluster.start_controllers()
    until_dual_write(cluster)


def _hang(cluster: KafkaCluster, console: Console) -> float:
    admin = Admin(cluster.bootstrap, BROKERS)
    admin.create(TOPIC, 6, BROKERS, min_insync_replicas="2")
    until("replicas are in sync", admin.in_sync, seconds=WAIT_SECONDS)
    with Traffic(cluster.bootstrap, TOPIC, per_second=RECORDS_PER_SECOND) as traffic:
        time.sleep(SETTLED_SECONDS)
        leader = cluster.leading()
        console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] controller {leader.node_id}, which leads, is stopped")
        begin = time.monotonic()
        leader.pause()
        time.sleep(HANG_SECONDS)
        leader.resume()
        time.sleep(AFTER_SECONDS)
        until("records are acknowledged", traffic.goes_on, seconds=WAIT_SECONDS)
        return traffic.longest_pause(begin)


def _fencings(cluster: KafkaCluster) -> int:
    """How many the log has."""
    directory = max((each.metadata_directory for each in cluster.controllers), key=_size)
    batches = (batch for path in sorted((directory / DIRECTORY_NAME).glob("*.log")) for batch in dump_file(path))
    return sum(
        record.content["type"] == "BROKER_REGISTRATION_CHANGE_RECORD" and record.content["data"].get("fenced") == 1
        for batch in batches
        for record in batch.records
    )


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / DIRECTORY_NAME).glob("*.log"))
