"""The two sides of a comparison as Spark frames; and their archive in Parquet."""

from __future__ import annotations

import os
import secrets

from pyspark.sql import DataFrame, SparkSession

from migrator.errors import OperatorError
from migrator.verify.kraft.observed import is_address
from migrator.verify.named import Sources
from migrator.verify.spark.kraft_source import KRaftDataSource
from migrator.verify.spark.zookeeper_source import ZooKeeperDataSource


def register(spark: SparkSession) -> None:
    """Make both known to a session."""
    spark.dataSource.register(ZooKeeperDataSource)
    spark.dataSource.register(KRaftDataSource)


def load_sides(spark: SparkSession, sources: Sources) -> tuple[DataFrame, DataFrame]:
    """ZooKeeper's rows and KRaft's. With an archive both are written there first, and come from there.

    :raises OperatorError: a source is not named.
    :raises PySparkException: what goes wrong in Spark; `failures.operator_error` makes sense of it.
    """
    if sources.archived:
        return _archive(spark, sources, "zookeeper"), _archive(spark, sources, "kraft")
    register(spark)
    common = {"salt": secrets.token_hex(32), "shards": str(sources.shards)}
    if sources.config is not None:
        common["config"] = sources.config
    sides = {"zookeeper": common | _zookeeper(sources), "kraft": common | _kraft(sources)}
    frames = {name: spark.read.format(name).options(**options).load() for name, options in sides.items()}
    if sources.archive is not None:
        for name, frame in frames.items():
            frame.write.parquet(f"{sources.archive}/{name}")
            frames[name] = _archive(spark, sources, name)
    return frames["zookeeper"], frames["kraft"]


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
