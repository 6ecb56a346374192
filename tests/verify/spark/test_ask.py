"""The questions of `migrator ask`: every command of docs/ask.md, with the output that stands there."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame, Row, SparkSession

from migrator.cli.ask import command
from migrator.cli.ask_run import _shown, show
from migrator.cli.terminal import say_json
from migrator.errors import OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.segment import segment_name
from migrator.records import metadata as m
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.uuid import Uuid, uuid_to_text
from migrator.verify.named import Sources
from migrator.verify.questions import QUESTIONS
from migrator.verify.spark.ask import Question, answered
from migrator.zookeeper.znodes import paths
from tests.image.support.strategies import small_uuid
from tests.verify.zookeeper.support.writer import Node, write_nodes

pytestmark = pytest.mark.lane("test-all")
PAGE = Path(__file__).parents[3] / "docs/ask.md"
ZONE = "spark.sql.session.timeZone"
METADATA, DATA = "/var/lib/kafka/metadata", "/var/lib/zookeeper"
BOTH = ("--metadata", METADATA, "--zookeeper-files", DATA)
TEN_O_CLOCK_MS, MINUTE_MS = 1_767_261_600_000, 60_000
ORDERS, AUDIT = small_uuid(1), small_uuid(2)
TOPIC = m.ConfigResourceType.TOPIC
RINGS: dict[int, tuple[int, ...]] = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}


def shrunk(*isr: int) -> m.PartitionChangeRecord:
    return m.PartitionChangeRecord(0, ORDERS, isr=isr)


STEPS: tuple[tuple[m.MetadataRecord, ...], ...] = (
    (
        m.FeatureLevelRecord("metadata.version", 21),
        m.TopicRecord("orders", ORDERS),
        *(m.PartitionRecord(one, ORDERS, ring, ring, (), (), ring[0], 0, 0, 0) for one, ring in RINGS.items()),
        m.ConfigRecord(TOPIC, "orders", "min.insync.replicas", "2"),
        m.TopicRecord("audit", AUDIT),
        m.PartitionRecord(0, AUDIT, (2,), (2,), (), (), 2, 0, 0, 0),
        m.ConfigRecord(TOPIC, "audit", "retention.ms", "86400000"),
    ),
    (shrunk(1, 2),),
    (shrunk(1),),
    (shrunk(1, 2, 3),),
    (m.PartitionChangeRecord(1, ORDERS, leader=3),),
    (m.ConfigRecord(TOPIC, "audit", "retention.ms", "3600000"),),
)
"""The records of one batch each, a minute after the one before."""


def write_log(directory: Path, steps: Sequence[tuple[m.MetadataRecord, ...]] = STEPS) -> None:
    segment, offset = directory / DIRECTORY_NAME / segment_name(0), 0
    segment.parent.mkdir(parents=True, exist_ok=True)
    with segment.open("wb") as file:
        for number, records in enumerate(steps):
            time_ms = TEN_O_CLOCK_MS + number * MINUTE_MS
            file.write(build_batch(encode_all(records, 21), timestamp_ms=time_ms, base_offset=offset, leader_epoch=1))
            offset += len(records)


def znodes(retention: str = "1000") -> Iterator[Node]:
    """The content of ZooKeeper: it does not have the new leader yet, and has a foreign retention."""
    for root in (paths.TOPICS, paths.TOPIC_CONFIGS, paths.DELETE_TOPICS):
        yield from ((path, None, 0) for path in (*paths.ancestors(root), root))
    yield from topic("orders", ORDERS, RINGS, {"min.insync.replicas": "2"})
    yield from topic("audit", AUDIT, {0: (2,)}, {"retention.ms": retention})


def topic(name: str, topic_id: Uuid, rings: dict[int, tuple[int, ...]], config: dict[str, str]) -> Iterator[Node]:
    assignment = {"version": 3, "topic_id": uuid_to_text(topic_id), "partitions": rings}
    yield paths.topic(name), json.dumps(assignment).encode(), 0
    yield paths.partitions(name), None, 0
    for one, ring in rings.items():
        state = {"controller_epoch": 7, "leader": ring[0], "version": 1, "leader_epoch": 0, "isr": ring}
        yield paths.partition(name, one), None, 0
        yield paths.partition_state(name, one), json.dumps(state).encode(), 3 if (name, one) == ("orders", 0) else 0
    yield paths.topic_config(name), json.dumps({"version": 1, "config": config}).encode(), 0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("both")
    write_log(directory / "metadata")
    write_nodes(directory / "data", znodes())
    return directory


def ask(both: Path, *words: str) -> Result:
    found = [word.replace(METADATA, f"{both}/metadata").replace(DATA, f"{both}/data") for word in words]
    return CliRunner(env={**os.environ, "COLUMNS": "140"}).invoke(command, found, standalone_mode=False)


def page() -> list[tuple[str, str]]:
    """The commands of the page, and what stands below them."""
    return re.findall(r"^\$ migrator ask ((?:.*\\\n)*.*)\n((?:(?!^\$|^```).*\n)*)", PAGE.read_text(), re.MULTILINE)


def test_the_page_has_every_question() -> None:
    assert {words.split()[0] for words, _ in page()} >= {*QUESTIONS, "--sql"}


@pytest.mark.parametrize(("words", "expected"), page(), ids=lambda text: text.split()[0] if text else "")
def test_the_answer_is_that_of_the_page(spark: SparkSession, both: Path, words: str, expected: str) -> None:
    answer = ask(both, *shlex.split(words))
    assert answer.exception is None, answer.exception
    said = "\n".join(line.rstrip() for line in answer.stdout.splitlines())
    assert said == expected.rstrip("\n"), said


def test_parquet_holds_the_answer(spark: SparkSession, both: Path, tmp_path: Path) -> None:
    ask(both, "offline-in-roll", "--metadata", METADATA, "--parquet", str(tmp_path / "answer"))
    assert pq.read_table(tmp_path / "answer").column("topic").to_pylist() == ["audit"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *(
            (("--sql", f"{sql} --", "--metadata", METADATA), "Spark does not take this SQL as a query: [PARSE_SYNTAX")
            for sql in (
                "CREATE TABLE taken AS SELECT * FROM kraft",
                "INSERT INTO kraft VALUES (1)",
                "WITH a AS (SELECT 1) INSERT INTO kraft SELECT * FROM a",
                "FROM kraft INSERT INTO taken SELECT *",
                "DROP VIEW kraft",
                "INSERT OVERWRITE DIRECTORY 'taken' USING parquet SELECT 1",
                "SELECT 1); DROP VIEW kraft; (SELECT 1",
                "SELECT ref${x}lect('java.lang.System', 'exit', 1)",
            )
        ),
        *(
            (("--sql", sql, "--metadata", METADATA), "Spark does not take this SQL: [TABLE_OR_VIEW_NOT_FOUND]")
            for sql in (
                "SELECT * FROM zookeeper",
                "SELECT * FROM text.`/etc/passwd`",
                "SELECT * FROM kraft WHERE value IN (SELECT _c0 FROM csv.`/etc/passwd`)",
                "WITH a AS (FROM `kafka-metadata`.`/var/lib/kafka/metadata`) SELECT * FROM a",
            )
        ),
        *(
            (("--sql", sql, "--metadata", METADATA), "with which Spark could call programs or read")
            for sql in (
                "SELECT reflect('java.lang.System', 'exit', 1)",
                "SELECT system.builtin.`Java_Method` /* */ ('java.lang.System', 'exit', 1) FROM kraft",
                "SELECT (SELECT try_reflect('java.lang.System', 'exit', 1) FROM VALUES (1))",
                "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', 1)",
                "FROM IDENTIFIER('text.`/etc/passwd`')",
                "SELECT from_xml('<a>1</a>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))",
            )
        ),
        (("offline-in-roll", "--metadata", METADATA, "--to", "99"), "could not tell: offset 99 is asked for"),
        (("changed", *BOTH, "--from", "14"), "offset 14 comes after offset 13, up to which the log is read"),
        (("changed", *BOTH, "--from", "9", "--to", "8"), "offset 9 comes after offset 8, up to which"),
        (("foreign-writes", "--metadata", METADATA), "no ZooKeeper is named"),
        (("changed", "--metadata", METADATA, "--zookeeper", "h:1", "--to", "9"), "ZooKeeper is read as it is now"),
        (("offline-in-roll", "--metadata", METADATA + "s"), "there is no metadata log"),
        (("offline-in-roll",), "no metadata directory is named"),
        (("--metadata", METADATA), "give either the name of a question or --sql"),
    ],
    ids=str,
)
def test_what_cannot_be_answered_is_refused(spark: SparkSession, both: Path, words: tuple[str, ...], said: str) -> None:
    answer = ask(both, *words)
    assert isinstance(answer.exception, OperatorError), answer.exception
    assert said in str(answer.exception)


@pytest.fixture(scope="module")
def of_others(spark: SparkSession) -> Iterator[None]:
    """A table and views that a session has already."""
    spark.range(2).write.saveAsTable("taken")
    spark.range(2).createOrReplaceTempView("theirs")
    spark.sql("CREATE VIEW kept AS SELECT * FROM taken")
    yield
    for name in ("VIEW theirs", "VIEW kept", "TABLE taken"):
        spark.sql(f"DROP {name}")


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT * FROM taken", "spark_catalog.default.taken"),
        ("SELECT * FROM kept", "spark_catalog.default.kept"),
        ("SELECT * FROM theirs", "theirs"),
        ("SELECT (WITH taken AS (SELECT 1 AS id) SELECT max(id) FROM taken), id FROM taken", "default.taken"),
        ("SELECT * FROM kraft WHERE EXISTS (SELECT 1 FROM theirs JOIN kraft)", "theirs"),
        ("SELECT 'x\\n== Optimized Logical Plan ==\\n', kraft.* FROM kraft, taken", ""),
        ("SELECT 'x\\n== Analyzed Logical Plan ==\\n', kraft.* FROM taken, kraft", ""),
        (
            "SELECT TRANSFORM(kind) USING 'cat /etc/passwd' AS (line) FROM kraft",
            "a program prints (TRANSFORM ... USING)",
        ),
        ("WITH theirs AS (VALUES (now())) FROM theirs, range(1) `a.b`, LATERAL explode(array(1))", None),
        (
            "WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT 2 FROM r WHERE n < 1) SELECT '${n}\n' > '' FROM r",
            None,
        ),
        ("SELECT count(*) FROM history JOIN partitions LEFT JOIN changes USING (kind) GROUP BY ALL", None),
    ],
)
def test_own_sql_reads_the_views_only(
    spark: SparkSession, both: Path, of_others: None, sql: str, named: str | None
) -> None:
    answer = ask(both, "--sql", sql, "--metadata", METADATA, "--csv")
    if named is None:
        assert answer.exception is None, answer.exception
        assert len(answer.stdout.splitlines()) == 2
        return
    assert isinstance(answer.exception, OperatorError), answer.exception
    assert re.search(f"the SQL reads .*{re.escape(named)}, which is no view", str(answer.exception))


def test_what_a_controller_writes_while_the_question_is_asked_is_not_foreign(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The log gets a value, and then ZooKeeper, after the command has begun."""
    write_log(tmp_path / "metadata")
    later = (m.ConfigRecord(TOPIC, "audit", "retention.ms", "5000"),)

    def begin(what: str) -> None:
        if what == "reading ZooKeeper":
            write_log(tmp_path / "metadata", (*STEPS, later))
            write_nodes(tmp_path / "data", znodes("5000"))

    sources = Sources(zookeeper_files=(f"{tmp_path}/data",), metadata=f"{tmp_path}/metadata")
    with answered(spark, sources, Question("foreign-writes", None, -1, None), begin) as answer:
        assert answer.collect() == []


def test_sql_has_times_in_utc_and_may_end_with_a_semicolon(spark: SparkSession, both: Path) -> None:
    spark.conf.set(ZONE, "Asia/Tokyo")
    try:
        sql = "SELECT DISTINCT hour(time) FROM changes;"
        assert ask(both, "--sql", sql, "--metadata", METADATA, "--csv").stdout.splitlines()[1:] == ["10"]
        assert spark.conf.get(ZONE) == "Asia/Tokyo"
    finally:
        spark.conf.unset(ZONE)


def test_json_has_every_column_and_every_type(capsys: pytest.CaptureFixture[str]) -> None:
    """Results of an operator's own SQL: the product of a decimal number, a structure, two columns with one name."""
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    cells = (Decimal("0.5"), Row(at=at, parts=[b"a"]), {at: dt.date(2026, 1, 1)}, None)
    say_json([_shown(cell) for cell in cells])
    text = "2026-01-01T00:00:00.000+00:00"
    assert json.loads(capsys.readouterr().out) == ["0.5", {"at": text, "parts": ["61"]}, {text: "2026-01-01"}, None]
    with pytest.raises(OperatorError, match="JSON would lose one: value, value"):
        show(cast("DataFrame", SimpleNamespace(columns=["value", "value"])), "json")
