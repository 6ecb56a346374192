"""The two sides of a comparison as Spark frames; and their archive in Parquet.

`verify` calls `loaded_sides`; the data source of ZooKeeper works in workers, which get only picklable values. Both
frames have the same columns of canonical rows, so a join finds every difference. A side that cannot be read completely
is an error: a verdict never rests on a part.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.verify.canonical import Row
from migrator.verify.comparison import Reading
from migrator.verify.kraft.observed import is_address
from migrator.verify.named import Sources
from migrator.verify.places import place
from migrator.verify.spark.arrow_rows import SCHEMA, RowReader, arrow_batches, require_options
from migrator.verify.spark.failures import PackedError, operator_error, packing
from migrator.verify.spark.kraft_source import RecordsSource, metadata_rows
from migrator.verify.spark.metadata_source import MetadataSource
from migrator.verify.zookeeper.files import DataFiles, data_files
from migrator.verify.zookeeper.parts import Division, Part, divided, part_rows, ranges_of
from migrator.verify.zookeeper.reading import other_families, topic_names, topics
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, options_from
from migrator.zookeeper.znodes.passwords import PasswordEncoder

ZOOKEEPER = "kafka-zookeeper"
OF_TOPICS = frozenset({"topic", "partition", "config"})
_BETWEEN = re.compile(f"{os.pathsep}(?!//)")
"""Between two directories: the colon of ``s3://`` has slashes behind it."""
_ZXID = re.compile("0x[0-9a-f]{1,16}")
_DIVISION = "division"
"""An option for `verify` only: how the files were divided."""
OF_LOG, OF_FILES = "the metadata log", "ZooKeeper's files"
_OPTIONS = frozenset({"hosts", "path", "chroot", "config", "kind", "salt", "shards", "as_of"})


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

    @property
    def wants_topics(self) -> bool:
        """Whether topics, their partitions or their configurations are asked for."""
        return not self.kinds or not self.kinds.isdisjoint(OF_TOPICS)

    def batches(self, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
        return arrow_batches(rows if not self.kinds else (row for row in rows if row[0] in self.kinds))


class LiveReader(_Reader):
    """One partition for the small families, the topics in ranges; each has a separate session."""

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        if not self.wants_topics:
            return [OtherFamilies()]
        with packing(), ZooKeeperSession(self._session_options()) as session:
            names = topic_names(BulkReader(session))
        size = max(1, -(-len(names) // self.shards))
        ranges = [TopicRange(names[start : start + size]) for start in range(0, len(names), size)]
        return [OtherFamilies(), *ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part (see `DataSourceReader`)."""
        with packing(), ZooKeeperSession(self._session_options()) as session:
            tree = BulkReader(session)
            yield from self.batches(
                topics(tree, partition.names, self.encoder(), self.salt)
                if isinstance(partition, TopicRange)
                else other_families(tree, self.encoder(), self.salt)
            )

    def _session_options(self) -> SessionOptions:
        if self.settings is None:
            return SessionOptions(self.options["hosts"])
        return options_from(self.settings, self.options.get("hosts"))


class FilesPart(InputPartition):
    """A partition with one part of the files."""

    def __init__(self, part: Part) -> None:
        super().__init__(None)
        self.part = part


class FilesReader(_Reader):
    """Each partition reads its part of the snapshot, and the logs."""

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        with packing():
            given = self.options.get(_DIVISION)
            others, *of_topics = (Division.from_text(given) if given is not None else self.divided()).parts
        return [FilesPart(part) for part in (others, *(of_topics if self.wants_topics else ()))]

    def divided(self) -> Division:
        """Divide the files; errors as in `divided` of the files."""
        return divided(self._files(), self.shards, self._chroot())

    def reading(self, division: Division) -> Reading:
        """The bytes that the tasks of a division read."""
        files = self._files()
        return Reading.of([ranges_of(files, part) for part in division.parts], division.names)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part (see `DataSourceReader`)."""
        if not isinstance(partition, FilesPart):
            raise TypeError(f"not a part of files: {partition}")
        with packing():
            rows = part_rows(self._files(), partition.part, self._chroot(), self.encoder(), self.salt)
            yield from self.batches(rows)

    def _files(self) -> DataFiles:
        path = self.options["path"]
        names = json.loads(path) if path.startswith('["') else _BETWEEN.split(path)
        files = data_files(list(map(place, names)))
        return files if "as_of" not in self.options else files.as_of(int(self.options["as_of"], 0))

    def _chroot(self) -> str:
        if "chroot" in self.options:
            return str(self.options["chroot"]).rstrip("/")
        return "" if self.settings is None else self.settings.zookeeper_chroot


class ZooKeeperDataSource(DataSource):
    """Canonical rows of a live ZooKeeper, or of the files of a server. Options: ``hosts``
    (``host:port[,...][/chroot]``), or ``path``, the ``dataDir`` and the ``dataLogDir`` separated like a PATH or
    as a JSON list, which names with a colon need, and ``chroot``, and ``as_of``, the last zxid to read; ``config``, a
    controller's property file, for security, chroot and the secret that decodes passwords; ``kind``, the kinds of rows,
    separated by commas; ``salt`` (hex), the key of the hashes that replace secrets; ``shards``, the least number of
    partitions."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return ZOOKEEPER

    def schema(self) -> str:
        """The columns of the rows (see `DataSource`)."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """The reader of this source (see `DataSource`)."""
        with packing():
            require_options(
                ZOOKEEPER, {name: text for name, text in self.options.items() if name != _DIVISION}, _OPTIONS
            )
            as_of = self.options.get("as_of", "0x0")
            if ("path" not in self.options and "as_of" in self.options) or not _ZXID.fullmatch(as_of):
                what = f"{as_of!r} is no zxid, or ZooKeeper is read from its servers"
                raise OperatorError(what, where="as_of", remedy='Give a zxid such as 0x1f, and "path"')
            if "path" in self.options:
                return FilesReader(self.options)
            if "hosts" not in self.options and "config" not in self.options:
                raise OperatorError("no ZooKeeper is named", where=ZOOKEEPER, remedy='Set "hosts", "path" or "config"')
            return LiveReader(self.options)


def register(spark: SparkSession) -> None:
    """Register the data sources with a session."""
    for source in (ZooKeeperDataSource, MetadataSource, RecordsSource):
        spark.dataSource.register(source)


@contextmanager
def loaded_sides(
    spark: SparkSession, sources: Sources, tell: Callable[[str, Reading], None]
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """ZooKeeper's rows and KRaft's, while the context lasts. With an archive, both are written there first and read
    from there.

    :param tell: called with `OF_LOG` when the metadata log is read, with `OF_FILES` when ZooKeeper's files are divided.
    :raises OperatorError: a source is not named, or the log holds nothing that can be compared.
    :raises PySparkException: an error in Spark; `failures.operator_error` translates it.
    """
    if sources.archived:
        yield _archive(spark, sources, "zookeeper"), _archive(spark, sources, "kraft")
        return
    register(spark)
    common = {"salt": secrets.token_hex(32), "shards": str(sources.shards)}
    with metadata_rows(spark, common | _kraft(sources), partial(tell, OF_LOG)) as kraft:
        options = common | zookeeper_options(sources)
        if sources.zookeeper_files:
            options |= _divided(options, partial(tell, OF_FILES))
        zookeeper = spark.read.format(ZOOKEEPER).options(**options).load()
        if sources.archive is None:
            yield zookeeper, kraft
            return
        for name, frame in {"zookeeper": zookeeper, "kraft": kraft}.items():
            frame.write.parquet(f"{sources.archive}/{name}")
    yield _archive(spark, sources, "zookeeper"), _archive(spark, sources, "kraft")


def _divided(options: dict[str, str], tell: Callable[[Reading], None]) -> dict[str, str]:
    """Divide ZooKeeper's files here, instead of where Spark plans: so it is known what its tasks read."""
    reader = FilesReader(options)
    try:
        with packing():
            division = reader.divided()
            tell(reader.reading(division))
    except PackedError as error:
        raise operator_error(error) from error
    return {_DIVISION: division.to_text()}


def _archive(spark: SparkSession, sources: Sources, name: str) -> DataFrame:
    return spark.read.parquet(f"{sources.archive}/{name}")


def zookeeper_options(sources: Sources) -> dict[str, str]:
    """The options of the source of ZooKeeper; empty if the sources do not name ZooKeeper."""
    if sources.zookeeper_files:
        files = {"path": json.dumps(sources.zookeeper_files)}
        options = files if sources.chroot is None else files | {"chroot": sources.chroot}
    else:
        options = {"hosts": sources.zookeeper} if sources.zookeeper else {}
    return options if sources.config is None else options | {"config": sources.config}


def _kraft(sources: Sources) -> dict[str, str]:
    if sources.metadata is None:
        raise OperatorError(
            "no metadata is named", where="--metadata", remedy="Give --metadata, or a property file with -c"
        )
    config = {} if sources.config is None else {"config": sources.config}
    return {"controllers" if is_address(sources.metadata) else "directory": sources.metadata} | config
