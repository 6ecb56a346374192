"""Archives of the classes that Kafka and ZooKeeper load: Java starts in less than half the processor time with them.

They are made once for this machine, by the first test that starts such a process, and stay in the cache.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path

from kazoo.client import KazooClient

from migrator.errors import OperatorError
from migrator.parts.java import Jvm, archive_of
from migrator.parts.kafka import StockKafka
from migrator.parts.kafka_jars import cache_directory
from migrator.parts.processes import free_port
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions, server_classpath
from tests.patience import PATIENCE_SECONDS

Train = Callable[[Path, Jvm], None]
"""Run a Java process with these flags in the directory, until it has loaded its classes and ends by itself."""


def directory() -> Path:
    """For `migrator.parts.java.ARCHIVES`."""
    return cache_directory().parent / "java-archives"


def archive_kafka(kafka: StockKafka) -> None:
    """Make the archive of this release, if it is missing."""
    port, client_port = free_port(), free_port()

    def train(scratch: Path, jvm: Jvm) -> None:
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{port}",
        }
        node = kafka.node("training", scratch, properties, jvm=jvm)
        node.format("XkYOzJkUQQ-rHVYhnWGvTg")
        node.start()
        node.process.stop(grace_seconds=PATIENCE_SECONDS)

    _archive(kafka.classpath, "320m", train)


def archive_zookeeper() -> None:
    """Make the archive of the ZooKeeper server, if it is missing."""

    def train(scratch: Path, jvm: Jvm) -> None:
        server = EmbeddedZooKeeper(scratch, options=ZooKeeperOptions(jvm=jvm))
        server.start()
        client = KazooClient(server.hosts)
        client.start(PATIENCE_SECONDS)
        client.create("/training")
        client.stop()
        client.close()
        server.process.stop(grace_seconds=PATIENCE_SECONDS)

    _archive(server_classpath(), "512m", train)


def _archive(classpath: str, heap: str, train: Train) -> None:
    """One process makes it, others wait. A Java that cannot do it works without."""
    target = archive_of(classpath)
    if target is None or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        made = Path(scratch) / "classes.jsa"
        try:
            train(Path(scratch) / "training", Jvm(heap, (*Jvm().flags, f"-XX:ArchiveClassesAtExit={made}")))
            made.rename(target)
        except (OperatorError, OSError):
            return
