"""One Spark for all tests of the room: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from migrator.parts.java import ONE_TIER
from migrator.verify.spark.session import JAVA_OPTIONS, spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]", {JAVA_OPTIONS: ONE_TIER}) as session:
        yield session
