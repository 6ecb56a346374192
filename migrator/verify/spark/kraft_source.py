"""The metadata log in Spark, of this project's controllers or of stock Kafka's: its records, and their canonical rows.

The log is divided by ranges of bytes (`splits`). Each task decodes its ranges and finds the entity of each record.
Spark groups the records by entity, in the order of the log, and each entity is replayed alone (`fold`). A few records
concern entities that they do not name: only these reach the driver, before the replay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from tenacity import Retrying, retry_if_exception, stop_after_attempt

from migrator.errors import InvariantViolation, OperatorError
from migrator.image.tracked import Interner
from migrator.values import value
from migrator.verify.canonical import Row
from migrator.verify.comparison import Reading
from migrator.verify.kraft.files import ATTEMPTS, COMPARE, EmptyLogError
from migrator.verify.kraft.fold import SharedRecords, folded_rows, shared_records
from migrator.verify.kraft.observed import Observed, observed
from migrator.verify.kraft.splits import Split, divided, records_of
from migrator.verify.places import place
from migrator.verify.spark.arrow_rows import SCHEMA, RowReader, arrow_batches
from migrator.verify.spark.failures import is_gone, packing

FORMAT = "kafka-metadata-records"
RECORDS = "entity binary, place bigint, content binary"
_RECORDS = pa.schema([("entity", pa.binary()), ("place", pa.int64()), ("content", pa.binary())])

Fold = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@value
class _Gathered:
    """The log for the driver: the shared records, and the range that each task has read."""

    shared: tuple[tuple[int, bytes], ...]
    ranges: tuple[tuple[str, int, int], ...]

    @property
    def reading(self) -> Reading:
        return Reading.of([(one,) for one in self.ranges], len(self.shared))


@contextmanager
def metadata_rows(
    spark: SparkSession, options: Mapping[str, str], tell: Callable[[Reading], None] = lambda _: None
) -> Iterator[DataFrame]:
    """Canonical rows of a metadata log, while the context lasts.

    :param options: those of `RecordsSource`.
    :param tell: called when the log is read.
    :raises OperatorError: transactions of the log contradict each other, or the log holds only an open transaction.
    :raises PySparkException: an error in Spark; `failures.operator_error` translates it.
    """
    where = options.get("directory") or options["controllers"]
    with _read(spark, options) as (records, gathered):
        try:
            shared = shared_records(gathered.shared)
        except InvariantViolation as error:
            raise OperatorError(f"could not tell: {error}", where=where, remedy=COMPARE) from error
        of_entities = records.where("length(entity) > 0")
        if shared.open_since is not None and of_entities.where(f"place < {shared.open_since}").isEmpty():
            raise EmptyLogError(place(where))
        tell(gathered.reading)
        by_entity = of_entities.repartition("entity").sortWithinPartitions("entity", "place")
        yield by_entity.mapInArrow(_fold(shared, where), SCHEMA)


@contextmanager
def _read(spark: SparkSession, options: Mapping[str, str]) -> Iterator[tuple[DataFrame, _Gathered]]:
    """Read all records, and keep them on the disks of the executors while the context lasts. A running controller may
    remove a file after the log was divided: then the log is divided anew."""

    def read() -> tuple[DataFrame, _Gathered]:
        frame = spark.read.format(FORMAT).options(**options).load().persist(StorageLevel.DISK_ONLY)
        try:
            found = frame.where("length(entity) = 0 or entity is null").collect()
        except BaseException:
            _forget(frame)
            raise
        shared = tuple((row["place"], bytes(row["content"])) for row in found if row["entity"] is None)
        ranges = tuple(_range(row["place"], bytes(row["content"])) for row in found if row["entity"] is not None)
        return frame, _Gathered(shared, ranges)

    frame, gathered = Retrying(retry=retry_if_exception(is_gone), stop=stop_after_attempt(ATTEMPTS), reraise=True)(read)
    try:
        yield frame, gathered
    finally:
        _forget(frame)


def _forget(frame: DataFrame) -> None:
    frame.unpersist(blocking=True)  # a session that stops during this call would print its stack


def _range(start: int, content: bytes) -> tuple[str, int, int]:
    end, _, path = content.decode().partition(" ")
    return path, start, int(end)


def _fold(shared: SharedRecords, where: str) -> Fold:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        intern = Interner()
        records = (row for batch in batches for row in zip(*(one.to_pylist() for one in batch.columns), strict=True))
        for entity, found in groupby(records, itemgetter(0)):
            yield from folded_rows(entity, map(itemgetter(1, 2), found), shared, intern)

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with packing(where):
            yield from arrow_batches(rows(batches))

    return fold


class _Part(InputPartition):
    """One range of the log, or None for the whole log, which is fetched from controllers."""

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)
        self.split = split


class RecordsReader(RowReader):
    """Each partition decodes its range of the log; a log of running controllers is fetched once, by one partition."""

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        with packing():
            if "directory" in self.options:
                return [_Part(split) for split in divided(place(self.options["directory"]), self.shards)]
            self._observed().end_offset()  # fails at once if no controller answers
            return [_Part(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one part (see `DataSourceReader`)."""
        if not isinstance(partition, _Part):
            raise TypeError(f"not a part of a log: {partition}")
        with packing():
            if partition.split is not None:
                yield from _record_batches([partition.split], self.salt)
                return
            with tempfile.TemporaryDirectory(prefix="migrator-observed-") as directory:
                self._observed().fetch(Path(directory))
                yield from _record_batches(divided(Path(directory), 1), self.salt)

    def _observed(self) -> Observed:
        return observed(self.options["controllers"], self.options.get("config"))


def _record_batches(splits: Iterable[Split], salt: bytes) -> Iterator[pa.RecordBatch]:
    """One row for each entity that a record is about, and one without entity if other entities may need the record,
    too. A row whose entity has an empty name stands for a range that was read."""
    rows = chain.from_iterable(_rows_of(split, salt) for split in splits)
    return arrow_batches(rows, _RECORDS)


def _rows_of(split: Split, salt: bytes) -> Iterator[tuple[bytes | None, int, bytes]]:
    for one in records_of(split, salt):
        for key in one.keys:
            yield key, one.order, one.content
        if one.is_shared:
            yield None, one.order, one.content
    yield b"", split.start, f"{split.end} {split.path}".encode()


class RecordsSource(DataSource):
    """Records of a metadata log by entity. Options: ``directory``, a controller's metadata directory, or
    ``controllers`` (``host:port[,...]``), running controllers from which the log is fetched, with the security of
    ``config``, a controller's property file; ``shards``, the least number of partitions; ``salt`` (hex), the key of the
    hashes that replace secrets."""

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
