"""The questions of `migrator ask` as SQL, and the views that they use. Each file begins with what it answers."""

from __future__ import annotations

from importlib import resources

VIEWS = ("history", "partitions")
"""Made of the sources, in this order. The sources are the views kraft, changes and, if it is named, zookeeper."""
QUESTIONS = ("offline-in-roll", "below-min-isr", "changed", "foreign-writes", "unbalanced-leaders")
OF_ZOOKEEPER = frozenset({"changed", "foreign-writes"})


def sql_of(name: str) -> str:
    """The SQL of a question or of a view; ``:since`` is an offset that the caller gives."""
    return resources.files(__name__).joinpath(f"{name}.sql").read_text("utf-8")
