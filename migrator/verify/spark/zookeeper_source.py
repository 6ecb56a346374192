"""``spark.read.format("zookeeper")``: canonical rows of a live ZooKeeper, or of the files of a server.

Options: ``hosts`` (``host:port[,...][/chroot]``), or ``files``, directories separated like a PATH, and ``chroot``;
``config``, a controller's property file, for security, chroot and the secret that decodes passwords. ``salt`` (hex) is
the key of the hashes that replace secrets, ``shards`` the least number of partitions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.verify.spark.arrow_rows import SCHEMA, RowReader, Share, arrow_batches
from migrator.verify.spark.failures import packing
from migrator.verify.zookeeper.files import (
    DataFiles,
    data_files,
    other_families_share,
    read_tree,
    topics_share,
    total_bytes,
)
from migrator.verify.zookeeper.reading import other_families, topic_names, topics
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, options_from
from migrator.zookeeper.znodes.passwords import PasswordEncoder


class TopicRange(InputPartition):
    """A partition with topics, by name."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(list(names))
        self.names = names


class OtherFamilies(InputPartition):
    """A partition with everything except topics."""

    def __init__(self) -> None:
        super().__init__(None)


class _Reader(RowReader):
    @cached_property
    def settings(self) -> Settings | None:
        """The settings of the property file, if one is named."""
        return load_settings(Path(self.options["config"]))[0] if "config" in self.options else None

    def encoder(self) -> PasswordEncoder:
        """Decodes passwords, if there is a secret."""
        secret = None if self.settings is None else self.settings.password_encoder_secret
        return PasswordEncoder(None if secret is None else secret.reveal(), os.urandom)


class LiveReader(_Reader):
    """One partition for the small families, the topics in ranges; each has a session of its own."""

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        with packing(), ZooKeeperSession(self._session_options()) as session:
            names = topic_names(BulkReader(session))
        size = max(1, -(-len(names) // self.shards))
        ranges = [TopicRange(names[start : start + size]) for start in range(0, len(names), size)]
        return [OtherFamilies(), *ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part (see `DataSourceReader`)."""
        with packing(), ZooKeeperSession(self._session_options()) as session:
            tree = BulkReader(session)
            yield from arrow_batches(
                topics(tree, partition.names, self.encoder(), self.salt)
                if isinstance(partition, TopicRange)
                else other_families(tree, self.encoder(), self.salt)
            )

    def _session_options(self) -> SessionOptions:
        if self.settings is None:
            return SessionOptions(self.options["hosts"])
        return options_from(self.settings, self.options.get("hosts"))


class FilesReader(_Reader):
    """Each partition reads all files and keeps its share, so that no partition holds everything."""

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        with packing():
            count = self.shares_of(total_bytes(self._files()))
        return [OtherFamilies(), *(Share(number, count) for number in range(count))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part (see `DataSourceReader`)."""
        with packing():
            if isinstance(partition, Share):
                keep = topics_share(self._chroot(), partition.number, partition.count)
                tree = read_tree(self._files(), keep, self._chroot()).tree
                yield from arrow_batches(topics(tree, topic_names(tree), self.encoder(), self.salt))
            else:
                tree = read_tree(self._files(), other_families_share(self._chroot()), self._chroot()).tree
                yield from arrow_batches(other_families(tree, self.encoder(), self.salt))

    def _files(self) -> DataFiles:
        return data_files([Path(directory) for directory in self.options["files"].split(os.pathsep)])

    def _chroot(self) -> str:
        if "chroot" in self.options:
            return str(self.options["chroot"]).rstrip("/")
        return "" if self.settings is None else self.settings.zookeeper_chroot


class ZooKeeperDataSource(DataSource):
    """Metadata of a ZooKeeper ensemble."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "zookeeper"

    def schema(self) -> str:
        """The columns of the rows (see `DataSource`)."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """The reader of this source (see `DataSource`)."""
        if "files" in self.options:
            return FilesReader(self.options)
        if "hosts" not in self.options and "config" not in self.options:
            raise OperatorError("no ZooKeeper is named", where="zookeeper", remedy='Set "hosts", "files" or "config"')
        return LiveReader(self.options)
