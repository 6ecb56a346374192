"""``spark.read.format("kraft")``: canonical rows of a metadata log, of this project's controllers or of stock Kafka's.

Options: ``directory``, a controller's metadata directory, or ``controllers`` (``host:port[,...]``), running ones that
the log is fetched from as an observer does, with the security of ``config``, a controller's property file. ``salt`` and
``shards`` as for ``zookeeper``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.verify.canonical import Row
from migrator.verify.kraft import image_rows
from migrator.verify.kraft.files import end_of_log, in_share, log_bytes, read_image, share_of_partitions
from migrator.verify.kraft.observed import Observed, observed
from migrator.verify.spark.arrow_rows import SCHEMA, RowReader, Share, arrow_batches
from migrator.verify.spark.failures import packing


class KRaftReader(RowReader):
    """Each partition replays snapshot and log up to the same offset, and keeps its share of the topics."""

    def partitions(self) -> Sequence[InputPartition]:
        """The parts that Spark reads in parallel (see `DataSourceReader`)."""
        with packing():
            if "directory" in self.options:
                directory = Path(self.options["directory"])
                until, count = end_of_log(directory) - 1, self.shares_of(log_bytes(directory))
            else:
                until, count = self._observed().end_offset() - 1, self.shards
        return [Share(number, count, until) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part (see `DataSourceReader`)."""
        if not isinstance(partition, Share):
            raise TypeError(f"not a share of a log: {partition}")
        with packing():
            yield from arrow_batches(self._rows(partition))

    def _rows(self, share: Share) -> Iterator[Row]:
        image = self._image(share)
        for topic in image.topics.by_id.values():
            if in_share(topic.topic_id, share.number, share.count):
                yield from image_rows.topic_rows(topic)
        if share.number == 0:
            yield from image_rows.other_rows(image, self.salt)

    def _image(self, share: Share) -> MetadataImage:
        decode = share_of_partitions(share.number, share.count)
        if "directory" in self.options:
            return read_image(Path(self.options["directory"]), share.until, decode)
        with tempfile.TemporaryDirectory(prefix="migrator-observed-") as directory:
            self._observed().fetch(Path(directory), share.until)
            return read_image(Path(directory), share.until, decode)

    def _observed(self) -> Observed:
        return observed(self.options["controllers"], self.options.get("config"))


class KRaftDataSource(DataSource):
    """Metadata of a KRaft quorum."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kraft"

    def schema(self) -> str:
        """The columns of the rows (see `DataSource`)."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """The reader of this source (see `DataSource`)."""
        if "directory" not in self.options and "controllers" not in self.options:
            raise OperatorError("no metadata is named", where="kraft", remedy='Set "directory" or "controllers"')
        return KRaftReader(self.options)
