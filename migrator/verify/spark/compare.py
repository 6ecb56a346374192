"""The comparison: a full outer join of both sides' canonical rows, in Spark.

Only counts and a bounded number of differences reach the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from migrator.values import value
from migrator.verify.canonical import KINDS, RULES, Equality

EXAMPLES_MAX = 50
"""Differences that are shown."""
SUSPECTS_MAX = 2_000
"""Differences of one kind and status that reach the driver, where they are read again."""


@value
class Difference:
    """One leaf that differs; None where a side has no such row."""

    kind: str
    entity: str
    field: str
    zookeeper: str | None
    kraft: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        """Which leaf it is."""
        return self.kind, self.entity, self.field

    @property
    def status(self) -> str:
        """missing: only ZooKeeper has it; extra: only KRaft has it; different."""
        return "extra" if self.zookeeper is None else "missing" if self.kraft is None else "different"


@value
class KindCounts:
    """Rows of one kind, and how many of them differ."""

    zookeeper: int
    kraft: int
    missing: int
    extra: int
    different: int


@value
class Comparison:
    """Counts by kind, and differences: at most `SUSPECTS_MAX` of one kind and status."""

    kinds: dict[str, KindCounts]
    found: tuple[Difference, ...]

    @property
    def examples(self) -> tuple[Difference, ...]:
        """What is shown of the differences."""
        return self.found[:EXAMPLES_MAX]

    @property
    def rows(self) -> int:
        """All rows of both sides."""
        return sum(counts.zookeeper + counts.kraft for counts in self.kinds.values())

    @property
    def differences(self) -> int:
        """How many leaves differ."""
        return sum(counts.missing + counts.extra + counts.different for counts in self.kinds.values())


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
    found = sorted((Difference(*one) for row in rows.values() for one in row["found"] or ()), key=_place)
    counts = {key: row["rows"] for key, row in rows.items()}
    return Comparison({kind: _counts(counts, kind) for kind in KINDS}, tuple(found))


def settled(first: Comparison, different: Iterable[Difference], agreed: Collection[tuple[str, str, str]]) -> Comparison:
    """The comparison as it is after differences were read again; those beyond `SUSPECTS_MAX` count as first seen.

    :param different: what differs now; its values may be others than at first.
    :param agreed: the leaves that turned out to be equal.
    """
    now = sorted(different, key=_place)
    counts: Counter[tuple[str, str]] = Counter()
    for kind, seen in first.kinds.items():
        differing = {"missing": seen.missing, "extra": seen.extra, "different": seen.different}
        counts.update({(kind, status): number for status, number in differing.items()})
        counts[kind, "equal"] = seen.zookeeper - seen.missing - seen.different
    counts.subtract((one.kind, one.status) for one in first.found)
    counts.update((one.kind, one.status) for one in now)
    counts.update((kind, "equal") for kind, _, _ in agreed)
    return Comparison({kind: _counts(counts, kind) for kind in first.kinds}, tuple(now))


def _place(difference: Difference) -> tuple[str, str, str]:
    return difference.key


def _counts(rows: Mapping[tuple[str, str], int], kind: str) -> KindCounts:
    equal, missing, extra, different = (
        rows.get((kind, status), 0) for status in ("equal", "missing", "extra", "different")
    )
    return KindCounts(equal + different + missing, equal + different + extra, missing, extra, different)


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
