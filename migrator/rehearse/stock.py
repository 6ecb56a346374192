"""Checks that a stock Kafka controller, alone and without ZooKeeper, loads the same metadata from a copy of the log.

It replays the log and ends the migration in its copy (its flag is off, so it never connects to ZooKeeper). Then it
writes a snapshot, which is compared with ours.

The copy has every credential of the cluster, and a controller needs a listener. The listener is on loopback, with a
password that is new in each run and stands in a file that only this user can read. So no other user of this machine can
connect.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.snapshots import SUFFIX, iter_snapshot, snapshot_id_of
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka, StockNode
from migrator.parts.processes import free_port
from migrator.records.codec import decode_at
from migrator.records.metadata import RegisterControllerRecord, ZkMigrationStateRecord
from migrator.values import value

LISTENER = "CONTROLLER"
PASSWORD_BYTES = 32
HEAP_MEGABYTES = 512
PARTITIONS_PER_MEGABYTE = 250
"""A controller takes about 4 KB for each partition while it replays and writes a snapshot."""
START_SECONDS = 60.0
PARTITIONS_PER_SECOND = 2_000
"""A controller that is slower than this is given up."""
ITS_OWN = frozenset({RegisterControllerRecord, ZkMigrationStateRecord})
"""Records that the start of the controller changes."""


@value
class StockCheck:
    """``problem``: "" when the controller loaded the log correctly."""

    version: str
    problem: str = ""


def check(kafka: StockKafka, directory: Path, node_id: int, partitions: int) -> StockCheck:
    """Start a controller on a copy of the metadata log in a directory, and compare its snapshot with the one in the
    directory.

    :raises OperatorError: the copy could not be made, or Java is missing.
    """
    ours = _newest(directory / DIRECTORY_NAME)
    end_offset = _offset(ours)
    with tempfile.TemporaryDirectory(prefix="migrator-stock-") as scratch:
        data = Path(scratch) / "data"
        with storage_errors("cannot copy the metadata log", data):
            shutil.copytree(directory, data, ignore=shutil.ignore_patterns(f"[0-9]*{SUFFIX}", ".lock"))
        node = controller_of_copy(kafka, Path(scratch), free_port(), node_id, partitions)
        seconds = START_SECONDS + partitions / PARTITIONS_PER_SECOND
        try:
            node.launch()
            expected = _values(ours)  # meanwhile the controller starts
            node.process.wait_until(
                lambda: _offset(_newest(data / DIRECTORY_NAME)) >= end_offset,
                "a snapshot of the whole log",
                timeout_seconds=seconds,
            )
        except OperatorError as error:
            return StockCheck(kafka.version, error.what)
        finally:
            node.kill()
        return StockCheck(kafka.version, _differences(expected, _values(_newest(data / DIRECTORY_NAME))))


def controller_of_copy(kafka: StockKafka, scratch: Path, port: int, node_id: int, partitions: int = 0) -> StockNode:
    """A controller, not yet started, on the metadata directory ``scratch/data``.

    :param scratch: only this user can read it, as `tempfile.TemporaryDirectory` makes it.
    """
    password = secrets.token_hex(PASSWORD_BYTES)
    login = f'username="rehearsal" password="{password}" user_rehearsal="{password}"'
    properties = {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"{LISTENER}://127.0.0.1:{port}",
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT",
        "controller.listener.names": LISTENER,
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};"
        ),
        "metadata.log.max.record.bytes.between.snapshots": "1",
    }
    heap = HEAP_MEGABYTES + partitions // PARTITIONS_PER_MEGABYTE
    return StockNode(kafka, "stock controller", scratch, properties, Jvm(heap=f"{heap}m"))


def _newest(folder: Path) -> Path | None:
    return max(folder.glob(f"*{SUFFIX}"), key=_offset, default=None)


def _offset(snapshot: Path | None) -> int:
    found = None if snapshot is None else snapshot_id_of(snapshot)
    return -1 if found is None else found.offset


def _differences(ours: Counter[bytes], theirs: Counter[bytes]) -> str:
    """The differences in words. Records are compared by their bytes; the report has only their types, because they may
    hold secrets."""
    lacking, adding = _kinds(ours - theirs), _kinds(theirs - ours)
    words = [f"lacks {count:,} {kind}" for kind, count in sorted(lacking.items())]
    words += [f"has {count:,} {kind} more" for kind, count in sorted(adding.items())]
    return f"its snapshot {', '.join(words)}" if words else ""


def _kinds(contents: Counter[bytes]) -> Counter[str]:
    found = (type(decode_at(content, 0, len(content))[0]) for content in contents.elements())
    return Counter(kind.__name__ for kind in found if kind not in ITS_OWN)


def _values(snapshot: Path | None) -> Counter[bytes]:
    """The number of occurrences of each record's bytes: snapshots of equal images may have their records in different
    orders."""
    batches = [] if snapshot is None else [batch for batch in iter_snapshot(snapshot) if not batch.header.is_control]
    return Counter(record.value for batch in batches for record in batch.raw_records())
