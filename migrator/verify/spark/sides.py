"""The two sides of a comparison as Spark frames; and their archive in Parquet."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from migrator.errors import OperatorError
from migrator.verify.kraft.observed import is_address
from migrator.verify.named import Sources
from migrator.verify.spark.kraft_source import RecordsSource, metadata_rows
from migrator.verify.spark.zookeeper_source import ZooKeeperDataSource


def register(spark: SparkSession) -> None:
    """Register both data sources with a session."""
    spark.dataSource.register(ZooKeeperDataSource)
    spark.dataSource.register(RecordsSource)


@contextmanager
def loaded_sides(
    spark: SparkSession, sources: Sources, begin: Callable[[str], None]
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """ZooKeeper's rows and KRaft's, while the context lasts. With an archive, both are written there first and read
    from there.

    :param begin: called with what was read.
    :raises OperatorError: a source is not named, or the log holds nothing that can be compared.
    :raises PySparkException: an error in Spark; `failures.operator_error` translates it.
    """
    if sources.archived:
        yield _archive(spark, sources, "zookeeper"), _archive(spark, sources, "kraft")
        return
    register(spark)
    common = {"salt": secrets.token_hex(32), "shards": str(sources.shards)}
    if sources.config is not None:
        common["config"] = sources.config
    zookeeper = spark.read.format("zookeeper").options(**common, **_zookeeper(sources)).load()
    with metadata_rows(spark, common | _kraft(sources), begin) as kraft:
        if sources.archive is None:
            yield zookeeper, kraft
            return
        for name, frame in {"zookeeper": zookeeper, "kraft": kraft}.items():
            frame.write.parquet(f"{sources.archive}/{name}")
    yield _archive(spark, sources, "zookeeper"), _archive(spark, sources, "kraft")


def _archive(spark: SparkSession, sources: Sources, name: str) -> DataFrame:
    return spark.read.parquet(f"{sources.archive}/{name}")


def _zookeeper(sources: Sources) -> dict[str, str]:
    if sources.zookeeper_files:
        files = {"files": os.pathsep.join(sources.zookeeper_files)}
        return files if sources.chroot is None else files | {"chroot": sources.chroot}
    return {"hosts": sources.zookeeper} if sources.zookeeper else {}


def _kraft(sources: Sources) -> dict[str, str]:
    if sources.metadata is None:
        raise OperatorError(
            "no metadata is named", where="--metadata", remedy="Give --metadata, or a property file with -c"
        )
    return {"controllers" if is_address(sources.metadata) else "directory": sources.metadata}
