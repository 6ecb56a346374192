"""What an operator's own SQL may read: the views of `migrator ask`, and nothing else.

The text may come from elsewhere, such as a notebook. Spark could read any file that its user can read, any table of its
catalog, any view of the session and any variable of its environment, and call any program. Source: Spark's SQL
reference.
"""

from __future__ import annotations

import re

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
