"""What an operator's own SQL may read: the views of `migrator ask`, and nothing else.

The text may come from elsewhere, such as a notebook. Spark could read any file that its user can read, any table of its
catalog and any view of the session, and call any Java program. Source: Spark's SQL reference.
"""

from __future__ import annotations

import re

FILES = "spark.sql.runSQLOnFiles"
"""The setting with which Spark takes ``text.`/etc/passwd` `` as a table."""
_CALLS = re.compile(r"\b(reflect|try_reflect|java_method|identifier)\b", re.IGNORECASE)
"""The functions that call Java, and the clause that makes a name of a text. Spark's optimizer may call them, so they
must not reach it."""
_BEGIN, _END = "\n== Analyzed Logical Plan ==\n", "\n== Optimized Logical Plan ==\n"
_TREE = re.compile(r"[ :+-]*")
_LEAF = re.compile(r"(OneRowRelation|Range|LocalRelation|CTERelationRef|LogicalRDD)\b|RelationV2\[.*\] kafka-[a-z]+$")
"""Made of the SQL itself, and our sources; `LogicalRDD` is one that was read before, below a view."""
_NAMED = re.compile(r"SubqueryAlias (\S*\..*)|View \(`?(.*?)`?, \[")


def call_in(sql: str) -> str | None:
    """The first word of a text that calls Java or may stand for such a word, wherever it is in the text."""
    found = _CALLS.search(sql)
    return None if found is None else found[0]


def foreign_relation(explained: str, views: frozenset[str]) -> str | None:
    """The first relation in a plan that is neither one of ``views`` nor made of the SQL itself.

    :param explained: what ``EXPLAIN EXTENDED`` prints. Texts of the SQL stand in it as they are; one with a line's end
        hides no relation, but may be taken for one.
    """
    begin, end = explained.find(_BEGIN), explained.rfind(_END)
    if not 0 <= begin < end:
        return "of a plan that Spark does not show"
    lines = explained[begin + len(_BEGIN) : end].splitlines()[1:]  # the first line is the schema
    depths = [*(len(match[0]) for match in map(_TREE.match, lines) if match), 0]
    for line, depth, following in zip(lines, depths, depths[1:], strict=False):
        node = line[depth:]
        named = _NAMED.match(node)
        if named is not None and (name := named[1] or named[2]) not in views:
            return name
        if following <= depth and _LEAF.match(node) is None:
            return node.partition("[")[0].strip() or node
    return None
