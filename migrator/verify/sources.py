"""Spark data sources, ``zookeeper`` and ``kraft``: both give canonical rows, read in parallel.

``spark.read.format("zookeeper").option("hosts", "zk:2181/kafka")``, with topics in ranges of their own, and
``spark.read.format("kraft").option("directory", ...)``, where each partition replays the log and emits its share. Rows
travel as Arrow batches: a million of them as Python tuples would take longer than everything else.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.verify import image_rows
from migrator.verify.canonical import COLUMNS, Row
from migrator.verify.failures import packing
from migrator.verify.kraft_files import read_image
from migrator.verify.zookeeper_reading import other_families, topic_names, topics
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, options_from
from migrator.zookeeper.znodes.passwords import PasswordEncoder

SCHEMA = ", ".join(f"{column} string" for column in COLUMNS)
ARROW_SCHEMA = pa.schema([(column, pa.string()) for column in COLUMNS])
BATCH_ROWS = 20_000


def arrow_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of columns."""
    columns: tuple[list[str], ...] = ([], [], [], [])
    kinds, entities, fields, values = columns
    for kind, entity, field, text in rows:
        kinds.append(kind)
        entities.append(entity)
        fields.append(field)
        values.append(text)
        if len(kinds) >= BATCH_ROWS:
            yield pa.record_batch(list(columns), schema=ARROW_SCHEMA)
            columns = ([], [], [], [])
            kinds, entities, fields, values = columns
    if kinds:
        yield pa.record_batch(list(columns), schema=ARROW_SCHEMA)


class Shard(InputPartition):
    """One of ``count`` shares."""

    def __init__(self, number: int, count: int) -> None:
        super().__init__(number)
        self.number = number
        self.count = count


class TopicRange(InputPartition):
    """Topics by name."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(list(names))
        self.names = names


class OtherFamilies(InputPartition):
    """Everything but topics."""

    def __init__(self) -> None:
        super().__init__(None)


class RowReader(DataSourceReader):
    """What both readers share: their options."""

    def __init__(self, options: Any) -> None:
        self.options = dict(options)

    @property
    def salt(self) -> bytes:
        """The key under which secrets are hashed in this run."""
        return bytes.fromhex(self.options["salt"])

    @property
    def shards(self) -> int:
        """How many partitions to make."""
        return int(self.options.get("shards", "2"))


class KRaftReader(RowReader):
    """Each partition replays snapshot and log, and emits its share of the entities."""

    def partitions(self) -> Sequence[InputPartition]:
        """See `DataSourceReader`."""
        return [Shard(number, self.shards) for number in range(self.shards)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceReader`."""
        if not isinstance(partition, Shard):
            raise TypeError(f"not a share of a log: {partition}")
        with packing():
            yield from arrow_batches(self._rows(partition))

    def _rows(self, shard: Shard) -> Iterator[Row]:
        image = read_image(Path(self.options["directory"]))
        for topic in image.topics.by_id.values():
            if zlib.crc32(topic.topic_id) % shard.count == shard.number:
                yield from image_rows.topic_rows(topic)
        if shard.number == 0:
            yield from image_rows.other_rows(image, self.salt)


class KRaftDataSource(DataSource):
    """Metadata of a directory, of this project's controllers or of stock Kafka's."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kraft"

    def schema(self) -> str:
        """See `DataSource`."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """See `DataSource`."""
        return KRaftReader(self.options)


class ZooKeeperReader(RowReader):
    """One partition for the small families, the topics in ranges."""

    def partitions(self) -> Sequence[InputPartition]:
        """See `DataSourceReader`."""
        with packing(), ZooKeeperSession(self._session_options()) as session:
            names = topic_names(BulkReader(session))
        size = max(1, -(-len(names) // self.shards))
        ranges = [TopicRange(names[start : start + size]) for start in range(0, len(names), size)]
        return [OtherFamilies(), *ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceReader`."""
        with packing(), ZooKeeperSession(self._session_options()) as session:
            tree = BulkReader(session)
            rows = (
                topics(tree, partition.names, self._encoder(), self.salt)
                if isinstance(partition, TopicRange)
                else other_families(tree, self._encoder(), self.salt)
            )
            yield from arrow_batches(rows)

    def _session_options(self) -> SessionOptions:
        if "config" in self.options:
            settings, _ = load_settings(Path(self.options["config"]))
            options = options_from(settings)
            return options if "hosts" not in self.options else replace(options, hosts=self.options["hosts"])
        return SessionOptions(self.options["hosts"])

    def _encoder(self) -> PasswordEncoder:
        if "config" not in self.options:
            return PasswordEncoder(None, os.urandom)
        settings, _ = load_settings(Path(self.options["config"]))
        secret = settings.password_encoder_secret
        return PasswordEncoder(None if secret is None else secret.reveal(), os.urandom)


class ZooKeeperDataSource(DataSource):
    """Metadata of a live ZooKeeper."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "zookeeper"

    def schema(self) -> str:
        """See `DataSource`."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """See `DataSource`."""
        if "hosts" not in self.options and "config" not in self.options:
            raise OperatorError("no ZooKeeper is named", where="zookeeper", remedy='Set option "hosts" or "config"')
        return ZooKeeperReader(self.options)
