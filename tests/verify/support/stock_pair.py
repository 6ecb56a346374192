"""Both sides of a migration that stock Kafka 3.9.1 made: its znodes, and its log in a metadata directory."""

from __future__ import annotations

import shutil
from pathlib import Path

from kazoo.client import KazooClient

from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.zookeeper.ops import Znode
from tests.golden.stock import STOCK_391, read_dump

AFTER = read_dump(STOCK_391.after)


def restore(client: KazooClient, znodes: list[Znode]) -> None:
    """The znodes with their data versions; ephemeral and sequential ones as plain ones."""
    for znode in sorted(znodes, key=lambda znode: znode.path):
        data = znode.data
        client.create(znode.path, b"" if data is None else data, makepath=True)
        for _ in range(znode.stat.version):
            client.set(znode.path, b"" if data is None else data)


def stock_metadata(directory: Path) -> Path:
    """The one segment of the log, in its place below ``directory``."""
    segment = directory / DIRECTORY_NAME / f"{0:020d}.log"
    segment.parent.mkdir()
    shutil.copy(STOCK_391.log, segment)
    return segment


def stock_property_file(directory: Path, hosts: str) -> Path:
    """A controller's property file with the secrets of the stock cluster."""
    file = directory / "controller.properties"
    file.write_text(
        "process.roles=controller\nnode.id=3000\ncontroller.quorum.voters=3000@localhost:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://localhost:9093\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"zookeeper.connect={hosts}\n"
        + "".join(f"{key}={text}\n" for key, text in STOCK_391.settings().items() if key != "cluster.id")
    )
    return file
