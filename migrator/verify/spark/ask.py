"""Answers questions in SQL about a metadata log and ZooKeeper, in a given session.

`migrator ask` calls `answered` and reads the result while the context lasts. ZooKeeper is read before the end of the
log, so that the log has every value that a controller wrote there. An operator's own SQL may come from elsewhere, such
as a notebook, and Spark could read any file, table or variable of its user, and call any program. So this SQL may read
the views and nothing else. Source: Spark's SQL reference.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from migrator.errors import InvariantViolation, OperatorError
from migrator.values import value
from migrator.verify.kraft.files import end_of_log
from migrator.verify.named import Sources
from migrator.verify.places import place
from migrator.verify.questions import VIEWS, sql_of
from migrator.verify.spark.failures import operator_error
from migrator.verify.spark.metadata_source import METADATA
from migrator.verify.spark.sides import ZOOKEEPER, register, zookeeper_options

SETTINGS = {"spark.sql.runSQLOnFiles": "false", "spark.sql.variable.substitute": "false"}
"""Spark must not take ``text.`/etc/passwd` `` as a table, nor put a variable in the place of ``${env:NAME}``: this also
makes ``reflect`` of ``ref${x}lect``."""
_CALLS = re.compile(
    r"\b((?:try_)?reflect|java_method|identifier|(?:from|to|schema_of)_(?:avro|protobuf|xml))\b", re.IGNORECASE
)
"""The functions that call Java, the clause that makes a name of a text, and the functions that read a schema from a
file or an address. Spark's optimizer may call them, so they must not reach it."""
_BEGIN, _END = "\n== Analyzed Logical Plan ==\n", "\n== Optimized Logical Plan ==\n"
_NODE = re.compile(r"((?:[ :]  )*[:+]- )(.*)")
_LEAF = re.compile(
    r"(OneRowRelation|Range|LocalRelation|ResolvedInlineTable|CTERelationRef|UnionLoopRef|LogicalRDD)\b"
    r"|RelationV2\[.*\] kafka-[a-z]+$"
)
"""Made of the SQL itself, and our sources; `LogicalRDD` is one that was read before, below a view."""
_NAMED = re.compile(r"SubqueryAlias ((?:`[^`]*`|[^\s`.])+\..*)|View \(`?(.*?)`?, \[")
_PROGRAM = "ScriptTransformation"


def call_in(sql: str) -> str | None:
    """The first word of a text that calls a program, reads a file or may stand for such a word, wherever it is in the
    text."""
    found = _CALLS.search(sql)
    return None if found is None else found[0]


def foreign_relation(explained: str, views: frozenset[str]) -> str | None:
    """The first relation in a plan that is neither one of ``views`` nor made of the SQL itself.

    :param explained: what ``EXPLAIN EXTENDED`` prints for a query in parentheses, so that its first node is none of the
        query. Texts of the SQL stand in it as they are: a line within one hides no relation, but is taken for one if
        it begins as a node of the tree does.
    """
    begin, end = explained.find(_BEGIN), explained.rfind(_END)
    lines = explained[begin + len(_BEGIN) : end].split("\n") if 0 <= begin < end else []
    nodes = [(len(match[1]), match[2]) for match in map(_NODE.match, lines) if match]
    if not nodes:
        return "a plan that Spark does not show"
    for (depth, node), (following, _) in zip(nodes, [*nodes[1:], (0, "")], strict=True):
        named = _NAMED.match(node)
        if named is not None and (name := named[1] or named[2]) not in views:
            return name
        if node.startswith(_PROGRAM):
            return "what a program prints (TRANSFORM ... USING)"
        if following <= depth and _LEAF.match(node) is None:
            return node.partition("[")[0].strip() or node
    return None


_SETTINGS = {"spark.sql.session.timeZone": "UTC", **SETTINGS}
_SOURCES = ("kraft", "changes", "zookeeper")
_NAME_VIEWS = "The views are kraft, changes, history, partitions and, if it is named, zookeeper: see docs/ask.md"


@value
class Question:
    """``name``: one of `QUESTIONS`; or ``sql``, the operator's own. ``since``: the last offset before the span that is
    asked about; ``as_of``: the last offset to read."""

    name: str | None
    sql: str | None
    since: int
    as_of: int | None


@contextmanager
def answered(
    spark: SparkSession, sources: Sources, question: Question, begin: Callable[[str], None] = lambda _: None
) -> Iterator[DataFrame]:
    """The answer, to be read while the context lasts. Meanwhile the session's time zone is UTC, no file is a table, and
    no variable is put into SQL.

    :param sources: ``metadata`` is a directory; ZooKeeper's view exists if ZooKeeper is named.
    :param begin: called with the next work, in words.
    :raises OperatorError: a source cannot be read, or the operator's SQL is not a valid query, or reads more than
        the views.
    """
    if question.sql is not None and (call := call_in(question.sql)) is not None:
        what = f"the SQL has the word {call!r}, with which Spark could call programs or read files"
        raise OperatorError(what, where="--sql", remedy="Leave this word out, also within texts and comments")
    before = {key: spark.conf.get(key) for key in _SETTINGS}
    held: list[DataFrame] = []  # a server of Spark Connect forgets a frame that its client has forgotten
    own = question.sql and question.sql.rstrip().removesuffix(";")
    text = sql_of(question.name or "") if own is None else f"SELECT * FROM (\n{own}\n)"  # noqa: S608 - their own
    try:
        for key, text_of in _SETTINGS.items():
            spark.conf.set(key, text_of)
        register(spark)
        common = {"salt": secrets.token_hex(32)}
        if "zookeeper" in text.lower() and (options := common | zookeeper_options(sources)) != common:
            begin("reading ZooKeeper")
            held.append(_read_now(spark, options))
        begin("reading the log")
        _define_views(spark, sources.metadata or "", question.as_of, common)
        yield _asked(spark, text, question)
    except (PySparkException, Py4JError) as error:
        raise operator_error(error) from error
    finally:
        for name in (*_SOURCES, *VIEWS):
            spark.catalog.dropTempView(name)
        for key, value_of in before.items():
            spark.conf.set(key, value_of or "")


def _read_now(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Read ZooKeeper now, before the end of the log is taken: a controller writes there what its log has already, so
    the log will have every value of a controller."""
    frame = spark.read.format(ZOOKEEPER).options(**options).load().localCheckpoint()
    frame.createOrReplaceTempView("zookeeper")
    return frame


def _define_views(spark: SparkSession, metadata: str, as_of: int | None, common: Mapping[str, str]) -> None:
    last = end_of_log(place(metadata)) - 1 if as_of is None else as_of
    log = spark.read.format(METADATA).options(**common, path=metadata, as_of=str(last))
    log.load().createOrReplaceTempView("kraft")
    log.option("mode", "changes").load().createOrReplaceTempView("changes")
    for name in VIEWS:
        spark.sql(sql_of(name)).createOrReplaceTempView(name)


def _asked(spark: SparkSession, text: str, question: Question) -> DataFrame:
    """The answer. The operator's SQL stands between parentheses, where Spark's parser takes queries only. Nothing is
    read before its relations are known."""
    since = {"since": question.since}
    try:
        answer = spark.sql(text, args=since)
    except AnalysisException as error:
        if question.sql is None:
            raise InvariantViolation(f"Spark does not take the SQL of {question.name}: {error}") from error
        said = str(error).partition("\n\n")[0].partition(" SQLSTATE")[0].strip()
        no_query = isinstance(error, ParseException)
        raise OperatorError(
            f"Spark does not take this SQL{' as a query' if no_query else ''}: {said}",
            where="--sql",
            remedy="Give one query: SELECT, WITH, FROM or VALUES. What writes is refused" if no_query else _NAME_VIEWS,
        ) from error
    if question.sql is not None:
        explained = str(spark.sql(f"EXPLAIN EXTENDED {text}", args=since).collect()[0][0])
        foreign = foreign_relation(explained, frozenset((*_SOURCES, *VIEWS)))
        if foreign is not None:
            raise OperatorError(f"the SQL reads {foreign}, which is no view", where="--sql", remedy=_NAME_VIEWS)
    return answer
