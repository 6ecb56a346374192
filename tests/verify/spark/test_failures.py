"""The operator is told the error of a reader in a worker of Spark; a defect of ours stays one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from migrator.errors import InvariantViolation, OperatorError
from migrator.log.errors import StorageError
from migrator.verify.spark.failures import is_gone, operator_error, packing

REFUSED = OperatorError("no such znode", where="zk:2181", remedy="Look there")


def raised_by(spark: SparkSession, error: Exception, cause: Exception | None = None) -> PySparkException:
    """A worker's error after its way through Spark."""

    def fails(rows: Iterator[Any]) -> Iterator[Any]:
        with packing():
            for _ in rows:
                raise error from cause
        yield from rows

    with pytest.raises(PySparkException) as raised:
        spark.range(1).mapInPandas(fails, "id long").collect()
    return raised.value


def told(spark: SparkSession, error: Exception) -> OperatorError | InvariantViolation:
    return operator_error(raised_by(spark, error))


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("error", [KeyError("planted"), RecursionError("planted"), MemoryError("planted")], ids=repr)
def test_a_defect_of_a_reader_is_no_answer_and_no_refusal(spark: SparkSession, error: Exception) -> None:
    found = told(spark, error)
    assert isinstance(found, InvariantViolation)
    assert f"{type(error).__name__}: " in str(found)
    assert "planted" in str(found)


@pytest.mark.lane("test-all")
@pytest.mark.parametrize(
    ("error", "what"),
    [(REFUSED, "could not tell: no such znode"), (OSError(5, "Input/output error", "f"), "cannot be read")],
    ids=repr,
)
def test_what_somebody_can_mend_is_a_refusal(spark: SparkSession, error: Exception, what: str) -> None:
    found = told(spark, error)
    assert isinstance(found, OperatorError)
    assert what in found.what


@pytest.mark.lane("test-all")
def test_a_file_that_is_gone_is_known_as_such(spark: SparkSession) -> None:
    """A controller removes what a snapshot replaces, also while it is read: then the log is read anew."""
    assert is_gone(raised_by(spark, StorageError("cannot read"), FileNotFoundError()))
    assert not is_gone(raised_by(spark, REFUSED, PermissionError()))
