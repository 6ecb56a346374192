"""The comparison itself, on rows made by hand: what it must find, and what it must not."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from migrator.verify.canonical import COLUMNS, KINDS, Row
from migrator.verify.comparison import EXAMPLES_MAX, SUSPECTS_MAX, Comparison, Difference, KindCounts, settled
from migrator.verify.spark.compare import compare

SCHEMA = ", ".join(f"{column} string" for column in COLUMNS)

ROWS: list[Row] = [
    ("topic", "t", "id", "AAAAAAAAAAAAAAAAAAAAew"),
    ("topic", "t", "partitions", "2"),
    *((("partition", f"t-{p}", field, "1")) for p in (0, 1) for field in ("replicas", "isr", "leader", "epoch")),
    ("config", "topic:t", "retention.ms", "1000"),
    ("config", "broker:", "log.retention.ms", ""),
    ("quota", "user <default>", "producer_byte_rate", "1000.0"),
    ("scram", "alice", "SCRAM-SHA-256", "hmac:00"),
    ("acl", "literal Topic:t", "User:a Allow Read from *", ""),
    ("producer ids", "", "next", "1000"),
    ("token", "id", "owner", "User:a"),
]


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)


def compared(spark: SparkSession, zookeeper: list[Row], kraft: list[Row]) -> Comparison:
    return compare(frame(spark, zookeeper), frame(spark, kraft))


@pytest.mark.lane("test-all")
def test_equal_sides_have_no_difference_in_whatever_order(spark: SparkSession) -> None:
    shuffled = ROWS[:]
    Random(1).shuffle(shuffled)
    result = compared(spark, ROWS, shuffled)
    assert result.differences == 0
    assert result.examples == ()
    assert {kind: (counts.zookeeper, counts.kraft) for kind, counts in result.kinds.items()} == {
        kind: (expected := sum(row[0] == kind for row in ROWS), expected) for kind in KINDS
    }


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("kind", KINDS)
def test_a_single_difference_of_each_kind_and_direction_is_found(spark: SparkSession, kind: str) -> None:
    index = next(i for i, row in enumerate(ROWS) if row[0] == kind)
    row = ROWS[index]
    without = ROWS[:index] + ROWS[index + 1 :]
    changed = [*without, (*row[:3], "something else")]
    assert compared(spark, ROWS, without).examples == (Difference(*row[:3], row[3], None),)
    assert compared(spark, without, ROWS).examples == (Difference(*row[:3], None, row[3]),)
    result = compared(spark, ROWS, changed)
    assert result.examples == (Difference(*row[:3], row[3], "something else"),)
    assert (result.kinds[kind].different, result.differences) == (1, 1)


@pytest.mark.lane("test-all")
@pytest.mark.parametrize(("zookeeper", "kraft", "equal"), [(7, 7, True), (9, 7, True), (7, 9, False), (10, 9, True)])
def test_a_state_znode_may_be_ahead_of_the_partition_epoch_but_not_behind(
    spark: SparkSession, zookeeper: int, kraft: int, equal: bool
) -> None:
    sides = [[("partition", "t-0", "epoch", str(number))] for number in (zookeeper, kraft)]
    assert (compared(spark, *sides).differences == 0) is equal


@pytest.mark.lane("test-all")
@pytest.mark.parametrize(("kraft", "equal"), [("1000", True), ("2000", True), ("1001", False), ("3000", False)])
def test_the_next_producer_id_starts_or_follows_the_block(spark: SparkSession, kraft: str, equal: bool) -> None:
    zookeeper: list[Row] = [("producer ids", "", "next", "1000|2000")]
    assert (compared(spark, zookeeper, [("producer ids", "", "next", kraft)]).differences == 0) is equal


@pytest.mark.lane("test-all")
def test_only_a_bounded_number_of_examples_reaches_the_driver(spark: SparkSession) -> None:
    many: list[Row] = [("config", "topic:t", f"key-{number}", "1") for number in range(SUSPECTS_MAX + 1)]
    result = compared(spark, many, [])
    assert result.kinds["config"].missing == SUSPECTS_MAX + 1
    assert len(result.found) == SUSPECTS_MAX
    assert len(result.examples) == EXAMPLES_MAX


def test_what_was_read_again_counts_as_it_was_then() -> None:
    """One of three turned out equal, one from "missing" to "different", one stayed; a fourth was never read again."""
    leaves = [("config", "topic:t", name) for name in "abc"]
    first = Comparison({"config": KindCounts(10, 6, 4, 0, 0)}, tuple(Difference(*leaf, "1", None) for leaf in leaves))
    still = (Difference(*leaves[2], "1", None), Difference(*leaves[1], "1", "2"))
    assert settled(first, still, leaves[:1]) == Comparison(
        {"config": KindCounts(10, 8, 2, 0, 1)}, (Difference(*leaves[1], "1", "2"), Difference(*leaves[2], "1", None))
    )
