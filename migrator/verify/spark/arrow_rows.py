"""The common parts of both data sources: canonical rows as Arrow batches, options, shares.

Rows are passed as Arrow batches: a million Python tuples would take longer than everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from migrator.verify.canonical import COLUMNS, Row

SCHEMA = ", ".join(f"{column} string" for column in COLUMNS)
ARROW_SCHEMA = pa.schema([(column, pa.string()) for column in COLUMNS])
BATCH_ROWS = 20_000
SHARE_BYTES = 128 * 1024 * 1024
"""The bytes of files for one share. What a share keeps in memory takes several times as many."""
SHARES_MAX = 64


def arrow_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of columns."""
    columns: tuple[list[str], ...] = ([], [], [], [])
    kinds, entities, fields, values = columns
    for kind, entity, field, text in rows:
        kinds.append(kind)
        entities.append(entity)
        fields.append(field)
        values.append(text)
        if len(kinds) >= BATCH_ROWS:
            yield pa.record_batch(list(columns), schema=ARROW_SCHEMA)
            columns = ([], [], [], [])
            kinds, entities, fields, values = columns
    if kinds:
        yield pa.record_batch(list(columns), schema=ARROW_SCHEMA)


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

    @property
    def salt(self) -> bytes:
        """The key under which secrets are hashed in this run."""
        return bytes.fromhex(self.options["salt"])

    @property
    def shards(self) -> int:
        """The least number of partitions."""
        return int(self.options.get("shards", "2"))

    def shares_of(self, size: int) -> int:
        """The number of shares for files of that many bytes."""
        return min(SHARES_MAX, max(self.shards, -(-size // SHARE_BYTES)))
