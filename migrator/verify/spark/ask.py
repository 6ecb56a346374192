"""Answers questions in SQL about a metadata log and ZooKeeper, in a given session."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from migrator.errors import InvariantViolation, OperatorError
from migrator.values import value
from migrator.verify.named import Sources
from migrator.verify.questions import VIEWS, sql_of
from migrator.verify.spark.failures import operator_error
from migrator.verify.spark.metadata_source import METADATA
from migrator.verify.spark.sides import ZOOKEEPER, register, zookeeper_options


@value
class Question:
    """``name``: one of `QUESTIONS`; or ``sql``, the operator's own. ``since``: the last offset before the span that is
    asked about; ``as_of``: the last offset to read."""

    name: str | None
    sql: str | None
    since: int
    as_of: int


@contextmanager
def answered(spark: SparkSession, sources: Sources, question: Question) -> Iterator[DataFrame]:
    """The answer, to be read while the context lasts.

    :param sources: ``metadata`` is a directory; ZooKeeper's view exists if ZooKeeper is named.
    :raises OperatorError: a source cannot be read, or the operator's SQL is not valid.
    """
    try:
        _define_views(spark, sources, question.as_of)
        yield _asked(spark, question)
    except (PySparkException, Py4JError) as error:
        raise operator_error(error) from error
    finally:
        for name in ("kraft", "changes", "zookeeper", *VIEWS):
            spark.catalog.dropTempView(name)


def _define_views(spark: SparkSession, sources: Sources, as_of: int) -> None:
    register(spark)
    common = {"salt": secrets.token_hex(32)}
    log = spark.read.format(METADATA).options(**common, path=sources.metadata or "", as_of=str(as_of))
    log.load().createOrReplaceTempView("kraft")
    log.option("mode", "changes").load().createOrReplaceTempView("changes")
    options = zookeeper_options(sources)
    if options:
        spark.read.format(ZOOKEEPER).options(**common, **options).load().createOrReplaceTempView("zookeeper")
    for name in VIEWS:
        spark.sql(sql_of(name)).createOrReplaceTempView(name)


def _asked(spark: SparkSession, question: Question) -> DataFrame:
    text = sql_of(question.name or "") if question.sql is None else question.sql
    try:
        return spark.sql(text, args={"since": question.since})
    except AnalysisException as error:  # a ParseException is one, too
        if question.sql is None:
            raise InvariantViolation(f"Spark does not take the SQL of {question.name}: {error}") from error
        what = str(error).partition("\n\n")[0].partition(" SQLSTATE")[0].strip()
        raise OperatorError(
            f"Spark does not take this SQL: {what}",
            where="--sql",
            remedy="The views are kraft, changes, history, partitions and, if it is named, zookeeper: see docs/ask.md",
        ) from error
