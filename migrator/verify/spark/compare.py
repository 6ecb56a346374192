"""The comparison: a full outer join of both sides' canonical rows, in Spark.

`verify` calls `compare`. Each source is read once. Only counts and a bounded number of differences reach the driver.
Which values count as equal is in one table of rules.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from migrator.verify.canonical import KINDS, RULES, Equality
from migrator.verify.comparison import SUSPECTS_MAX, Comparison, Difference, counts_of, place_of


def compare(zookeeper: DataFrame, kraft: DataFrame) -> Comparison:
    """Compare two frames of canonical rows in one pass: each source is read once."""
    left = zookeeper.withColumnRenamed("value", "zookeeper")
    right = kraft.withColumnRenamed("value", "kraft")
    joined = left.join(right, ["kind", "entity", "field"], "full_outer").withColumn("status", _status())
    place = F.struct("entity", "field")
    summary = joined.groupBy("kind", "status").agg(
        F.count(F.lit(1)).alias("rows"),
        F.min_by(
            F.struct("kind", "entity", "field", "zookeeper", "kraft"),
            F.when(F.col("status") != "equal", place),
            SUSPECTS_MAX,
        ).alias("found"),
    )
    rows = {(row["kind"], row["status"]): row for row in summary.collect()}
    found = sorted((Difference(*one) for row in rows.values() for one in row["found"] or ()), key=place_of)
    counts = {key: row["rows"] for key, row in rows.items()}
    return Comparison({kind: counts_of(counts, kind) for kind in KINDS}, tuple(found))


def _status() -> Column:
    return (
        F.when(F.col("zookeeper").isNull(), "extra")
        .when(F.col("kraft").isNull(), "missing")
        .when(_equal(), "equal")
        .otherwise("different")
    )


def _equal() -> Column:
    """The table of rules as one expression, for rows that both sides have; never null."""
    special = [rule for rule in RULES if rule.equality is not Equality.SAME]
    same: Column = F.col("zookeeper") == F.col("kraft")
    chosen = reduce(
        lambda rest, rule: F.when(
            (F.col("kind") == rule.kind) & (F.col("field") == rule.field), _EXPRESSIONS[rule.equality]()
        ).otherwise(rest),
        special,
        same,
    )
    return F.coalesce(chosen, F.lit(False))


def _at_least() -> Column:
    return F.col("zookeeper").cast("long") >= F.col("kraft").cast("long")


def _one_of() -> Column:
    return F.array_contains(F.split("zookeeper", r"\|"), F.col("kraft"))


_EXPRESSIONS = {Equality.AT_LEAST: _at_least, Equality.ONE_OF: _one_of}
