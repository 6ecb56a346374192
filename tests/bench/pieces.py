"""The pieces that a migration's time is made of, each on its own, with the share that the goals leave for it.

The budget: 200,000 partitions are copied in 5 s with three controllers and ZooKeeper on 2 cores, so 10 s of processor
time have to do for everything. One core is the worker's, which reads twice, decodes and encodes; on the other one three
nodes append, decode and apply, 1.3 s each.
"""

from __future__ import annotations

import dataclasses
import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from migrator.observe.loop_health import calm_garbage_collector
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions
from migrator.values import value
from tests.bench.figures import number_text
from tests.bench.peers import zookeeper_jvm
from tests.bench.piece import Piece
from tests.bench.pieces_memory import MEMORY_PIECES, Sample
from tests.bench.pieces_turns import answer, follow
from tests.bench.pieces_zookeeper import VERIFY_PIECES, ZOOKEEPER_PIECES, Store

VERIFY_PARTITIONS = 20_000
GOAL_PARTITIONS = 200_000

T = TypeVar("T")


@value
class Measured:
    """``seconds`` of wall time and ``cpu_seconds`` of this process's for so many partitions; ``budget_seconds`` is
    for 200,000."""

    name: str
    partitions: int
    seconds: float
    cpu_seconds: float
    budget_seconds: float | None
    note: str

    @property
    def scaled_seconds(self) -> float:
        """At 200,000 partitions, if it grows as they do."""
        return self.seconds * GOAL_PARTITIONS / self.partitions


def run_pieces(partitions: int, console: Console, *, only: str | None = None) -> list[dict[str, Any]]:
    """Measure and print; returns the figures for scripts.

    :param only: a part of the names of the pieces to measure; all pieces without it.
    """
    calm_garbage_collector()
    measured: list[Measured] = []
    for one in _all(partitions, only or ""):
        console.print(f"[dim]{one.name}: {one.seconds:.2f} s {one.note}[/dim]")
        measured.append(one)
    Console(width=150).print(_table(measured))
    return [dataclasses.asdict(one) for one in measured]


def _all(partitions: int, only: str) -> Iterator[Measured]:
    with Sample(partitions) as sample:
        in_memory = (
            *MEMORY_PIECES,
            Piece("quorum: a voter follows 8 MiB", None, follow),
            Piece("apis: big requests are answered", None, answer),
        )
        yield from _each([piece for piece in in_memory if only in piece.name], sample, partitions)
    del sample
    gc.collect()
    few = min(partitions, VERIFY_PARTITIONS)
    for pieces, count in ((ZOOKEEPER_PIECES, partitions), (VERIFY_PIECES, few)):
        wanted = [piece for piece in pieces if only in piece.name]
        if wanted:
            with _store(count) as store:
                yield from _each(wanted, store, count)


def _each(pieces: Iterable[Piece[T]], on: T, partitions: int) -> Iterator[Measured]:
    for piece in pieces:
        yield _measure(piece, piece.prepare(on), partitions)


@contextmanager
def _store(partitions: int) -> Iterator[Store]:
    with (
        tempfile.TemporaryDirectory(prefix="migrator-pieces-") as directory,
        EmbeddedZooKeeper(Path(directory), options=ZooKeeperOptions(jvm=zookeeper_jvm(partitions))) as server,
        Store(server, "/pieces", partitions) as store,
    ):
        yield store


def _measure(piece: Piece[Any], run: Callable[[], str], partitions: int) -> Measured:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    note = run()
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    return Measured(piece.name, partitions, seconds, cpu_seconds, piece.budget_seconds, note)


def _table(measured: list[Measured]) -> Table:
    shown = Table(title="Pieces", caption=f"the budget is for {GOAL_PARTITIONS:,} partitions on 2 cores")
    for heading in ("piece", "partitions", "wall s", "CPU s", "partitions/s", "wall s at 200,000", "budget s", ""):
        shown.add_column(heading, justify="left" if heading in ("piece", "") else "right")
    for one in measured:
        shown.add_row(one.name, *_cells(one), one.note)
    return shown


def _cells(one: Measured) -> list[str]:
    numbers = (
        one.partitions, one.seconds, one.cpu_seconds, one.partitions / one.seconds, one.scaled_seconds,
        one.budget_seconds,
    )  # fmt: skip
    return [number_text(number) for number in numbers]
