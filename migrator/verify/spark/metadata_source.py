"""``spark.read.format("kafka-metadata")``: what a metadata log says, at its end or at an offset, and all its changes.

`verify` does not read the log by this source: it brings the records of an entity together (`kraft_source`), which a
source cannot do by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from migrator.errors import OperatorError
from migrator.verify.kraft.shares import Wanted, read_share
from migrator.verify.kraft.splits import Split, divided
from migrator.verify.spark.arrow_rows import SCHEMA, RowReader, Share, arrow_batches, require_options
from migrator.verify.spark.failures import packing

METADATA = "kafka-metadata"
STATE, CHANGES = "state", "changes"
OPTIONS = frozenset({"path", "mode", "as_of", "kind", "salt", "shards"})
CHANGE_SCHEMA = "offset bigint, time timestamp, kind string, entity string, field string, old string, new string"
_TIME = pa.timestamp("us", tz="UTC")
_CHANGES = pa.schema(
    [
        ("offset", pa.int64()),
        ("time", _TIME),
        *((name, pa.string()) for name in ("kind", "entity", "field", "old", "new")),
    ]
)


class _LogShare(Share):
    """A share, and where the log is: Spark sends the reader to its tasks before it asks for the partitions."""

    def __init__(self, number: int, count: int, splits: tuple[Split, ...]) -> None:
        super().__init__(number, count)
        self.splits = splits


class MetadataReader(RowReader):
    """Each task reads the log, and keeps a share of its entities."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        until = self.options.get("as_of")
        if until is not None and not until.isdecimal():
            raise OperatorError(
                f"as_of is {until!r}, not an offset", where=METADATA, remedy="Give an offset of the log"
            )
        self.until = None if until is None else int(until)
        self.has_changes = _mode(self.options) == CHANGES

    @property
    def shards(self) -> int:
        """The least number of shares: each reads the whole log."""
        return int(self.options.get("shards", "1"))

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        with packing():
            splits = divided(Path(self.options["path"]), 1, self.until, history=self.has_changes)
        count = self.shares_of(sum(split.end - split.start for split in splits))
        return [_LogShare(number, count, splits) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part (see `DataSourceReader`)."""
        if not isinstance(partition, _LogShare):
            raise TypeError(f"not a share of a log: {partition}")
        with packing(self.options["path"]):
            wanted = Wanted(partition.number, partition.count, self.kinds)
            share = read_share(partition.splits, wanted, self.salt)
            if self.has_changes:
                yield from arrow_batches(starmap(_in_microseconds, share.changes()), _CHANGES)
            else:
                yield from arrow_batches(share.rows())


def _in_microseconds(offset: int, time_ms: int, *rest: str | None) -> tuple[int | str | None, ...]:
    return offset, time_ms * 1000, *rest


def _mode(options: dict[str, str]) -> str:
    mode = options.get("mode", STATE)
    if mode not in {STATE, CHANGES}:
        raise OperatorError(f"there is no mode {mode!r}", where=METADATA, remedy=f"Use {STATE} or {CHANGES}")
    return mode


class MetadataSource(DataSource):
    """A metadata log of a controller, of this project or of stock Kafka. Options: ``path``, the metadata directory;
    ``mode``: ``state``, the canonical rows, or ``changes``, all changes of these; ``as_of``, the last offset to read;
    ``kind``, the kinds of rows, separated by commas; ``salt`` (hex), the key of the hashes that replace secrets;
    ``shards``, the number of tasks, each of which reads the whole log."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return METADATA

    def schema(self) -> str:
        """The columns of the rows (see `DataSource`)."""
        with packing():
            return CHANGE_SCHEMA if _mode(dict(self.options)) == CHANGES else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """The reader of this source (see `DataSource`)."""
        with packing():
            require_options(METADATA, self.options, OPTIONS)
            if "path" not in self.options:
                raise OperatorError("no metadata is named", where=METADATA, remedy='Set "path": a metadata directory')
            return MetadataReader(dict(self.options))
