"""Bounds the work in one turn of the event loop, in records and in bytes, so that other tasks get their turns.

Code in the event loop counts its work in a `Turn` if a cluster or a peer decides how much there is: records, topics,
entries, bytes. A bound in records and bytes holds on a machine of any speed; one in milliseconds would not.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

TURN_RECORDS = 1_000
"""A record takes some ten microseconds (decide, encode, apply, index), so a turn takes some ten milliseconds."""
TURN_BYTES = 64 * 1024
"""About the size of `TURN_RECORDS` small records. Large records end their turn earlier."""
PAUSE_MAX_SECONDS = 1.0
"""The longest pause of `in_turns`: a process that was stopped for a minute need not make up for it."""


class Turn:
    """The work of the present turn."""

    __slots__ = ("_bytes", "_records")

    def __init__(self) -> None:
        self._records = self._bytes = 0

    @property
    def records_left(self) -> int:
        """The number of records that this turn may still process, at least 1."""
        return TURN_RECORDS - self._records

    def is_over(self, records: int = 1, size: int = 0) -> bool:
        """Count finished work. True: call `give_back` before the next work; the count begins again at zero."""
        self._records += records
        self._bytes += size
        if self._records < TURN_RECORDS and self._bytes < TURN_BYTES:
            return False
        self._records = self._bytes = 0
        return True


async def give_back() -> None:
    """Let other tasks have a turn."""
    await asyncio.sleep(0)


async def in_turns(steps: Iterable[T], share: float = 1.0) -> AsyncIterator[T]:
    """Take each step in a separate turn.

    :param share: the largest share of the time that the steps may take; the rest of the time is pauses, each of
        `PAUSE_MAX_SECONDS` at most.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    for step in steps:
        yield step
        await asyncio.sleep(min((clock() - began) * (1 / share - 1), PAUSE_MAX_SECONDS))
        began = clock()


def parts(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """The items in order, as many at a time as one turn takes."""
    rest = iter(items)
    while part := tuple(islice(rest, TURN_RECORDS)):
        yield part


def in_order(items: Iterable[T], key: Any = None) -> Iterator[T | None]:
    """Like `sorted`; yields None where a turn is over. ``items`` must not change meanwhile."""
    runs: list[list[Any]] = []
    for part in parts(items):
        if runs:
            yield None
        runs.append(sorted(part, key=key))
    yield from heapq.merge(*runs, key=key)
