"""Figures of our controllers beside stock Kafka's, on the same machine, in the same run. Nothing here asserts a time.

python -m tests.bench [--partitions N] [--transport grpc|kafka] [--peers stock,ours] [--json FILE]
    [--pieces|--rolls|--hang|--rehearse N,N,...|--reassign|--kraft]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from migrator.drill.cluster import ClusterOptions
from tests.bench import turns
from tests.bench.figures import Result, table, to_json
from tests.bench.migration import BenchOptions, run
from tests.bench.peers import PEERS
from tests.results import KRAFT

DEFAULT_PARTITIONS = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every peer got through all phases."""
    given = _parser().parse_args(arguments)
    console = Console(stderr=True)
    if given.turns:
        turns.watch(given.turns)
    if given.pieces:
        from tests.bench.pieces import run_pieces  # noqa: PLC0415 - imports much that the rest does not need

        measured = run_pieces(given.partitions, console, only=given.only)
        _write(given.json, measured)
        return 0
    if given.rehearse:
        return _rehearsals(given, console)
    if given.kraft:
        return _kraft(given, console)
    if given.reassign:
        return _reassignments(given, console)
    cores = os.cpu_count()
    setting = {"controllers": given.controllers, "brokers": 3, "cores": cores}
    shown = Console(width=180 if not sys.stdout.isatty() else None)
    if given.hang:
        from tests.bench.hangs import HANG_FIGURES  # noqa: PLC0415 - as above

        results = _hangs(given, console)
        shown.print(
            table(results, f"{given.controllers} controllers, 3 real brokers, {cores} cores", HANG_FIGURES, "goal")
        )
        _write(given.json, to_json(results, setting, HANG_FIGURES))
    elif given.rolls:
        from tests.bench.rolls import GOAL, RECORDS_PER_SECOND, ROLL_FIGURES  # noqa: PLC0415 - as above

        results = _rolls(given, console)
        caption = f"{given.controllers} controllers, 3 real brokers, {RECORDS_PER_SECOND} records/s, {cores} cores"
        shown.print(table(results, caption, ROLL_FIGURES, GOAL))
        _write(given.json, to_json(results, setting, ROLL_FIGURES))
    else:
        results = asyncio.run(_migrations(given, console))
        console.print(*(turns.longest(given.turns) if given.turns else ()), sep="\n", markup=False, highlight=False)
        caption = f"{given.partitions:,} partitions, {given.controllers} controllers, 3 brokers, {cores} cores"
        shown.print(table(results, caption))
        _write(given.json, to_json(results, setting | {"partitions": given.partitions}))
    return _failed(results, console)


async def _migrations(given: argparse.Namespace, console: Console) -> list[Result]:
    options = ClusterOptions(given.partitions, controllers=given.controllers, transport=given.transport)
    results = []
    with tempfile.TemporaryDirectory(prefix="migrator-bench-", dir=given.dir) as directory:
        for name in given.peers.split(","):
            cluster = PEERS[name](Path(directory) / name, options)
            results.append(await run(cluster, BenchOptions(given.partitions, given.created_topics), console))
    return results


def _rolls(given: argparse.Namespace, console: Console) -> list[Result]:
    from tests.bench.rolls import run_rolls  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory(prefix="migrator-bench-", dir=given.dir) as directory:
        peers = given.peers.split(",")
        return [run_rolls(peer, Path(directory) / peer, given.controllers, console) for peer in peers]


def _hangs(given: argparse.Namespace, console: Console) -> list[Result]:
    from tests.bench.hangs import run_hang  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory(prefix="migrator-bench-", dir=given.dir) as directory:
        peers = given.peers.split(",")
        return [run_hang(peer, Path(directory) / peer, given.controllers, console) for peer in peers]


def _rehearsals(given: argparse.Namespace, console: Console) -> int:
    from tests.bench import rehearsals  # noqa: PLC0415 - as above

    sizes = [int(size) for size in given.rehearse.split(",")]
    with tempfile.TemporaryDirectory(prefix="migrator-bench-", dir=given.dir) as directory:
        results = rehearsals.run(sizes, Path(directory), console)
    Console().print(rehearsals.table(results))
    _write(given.json, [{"partitions": each.partitions, "figures": each.figures} for each in results])
    return 0


def _reassignments(given: argparse.Namespace, console: Console) -> int:
    from tests.bench import reassignments  # noqa: PLC0415 - as above

    results = []
    with tempfile.TemporaryDirectory(prefix="migrator-bench-", dir=given.dir) as directory:
        for peer in given.peers.split(","):
            moved = reassignments.run(peer, Path(directory) / peer, given.partitions, console)
            results.append(asyncio.run(moved))
    caption = f"{given.partitions:,} partitions, voters (1,2,3) become (4,5,6), {os.cpu_count()} cores"
    figures = reassignments.REASSIGNMENT_FIGURES
    Console(width=180 if not sys.stdout.isatty() else None).print(table(results, caption, figures, "goal"))
    _write(given.json, to_json(results, {"partitions": given.partitions, "cores": os.cpu_count()}, figures))
    return _failed(results, console)


def _kraft(given: argparse.Namespace, console: Console) -> int:
    from tests.bench import kraft  # noqa: PLC0415 - as above

    failed = False
    with tempfile.TemporaryDirectory(prefix="migrator-bench-", dir=given.dir) as directory:
        for peer in given.peers.split(","):
            measured = kraft.run(peer, Path(directory) / peer, given.partitions, given.lines, console)
            if (failure := asyncio.run(measured)) is not None:
                console.print(f"[red]{peer}: {failure}[/red]")
                failed = True
    Console(width=180 if not sys.stdout.isatty() else None).print(kraft.table(given.partitions, given.lines))
    return int(failed)


def _failed(results: Sequence[Result], console: Console) -> int:
    for result in results:
        if result.failure is not None:
            console.print(f"[red]{result.title}: {result.failure}[/red]")
    return 1 if any(result.failure is not None for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--partitions", type=int, default=DEFAULT_PARTITIONS, help="in topics of 10 (200000)")
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--created-topics", type=int, default=1_000, help="of 10 partitions, in dual-write (1000)")
    parser.add_argument("--transport", choices=("grpc", "kafka"), default="grpc", help="of our quorum")
    parser.add_argument("--peers", default="stock,ours", help="which, in which order (stock,ours)")
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    parser.add_argument("--dir", type=Path, help="where the clusters' directories are made and removed")
    parser.add_argument("--pieces", action="store_true", help="measure single pieces instead of a migration")
    parser.add_argument("--rolls", action="store_true", help="real brokers roll through it, and a producer waits")
    parser.add_argument("--hang", action="store_true", help="the leader hangs, and a producer of real brokers waits")
    parser.add_argument("--rehearse", metavar="SIZES", help="rehearsals and their migrations, e.g. 1000,20000,200000")
    parser.add_argument("--reassign", action="store_true", help="three voters become three others under writes")
    parser.add_argument("--kraft", action="store_true", help="a broker goes, the leader dies, without ZooKeeper")
    parser.add_argument("--lines", type=Path, default=KRAFT, help="where --kraft notes its rows, and what it has them")
    parser.add_argument("--turns", type=Path, help="note the long turns of controllers' event loops there, with stacks")
    parser.add_argument("--only", help="of the pieces, those whose name contains this")
    return parser


def _write(path: Path | None, content: object) -> None:
    if path is not None:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
