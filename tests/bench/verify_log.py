"""A metadata log that is long: how its decoding divides among task slots, and whether a big one is compared within the
2 GB that Spark has by default.

python -m tests.bench.verify_log [--records N] [--gigabytes N]
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

from rich.console import Console

from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.segment import segment_name
from migrator.parts.usage import ProcessorMeter
from migrator.records import metadata as m
from migrator.records.batch import build_batch, read_header
from migrator.records.codec import encode_all
from migrator.verify.spark.kraft_source import FORMAT
from migrator.verify.spark.session import spark_session
from migrator.verify.spark.sides import register
from tests.bench.verify import measure
from tests.bench.verify_inputs import BATCH_RECORDS, LEVEL, config_records, partition_changes, write_inputs

SEGMENT_BYTES = 1 << 30
"""Kafka's ``metadata.log.segment.bytes``."""
PARTITIONS = 20_000
LONG = "x" * 2_000
"""A value of many bytes, which a later record replaces."""


def lengthen(
    metadata: Path, template: Sequence[m.MetadataRecord], records: int, last: Sequence[m.MetadataRecord]
) -> int:
    """Append a template of records to a log again and again, then ``last``. A batch is built once: its checksum does
    not cover its offset.

    :param records: how many to append, or a batch more.
    :returns: the bytes of the log.
    """
    (segment,) = (metadata / DIRECTORY_NAME).iterdir()
    content = segment.read_bytes()
    offset = 0
    while content:
        header = read_header(content)
        content, offset = content[header.size :], header.next_offset
    end = offset + records
    batches = cycle(list(_built(template)))
    size, file = segment.stat().st_size, segment.open("ab")
    total = size
    while offset < end:
        batch, count = next(batches)
        if size > SEGMENT_BYTES:
            file.close()
            size, file = 0, (metadata / DIRECTORY_NAME / segment_name(offset)).open("wb")
        size += file.write(struct.pack(">q", offset) + batch[8:])
        total += len(batch)
        offset += count
    for batch, count in _built(last):
        total += file.write(struct.pack(">q", offset) + batch[8:])
        offset += count
    file.close()
    return total


def _built(records: Sequence[m.MetadataRecord]) -> Iterator[tuple[bytes, int]]:
    values = list(encode_all(records, LEVEL))
    for start in range(0, len(values), BATCH_RECORDS):
        some = values[start : start + BATCH_RECORDS]
        yield bytes(build_batch(some, timestamp_ms=1, base_offset=0, leader_epoch=1)), len(some)


def decode(metadata: Path, slots: int) -> tuple[float, float, float]:
    """Read and decode the log in Spark; its records go nowhere.

    :returns: seconds, processor seconds, and the share of the processors that somebody else used meanwhile.
    """
    with spark_session(f"local[{slots}]") as spark:
        register(spark)
        spark.range(10).mapInArrow(lambda batches: batches, "id bigint").collect()  # starts the workers
        frame = spark.read.format(FORMAT).options(directory=str(metadata), salt="00").load()
        meter, started = ProcessorMeter((os.getpid(),)), time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started, meter.seconds, meter.others_share


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if the big log was found to be equal to ZooKeeper's files."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verify_log", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000, help="of the log that is decoded (20000000)")
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of the log that is compared (5)")
    given = parser.parse_args(arguments)
    equal, say = True, Console(width=120, highlight=False).print
    if given.records:
        with tempfile.TemporaryDirectory(prefix="migrator-bench-verify-") as directory:
            _, metadata = write_inputs(Path(directory), PARTITIONS)
            size = lengthen(metadata, partition_changes(PARTITIONS), given.records, ())
            for slots in (1, 2):
                seconds, processor, others = decode(metadata, slots)
                say(
                    f"{given.records:,} records, {size:,} bytes, {slots} slots: {seconds:.1f} s, "
                    f"{processor:.1f} processor seconds; others {others:.0%}"
                )
    if given.gigabytes:
        with tempfile.TemporaryDirectory(prefix="migrator-bench-verify-") as directory:
            data, metadata = write_inputs(Path(directory), PARTITIONS)
            count = int(given.gigabytes * 1e9 / (len(LONG) + 60))
            size = lengthen(metadata, config_records(PARTITIONS, LONG), count, config_records(PARTITIONS))
            found = measure(PARTITIONS, "files", ["--zookeeper-files", str(data), "--metadata", str(metadata)])
            equal = found.equal
            say(
                f"verify of a log of {size:,} bytes: {'equal' if equal else 'different'}, {found.seconds:.1f} s, "
                f"peak {found.peak_bytes / 1e9:.2f} GB; others {found.others:.0%}"
            )
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
