"""200 single differences in a verified pair: all are found, and nothing else is; 50 harmless changes are no difference.

Every case goes the whole way from a snapshot on disk and from znodes to rows; one job of Spark compares them all, with
the case's number in front of each entity.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.snapshots import SnapshotWriter
from migrator.raft.messages import EpochOffset
from migrator.records.codec import encode_all
from migrator.verify.canonical import KINDS, Row
from migrator.verify.kraft import image_rows
from migrator.verify.kraft.files import read_image
from migrator.verify.spark import compare as comparing
from migrator.verify.spark.arrow_rows import ARROW_SCHEMA
from migrator.verify.zookeeper.files import ZnodeTree
from migrator.verify.zookeeper.reading import other_families, topic_names, topics
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.golden.stock import STOCK_391, read_dump
from tests.image.support.snapshots import snapshot_records
from tests.lanes import seeds
from tests.verify.support.mutations import LOG_MUTATIONS, NEUTRAL, ZNODE_MUTATIONS, Leaf, Records, Znodes

MUTATED = 200
CLEAN = 50
LEVEL = 21
SALT = b"one run"
ENCODER = PasswordEncoder(STOCK_391.settings()["password.encoder.secret"], os.urandom)


def log_rows(directory: Path, records: Records) -> Iterator[Row]:
    """By way of a snapshot in Kafka's format."""
    folder = directory / DIRECTORY_NAME
    folder.mkdir(parents=True)
    with SnapshotWriter(folder, EpochOffset(1, 100), last_contained_log_timestamp_ms=0, now_ms=0) as writer:
        writer.append(encode_all(records, LEVEL), now_ms=0)
        writer.freeze(now_ms=0)
    image = read_image(directory)
    for topic in image.topics.by_id.values():
        yield from image_rows.topic_rows(topic)
    yield from image_rows.other_rows(image, SALT)


def znode_rows(znodes: Znodes) -> Iterator[Row]:
    tree = ZnodeTree(znodes)
    yield from topics(tree, topic_names(tree), ENCODER, SALT)
    yield from other_families(tree, ENCODER, SALT)


class Cases:
    """Pairs of sides, each with the leaves that differ."""

    def __init__(self, directory: Path) -> None:
        self.expected: dict[int, set[Leaf]] = {}
        self.names: dict[int, str] = {}
        self._directory = directory
        self._sides: tuple[list[Row], list[Row]] = ([], [])
        self._znodes = {znode.path: znode for znode in read_dump(STOCK_391.after)}
        log = directory / "stock" / DIRECTORY_NAME
        log.mkdir(parents=True)
        (log / f"{0:020d}.log").write_bytes(STOCK_391.log.read_bytes())
        self._records = list(snapshot_records(read_image(log.parent)))

    def pair(self) -> tuple[Records, Znodes]:
        """A fresh copy of what stock Kafka migrated."""
        return list(self._records), dict(self._znodes)

    def add(self, name: str, records: Records, znodes: Znodes, expected: set[Leaf]) -> None:
        number = len(self.expected)
        self.expected[number], self.names[number] = expected, name
        made = znode_rows(znodes), log_rows(self._directory / str(number), records)
        for side, rows in zip(self._sides, made, strict=True):
            side.extend((kind, f"{number}/{entity}", field, text) for kind, entity, field, text in rows)

    def frames(self, spark: SparkSession) -> list[DataFrame]:
        tables = [
            pa.table([list(column) for column in zip(*side, strict=True)], schema=ARROW_SCHEMA) for side in self._sides
        ]
        return [spark.createDataFrame(table) for table in tables]


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("numbers", seeds(1, 30))
def test_every_single_difference_is_found_and_none_is_invented(
    spark: SparkSession, tmp_path: Path, numbers: range
) -> None:
    for seed in numbers:
        try_mutations(spark, tmp_path / str(seed), seed)


def try_mutations(spark: SparkSession, folder: Path, seed: int) -> None:
    generator = random.Random(seed)
    cases = Cases(folder)
    mutations = [*LOG_MUTATIONS, *ZNODE_MUTATIONS]
    for number in range(MUTATED):
        records, znodes = cases.pair()
        mutation = mutations[number % len(mutations)]
        side = records if mutation in LOG_MUTATIONS else znodes
        cases.add(mutation.__name__, records, znodes, mutation(generator, side))  # type: ignore[operator]
    for number in range(CLEAN):
        records, znodes = cases.pair()
        chosen = generator.sample(NEUTRAL, 1 + number % len(NEUTRAL))
        for neutral in chosen:
            neutral(generator, records, znodes)
        cases.add(" ".join(neutral.__name__ for neutral in chosen), records, znodes, set())

    comparison = comparing.compare(*cases.frames(spark))

    found: defaultdict[int, set[Leaf]] = defaultdict(set)
    for example in comparison.found:
        number_, _, entity = example.entity.partition("/")
        found[int(number_)].add((example.kind, entity, example.field))
    wrong = {
        f"{number} {cases.names[number]}": (sorted(expected), sorted(found[number]))
        for number, expected in cases.expected.items()
        if found[number] != expected
    }
    assert not wrong, f"seed {seed}: expected, found: {wrong}"
    assert {kind for leaves in found.values() for kind, _, _ in leaves} == set(KINDS)
    assert comparison.differences == sum(map(len, cases.expected.values()))
