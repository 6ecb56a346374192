"""The part of `migrator ask` that needs Spark, after the options have been checked.

`ask` imports it only then, because Spark takes seconds to import. It prints rows while they come, or writes Parquet; a
table on the terminal ends after `ROWS_MAX` rows and says so.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from pyspark.sql import DataFrame, Row
from rich.table import Table

from migrator.cli.interrupted import terminated_as_interrupted
from migrator.cli.progress import VerifyProgress
from migrator.cli.terminal import console, say, say_json
from migrator.errors import OperatorError
from migrator.parts.java import find_java
from migrator.verify.named import Sources
from migrator.verify.spark.ask import Question, answered
from migrator.verify.spark.session import is_submitted, spark_session, starts_java

ROWS_MAX = 200
"""The most rows of a table on the terminal."""


def run(
    sources: Sources, question: Question, of_spark: tuple[str | None, Mapping[str, str]], form: str | None,
    parquet: str | None,
) -> None:  # fmt: skip
    """Ask, and print the answer, or write it.

    :param of_spark: the master and the settings.
    :param form: ``csv`` or ``json``; None for a table.
    :raises OperatorError: as `answered`; or there is no Java.
    """
    if starts_java(of_spark[0]):
        find_java()
    stderr = console(stderr=True, quiet=is_submitted())  # otherwise the progress mixes with the answer
    with terminated_as_interrupted(), VerifyProgress(stderr) as progress:
        progress.begin("starting Spark")
        with spark_session(*of_spark) as spark, answered(spark, sources, question, progress.begin) as answer:
            if parquet is not None:
                answer.write.parquet(parquet)
            else:
                show(answer, form, progress.rest)


def show(answer: DataFrame, form: str | None, begin: Callable[[], None] = lambda: None) -> None:
    """Print the rows as CSV, as JSON, or as a table.

    :param begin: called when the first row is there.
    :raises OperatorError: JSON is asked for, and two columns have one name.
    """
    columns = answer.columns
    if form == "json" and len(set(columns)) < len(columns):
        what = f"two columns have the same name, so JSON would lose one: {', '.join(columns)}"
        raise OperatorError(what, where="--sql", remedy="Give each column a name of its own, with AS")
    found = answer.limit(ROWS_MAX + 1).collect() if form is None else answer.toLocalIterator()
    each = (tuple(map(_shown, row)) for row in found)
    rows: Iterator[tuple[Any, ...]] = chain(list(islice(each, 1)), each)
    begin()
    if form == "json":
        for row in rows:
            say_json(dict(zip(columns, row, strict=True)))
    elif form == "csv":
        for row in chain([tuple(columns)], rows):
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(row)
            say(line.getvalue())
    else:
        table = Table(*columns, box=None)
        for row in islice(rows, ROWS_MAX):
            table.add_row(*("" if cell is None else str(cell) for cell in row))
        console().print(table)
        if next(rows, None) is not None:
            say(f"only the first {ROWS_MAX} rows: --csv prints all", err=True)


def _shown(cell: Any) -> Any:
    """Times in UTC; values of types that JSON does not have, as text."""
    match cell:
        case dt.datetime():
            return cell.astimezone(dt.UTC).isoformat(timespec="milliseconds")
        case Row():
            return {name: _shown(one) for name, one in cell.asDict().items()}
        case dict():
            return {str(_shown(key)): _shown(one) for key, one in cell.items()}
        case list():
            return [_shown(one) for one in cell]
        case bytes() | bytearray():
            return cell.hex()
    return cell if cell is None or isinstance(cell, str | int | float) else str(cell)
