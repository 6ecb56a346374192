"""How much one turn of the event loop does: so many records or so many bytes. Then everybody else has a turn.

Whoever goes through records, topics, entries or bytes whose number the cluster or a peer decides, and does so in the
event loop, counts them in a `Turn`. A bound in records and bytes holds on a machine of any speed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

TURN_RECORDS = 1_000
"""To decide, encode, apply and index a record takes some ten microseconds, so this is some ten milliseconds."""
TURN_BYTES = 64 * 1024
"""As many small records have about as many bytes. A large record ends its turn by its bytes."""


class Turn:
    """The work of the present turn."""

    __slots__ = ("_bytes", "_records")

    def __init__(self) -> None:
        self._records = self._bytes = 0

    @property
    def records_left(self) -> int:
        """How many records this turn may still do, one at least."""
        return TURN_RECORDS - self._records

    def is_over(self, records: int = 1, size: int = 0) -> bool:
        """Count what was just done. True: give the turn back before there is more; the next one begins at nothing."""
        self._records += records
        self._bytes += size
        if self._records < TURN_RECORDS and self._bytes < TURN_BYTES:
            return False
        self._records = self._bytes = 0
        return True


async def give_back() -> None:
    """Let everybody else have a turn."""
    await asyncio.sleep(0)


async def in_turns(steps: Iterable[T]) -> AsyncIterator[T]:
    """Take each step in a turn of its own."""
    for step in steps:
        yield step
        await give_back()


def parts(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """The items in order, as many at a time as one turn takes."""
    rest = iter(items)
    while part := tuple(islice(rest, TURN_RECORDS)):
        yield part


def in_order(items: Iterable[T], key: Any = None) -> Iterator[T | None]:
    """As `sorted`; yields None where a turn is over. Nobody may change ``items`` meanwhile."""
    runs: list[list[Any]] = []
    for part in parts(items):
        if runs:
            yield None
        runs.append(sorted(part, key=key))
    yield from heapq.merge(*runs, key=key)
