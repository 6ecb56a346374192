"""A piece of work that is timed on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from migrator.values import value

T = TypeVar("T")


@value
class Piece(Generic[T]):
    """``prepare`` makes ready what is to be timed, which itself gives a note for the table. ``budget_seconds`` is what
    the goals leave for it at 200,000 partitions."""

    name: str
    budget_seconds: float | None
    prepare: Callable[[T], Callable[[], str]]
