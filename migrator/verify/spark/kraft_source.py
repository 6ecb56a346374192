"""The metadata log in Spark, of this project's controllers or of stock Kafka's: its records, and what they come to.

The log is divided by ranges of bytes (`splits`). Each task decodes its ranges where they lie and says which entity each
record is about; Spark brings the records of an entity together, in the order of the log, and each entity is replayed by
itself (`fold`). Few records concern entities that they do not name: these alone reach the driver, before the replay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from migrator.errors import InvariantViolation, OperatorError
from migrator.image.tracked import Interner
from migrator.verify.canonical import Row
from migrator.verify.kraft.entities import Placed
from migrator.verify.kraft.files import COMPARE, EmptyLogError
from migrator.verify.kraft.fold import SharedRecords, folded_rows, shared_records
from migrator.verify.kraft.observed import Observed, observed
from migrator.verify.kraft.splits import Split, divided, records_of
from migrator.verify.spark.arrow_rows import BATCH_ROWS, SCHEMA, RowReader, arrow_batches
from migrator.verify.spark.failures import packing

FORMAT = "kafka-metadata-records"
RECORDS = "entity binary, place bigint, content binary"
_RECORDS = pa.schema([("entity", pa.binary()), ("place", pa.int64()), ("content", pa.binary())])

Fold = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@contextmanager
def metadata_rows(spark: SparkSession, options: Mapping[str, str]) -> Iterator[DataFrame]:
    """Canonical rows of a metadata log, while the context lasts.

    :param options: those of `RecordsSource`, and ``salt`` (hex), the key of the hashes that stand for secrets.
    :raises OperatorError: transactions of the log do not fit one another, or it holds nothing else than an open one.
    :raises PySparkException: what goes wrong in Spark; `failures.operator_error` makes sense of it.
    """
    where = options.get("directory") or options["controllers"]
    records = spark.read.format(FORMAT).options(**options).load().persist(StorageLevel.DISK_ONLY)
    try:
        common = records.where("entity is null").select("place", "content").collect()
        try:
            shared = shared_records((row["place"], bytes(row["content"])) for row in common)
        except InvariantViolation as error:
            raise OperatorError(f"could not tell: {error}", where=where, remedy=COMPARE) from error
        if shared.open_since is not None and records.where(f"place < {shared.open_since}").isEmpty():
            raise EmptyLogError(Path(where))
        by_entity = records.where("entity is not null").repartition("entity").sortWithinPartitions("entity", "place")
        yield by_entity.mapInArrow(_fold(shared, bytes.fromhex(options["salt"]), where), SCHEMA)
    finally:
        records.unpersist()


def _fold(shared: SharedRecords, salt: bytes, where: str) -> Fold:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        intern = Interner()
        records = (row for batch in batches for row in zip(*(one.to_pylist() for one in batch.columns), strict=True))
        for entity, found in groupby(records, itemgetter(0)):
            yield from folded_rows(entity, map(itemgetter(1, 2), found), shared, salt, intern)

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with packing(where):
            yield from arrow_batches(rows(batches))

    return fold


class _Part(InputPartition):
    """One range of the log; None is all of it, fetched from controllers."""

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)
        self.split = split


class RecordsReader(RowReader):
    """Each partition decodes its range of the log; a log of running controllers is fetched once, by one partition."""

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        with packing():
            if "directory" in self.options:
                return [_Part(split) for split in divided(Path(self.options["directory"]), self.shards)]
            self._observed().end_offset()  # or nobody answers, which is said at once
            return [_Part(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one part (see `DataSourceReader`)."""
        if not isinstance(partition, _Part):
            raise TypeError(f"not a part of a log: {partition}")
        with packing():
            if partition.split is not None:
                yield from _record_batches(records_of(partition.split))
                return
            with tempfile.TemporaryDirectory(prefix="migrator-observed-") as directory:
                self._observed().fetch(Path(directory))
                yield from _record_batches(chain.from_iterable(map(records_of, divided(Path(directory), 1))))

    def _observed(self) -> Observed:
        return observed(self.options["controllers"], self.options.get("config"))


def _record_batches(records: Iterable[Placed]) -> Iterator[pa.RecordBatch]:
    """One row for each entity that a record is about, and one without entity if others may need it, too."""
    rows = (
        (key, one.order, one.content) for one in records for key in (*one.keys, *((None,) if one.is_shared else ()))
    )
    while some := list(islice(rows, BATCH_ROWS)):
        yield pa.record_batch([list(column) for column in zip(*some, strict=True)], schema=_RECORDS)


class RecordsSource(DataSource):
    """Records of a metadata log by entity. Options: ``directory``, a controller's metadata directory, or
    ``controllers`` (``host:port[,...]``), running ones that the log is fetched from as an observer does, with the
    security of ``config``, a controller's property file; ``shards``, how many partitions to make at least."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """The columns of the rows (see `DataSource`)."""
        return RECORDS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """The reader of this source (see `DataSource`)."""
        if "directory" not in self.options and "controllers" not in self.options:
            raise OperatorError("no metadata is named", where="kraft", remedy='Set "directory" or "controllers"')
        return RecordsReader(self.options)
