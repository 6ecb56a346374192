"""``spark.read.format("kafka-metadata")``: what a metadata log says, at its end or at an offset, and all its changes.

`verify` does not read the log by this source: it brings the records of an entity together (`kraft_source`), which a
source cannot do by itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from itertools import starmap
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from migrator.errors import OperatorError
from migrator.verify.kraft.shares import Wanted, read_share
from migrator.verify.kraft.splits import Split, divided, offset_at
from migrator.verify.places import place
from migrator.verify.spark.arrow_rows import SCHEMA, RowReader, Share, arrow_batches, require_options
from migrator.verify.spark.failures import packing

METADATA = "kafka-metadata"
STATE, CHANGES = "state", "changes"
OPTIONS = frozenset({"path", "mode", "as_of", "kind", "salt", "shards"})
CHANGE_SCHEMA = "offset bigint, time timestamp, kind string, entity string, field string, old string, new string"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
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
        as_of = self.options.get("as_of")
        self.until = None if as_of is None else offset_of(place(self.options["path"]), as_of, METADATA)
        self.has_changes = _mode(self.options) == CHANGES

    @property
    def shards(self) -> int:
        """The least number of shares: each reads the whole log."""
        return int(self.options.get("shards", "1"))

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        with packing():
            splits = divided(place(self.options["path"]), 1, self.until, history=self.has_changes)
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


def offset_of(directory: Path, as_of: str, where: str) -> int:
    """The offset that ``as_of`` names: itself, or the last one that was appended until a time.

    :param as_of: digits, or a time as in ISO 8601 with its zone.
    :raises OperatorError: it is neither; or as `offset_at`.
    """
    if as_of.isdecimal():
        return int(as_of)
    try:
        time = dt.datetime.fromisoformat(as_of)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        remedy = "Give an offset of the log, or a time such as 2026-01-01T10:00:00Z"
        raise OperatorError(f"{as_of!r} is not an offset, and no time with its zone", where=where, remedy=remedy)
    return offset_at(directory, (time - _EPOCH) // dt.timedelta(milliseconds=1))


def _in_microseconds(offset: int, time_ms: int, *rest: str | None) -> tuple[int | str | None, ...]:
    return offset, time_ms * 1000, *rest


def _mode(options: dict[str, str]) -> str:
    mode = options.get("mode", STATE)
    if mode not in {STATE, CHANGES}:
        raise OperatorError(f"there is no mode {mode!r}", where=METADATA, remedy=f"Use {STATE} or {CHANGES}")
    return mode


class MetadataSource(DataSource):
    """A metadata log of a controller, of this project or of stock Kafka. Options: ``path``, the metadata directory;
    ``mode``: ``state``, the canonical rows, or ``changes``, all changes of these; ``as_of``, the last offset to read,
    or a time; ``kind``, the kinds of rows, separated by commas; ``salt`` (hex), the key of the hashes that replace
    secrets; ``shards``, the number of tasks, each of which reads the whole log."""

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
