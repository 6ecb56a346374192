"""Makes `stock-3.9.1/static` and `.../dynamic` anew: metadata directories that a stock controller formatted and used.

    python -m tests.golden.make_log_directories

Each is the directory of a single controller that was formatted (kraft.version 0 with static voters, and 1 with
``--standalone``), started three times, so that its log has three epochs, and wrote snapshots. Disposable files
(indexes, producer state, the lock) are left out.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from migrator.parts.java import Jvm
from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode
from migrator.parts.processes import free_port

VERSION = "3.9.1"
TARGET = Path(__file__).parent / f"stock-{VERSION}"
CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
BOOTS = 3
KEPT = ("*.log", "*.checkpoint", "quorum-state", "leader-epoch-checkpoint", "partition.metadata", "meta.properties")


def properties(*, dynamic: bool) -> dict[str, str]:
    port = free_port()
    voters = (
        {"controller.quorum.bootstrap.servers": f"localhost:{port}"}
        if dynamic
        else {"controller.quorum.voters": f"7@localhost:{port}"}
    )
    return {
        "process.roles": "controller",
        "node.id": "7",
        "listeners": f"CONTROLLER://localhost:{port}",
        "controller.listener.names": "CONTROLLER",
        "metadata.log.max.record.bytes.between.snapshots": "300",
        **voters,
    }


def make(kafka: StockKafka, directory: Path, name: str) -> None:
    dynamic = name == "dynamic"
    node = StockNode(kafka, name, directory / name, properties(dynamic=dynamic), Jvm(heap="256m"))
    mode = ["--standalone"] if dynamic else []
    kafka.tool(
        "kafka.tools.StorageTool",
        *("format", "-t", CLUSTER_ID, "-c", str(node.write_properties()), "--release-version", "3.9-IV0", *mode),
        directory=node.directory,
    )
    data = node.directory / "data"
    log = data / "__cluster_metadata-0"
    for snapshots in range(1, BOOTS + 1):
        with node:
            wait_for_snapshots(node, log, snapshots)
    copy(data, TARGET / name)
    copy(log, TARGET / name / log.name)


def wait_for_snapshots(node: StockNode, log: Path, count: int) -> None:
    def are_there() -> bool:
        return len(list(log.glob("*.checkpoint"))) >= count

    node.process.wait_until(are_there, f"snapshot number {count}", timeout_seconds=60)


def copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for pattern in KEPT:
        for path in source.glob(pattern):
            shutil.copy(path, target / path.name)
            (target / path.name).chmod(0o644)


def main() -> None:
    kafka = KafkaRelease(VERSION).fetch()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("static", "dynamic"):
            make(kafka, Path(folder), name)
            sys.stdout.write(f"{TARGET / name}\n")


if __name__ == "__main__":
    main()
