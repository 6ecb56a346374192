"""The common parts of all data sources: rows as Arrow batches, options, shares.

Rows are passed as Arrow batches: a million Python tuples would take longer than everything else.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from migrator.errors import OperatorError
from migrator.verify.canonical import COLUMNS, KINDS

SCHEMA = ", ".join(f"{column} string" for column in COLUMNS)
ARROW_SCHEMA = pa.schema([(column, pa.string()) for column in COLUMNS])
BATCH_ROWS = 20_000
SHARE_BYTES = 128 * 1024 * 1024
"""The bytes of files for one share. In memory, a share takes several times as many."""
SHARES_MAX = 64


def arrow_batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema = ARROW_SCHEMA) -> Iterator[pa.RecordBatch]:
    left = iter(rows)
    while some := list(islice(left, BATCH_ROWS)):
        yield pa.record_batch([list(column) for column in zip(*some, strict=True)], schema=schema)


def require_options(format_name: str, options: Mapping[str, str], known: frozenset[str]) -> None:
    """Check a source's options: Spark would ignore one with a wrong name.

    :raises OperatorError: a name, or a kind of rows, is unknown; or ``shards`` or ``salt`` is no such value.
    """
    unknown = [
        *(f"option {name!r}" for name in options if name.lower() not in known),
        *(f"kind {kind!r}" for kind in sorted(kinds_of(options) - frozenset(KINDS))),
    ]
    if unknown:
        raise OperatorError(
            f"the source does not know the {unknown[0]}",
            where=format_name,
            remedy=f"The options are {', '.join(sorted(known))}; the kinds are {', '.join(KINDS)}",
        )
    for name, form, meant in (
        ("shards", r"0*[1-9]\d*", "a number from 1 on"),
        ("salt", r"([0-9a-fA-F]{2})*", "pairs of hex digits"),
    ):
        if re.fullmatch(form, options.get(name, "10"), re.ASCII) is None:
            raise OperatorError(f"the option {name!r} is not valid", where=format_name, remedy=f"It is {meant}")


def kinds_of(options: Mapping[str, str]) -> frozenset[str]:
    """The kinds of rows that the option ``kind`` names; empty for all."""
    return frozenset(kind.strip() for kind in options.get("kind", "").split(",") if kind.strip())


class Share(InputPartition):
    """One of ``count`` shares of the topics."""

    def __init__(self, number: int, count: int) -> None:
        super().__init__(number)
        self.number = number
        self.count = count


class RowReader(DataSourceReader):
    """The options that all readers have."""

    def __init__(self, options: Any) -> None:
        self.options = dict(options)
        self.kinds = kinds_of(self.options)
        self.salt = bytes.fromhex(self.options.get("salt") or secrets.token_hex(32))
        """The key under which secrets are hashed in this run."""

    @property
    def shards(self) -> int:
        """The least number of partitions."""
        return int(self.options.get("shards", "2"))

    def shares_of(self, size: int) -> int:
        """The number of shares for files of that many bytes."""
        return min(SHARES_MAX, max(self.shards, -(-size // SHARE_BYTES)))
