"""The Spark data sources, ``zookeeper`` and ``kraft``: both give canonical rows, read in parallel."""

from __future__ import annotations

from pyspark.sql import SparkSession

from migrator.verify.spark.kraft_source import KRaftDataSource
from migrator.verify.spark.zookeeper_source import ZooKeeperDataSource


def register(spark: SparkSession) -> None:
    """Make both known to a session."""
    spark.dataSource.register(ZooKeeperDataSource)
    spark.dataSource.register(KRaftDataSource)
