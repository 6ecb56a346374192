"""A stock Kafka controller, alone and without ZooKeeper, on a copy of the log: does it load the same metadata?

It replays the log, ends the migration in its copy (its flag is off, so that it never hears of ZooKeeper), and writes a
snapshot of what it has, which is compared with ours.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.log.errors import storage_errors
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.snapshots import SUFFIX, snapshot_id_of
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka, StockNode
from migrator.parts.processes import free_port
from migrator.values import value
from migrator.verify.kraft_files import read_image

HEAP_MEGABYTES = 512
PARTITIONS_PER_MEGABYTE = 250
"""A controller takes some 4 KB a partition while it replays and writes a snapshot."""
START_SECONDS = 60.0
PARTITIONS_PER_SECOND = 2_000
"""Slower than that it is given up."""
COMPARED = ("topics", "configs", "quotas", "producer_ids_next", "acls", "scram", "tokens")
"""Fields of the image; the others are about controllers, or change by the controller's start."""


@value
class StockCheck:
    """``problem`` is empty when it loaded the log as it should have."""

    version: str
    problem: str = ""


def check(kafka: StockKafka, directory: Path, image: MetadataImage, node_id: int) -> StockCheck:
    """Boot one on a copy of the metadata directory, whose image is given.

    :raises OperatorError: the copy could not be made, or Java is missing.
    """
    with tempfile.TemporaryDirectory(prefix="migrator-stock-") as scratch:
        data = Path(scratch) / "data"
        with storage_errors("cannot copy the metadata log", data):
            shutil.copytree(directory, data, ignore=shutil.ignore_patterns(f"[0-9]*{SUFFIX}", ".lock"))
        node = _node(kafka, Path(scratch), image, node_id)
        seconds = START_SECONDS + _partitions(image) / PARTITIONS_PER_SECOND
        try:
            node.launch()
            node.process.wait_until(
                lambda: _has_snapshot(data / DIRECTORY_NAME, image.provenance.offset + 1),
                "a snapshot of the whole log",
                timeout_seconds=seconds,
            )
        except OperatorError as error:
            return StockCheck(kafka.version, error.what)
        finally:
            node.kill()
        return StockCheck(kafka.version, _differences(image, read_image(data)))


def _node(kafka: StockKafka, scratch: Path, image: MetadataImage, node_id: int) -> StockNode:
    port = free_port()
    properties = {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{port}",
        "metadata.log.max.record.bytes.between.snapshots": "1",
    }
    heap = HEAP_MEGABYTES + _partitions(image) // PARTITIONS_PER_MEGABYTE
    return StockNode(kafka, "stock controller", scratch, properties, Jvm(heap=f"{heap}m"))


def _has_snapshot(folder: Path, end_offset: int) -> bool:
    ids = (snapshot_id_of(path) for path in folder.glob(f"*{SUFFIX}"))
    return any(id_ is not None and id_.offset >= end_offset for id_ in ids)


def _differences(ours: MetadataImage, theirs: MetadataImage) -> str:
    differing = [name for name in COMPARED if getattr(ours, name) != getattr(theirs, name)]
    return f"it made something else of these: {', '.join(differing)}" if differing else ""


def _partitions(image: MetadataImage) -> int:
    return sum(len(topic.partitions) for topic in image.topics.by_id.values())
