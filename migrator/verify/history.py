"""Verdicts over time, in Parquet: one file a day, which Spark, pandas or anything else can read.

`verify` and `verify --watch` append to a `History`, and the page reads it. A file is replaced as a whole, so a reader
never sees half of an entry. A failed comparison has an entry, too.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.errors import OperatorError
from migrator.values import value

SCHEMA = pa.schema(
    [
        pa.field("time_ms", pa.int64(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("zxid", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("lag", pa.int64()),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("differences", pa.int64(), nullable=False),
        pa.field("undecided", pa.int64(), nullable=False),
        pa.field("foreign_writes", pa.int64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("why", pa.string(), nullable=False),
    ]
)


@value
class HistoryEntry:
    """One comparison. ``verdict``: as `Verdict.word` says; ``lag`` in records, None when it is unknown."""

    time_ms: int
    verdict: str
    zxid: int
    offset: int
    lag: int | None
    rows: int
    differences: int
    undecided: int
    foreign_writes: int
    seconds: float
    why: str = ""


class History:
    """The entries in a directory, which is created if necessary.

    :raises OperatorError: from every method, when the disk fails, or a file is no history.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def append(self, entry: HistoryEntry) -> None:
        """Add the newest entry. The file is replaced as a whole, so a reader sees the old file or the new one."""
        day = dt.datetime.fromtimestamp(entry.time_ms / 1000, dt.UTC).strftime("%Y-%m-%d")
        path = self._directory / f"verify-{day}.parquet"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            entries = [*(_read(path) if path.exists() else ()), entry]
            columns = [[getattr(one, name) for one in entries] for name in SCHEMA.names]
            part = path.with_suffix(".part")
            pq.write_table(pa.table(columns, schema=SCHEMA), part)
            part.replace(path)
        except OSError as error:
            raise OperatorError(
                f"the history cannot be written: {error}",
                where=str(path),
                remedy="Name a directory with --history that you may write to, on a disk with free space",
            ) from error

    def entries(self) -> list[HistoryEntry]:
        """All entries, oldest first."""
        return [entry for path in sorted(self._directory.glob("verify-*.parquet")) for entry in _read(path)]


def _read(path: Path) -> list[HistoryEntry]:
    try:
        return [HistoryEntry(**row) for row in pq.read_table(path, schema=SCHEMA).to_pylist()]
    except (OSError, pa.ArrowException) as error:
        raise OperatorError(
            f"this file is not a history of verify: {error}",
            where=str(path),
            remedy="Move this file out of the directory",
        ) from error
