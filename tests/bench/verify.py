"""How fast and how big `migrator verify` is, Spark's start included: from files, and from a live ZooKeeper. With the
latter also `--watch`, whose session of Spark stays: how long its third comparison takes.

python -m tests.bench.verify [--partitions N,N,...] [--live-up-to N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from migrator.parts.java import Jvm
from migrator.parts.processes import ChildProcess
from migrator.parts.usage import PeakMemory, ProcessorMeter
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions
from migrator.values import value
from migrator.verify.history import History
from tests.bench.verify_inputs import write_inputs

SIZES = "20000,200000,2000000"
WARM = "live, third of --watch"
GOALS = {20_000: 30.0, 200_000: 75.0, 2_000_000: 600.0}
WARM_GOALS = {20_000: 10.0, 200_000: 25.0}
WARM_COMPARISONS = 3
GOAL_BYTES = 8e9
TIMEOUT_SECONDS = 1800
_MIGRATOR = str(Path(sys.executable).with_name("migrator"))


@value
class Measured:
    """One run: ``peak_bytes`` of all its processes together, pages that they share counted in each; ``others``: the
    share of the processors that somebody else used meanwhile."""

    partitions: int
    source: str
    seconds: float
    peak_bytes: int
    rows: int
    equal: bool
    others: float


def measure(partitions: int, source: str, arguments: Sequence[str]) -> Measured:
    """One run of the command.

    :raises RuntimeError: it gives no verdict.
    """
    started, meter = time.perf_counter(), ProcessorMeter(())
    command = [_MIGRATOR, "verify", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with PeakMemory(process.pid) as memory:
            output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        seconds, others = time.perf_counter() - started, meter.others_share
    if not output:
        raise RuntimeError(errors)
    verdict = json.loads(output)
    return Measured(partitions, source, seconds, memory.peak_bytes, verdict["rows"], verdict["equal"], others)


def measure_warm(directory: Path, partitions: int, arguments: Sequence[str]) -> Measured:
    """The last of some comparisons of one `verify --watch`.

    :param directory: is filled with verdicts.
    :raises OperatorError: the command ends before.
    """
    history, meter = History(directory / "history"), ProcessorMeter(())
    command = [_MIGRATOR, "verify", *arguments, "--watch", "1", "--history", str(directory / "history")]
    with (
        ChildProcess("verify --watch", command, output=directory / "watch.log") as process,
        PeakMemory(process.pid) as memory,
    ):
        process.wait_until(
            lambda: len(history.entries()) >= WARM_COMPARISONS, "the verdicts", timeout_seconds=TIMEOUT_SECONDS
        )
    last = history.entries()[-1]
    equal = last.verdict == "equal"
    return Measured(partitions, WARM, last.seconds, memory.peak_bytes, last.rows, equal, meter.others_share)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every pair was found to be equal."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verify", description=__doc__)
    parser.add_argument("--partitions", default=SIZES, help=f"sizes ({SIZES})")
    parser.add_argument("--live-up-to", type=int, default=200_000, help="largest size that is read live, too (200000)")
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    given = parser.parse_args(arguments)
    console = Console(stderr=True)
    found: list[Measured] = []
    for partitions in map(int, given.partitions.split(",")):
        with tempfile.TemporaryDirectory(prefix="migrator-bench-verify-") as directory:
            console.print(f"{partitions:,} partitions: making both sides")
            data, metadata = write_inputs(Path(directory), partitions)
            if partitions <= given.live_up_to:
                found += _live(Path(directory), data, metadata, partitions)
            options = ["--zookeeper-files", str(data), "--metadata", str(metadata)]
            found.append(measure(partitions, "files", options))
            console.print(f"{partitions:,} partitions: {found[-1].seconds:.1f} s from files")
    Console(width=120).print(_table(found))
    if given.json is not None:
        content = [{name: getattr(one, name) for name in Measured.__dataclass_fields__} for one in found]
        given.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0 if all(one.equal for one in found) else 1


def _live(directory: Path, data: Path, metadata: Path, partitions: int) -> list[Measured]:
    server_directory = directory / "server"
    shutil.copytree(data, server_directory / "data")
    with EmbeddedZooKeeper(server_directory, options=ZooKeeperOptions(jvm=Jvm(heap="2g"))) as server:
        options = ["--zookeeper", server.hosts, "--metadata", str(metadata)]
        return [measure(partitions, "live", options), measure_warm(directory, partitions, options)]


def _table(found: Sequence[Measured]) -> Table:
    columns = (
        "partitions",
        "ZooKeeper",
        "rows",
        "seconds",
        "goal",
        "seconds per 100,000",
        "peak memory",
        "verdict",
        "others",
    )
    table = Table(*columns, title=f"migrator verify, Spark's start included except for: {WARM}")
    for one in found:
        goal = (WARM_GOALS if one.source == WARM else GOALS).get(one.partitions)
        table.add_row(
            f"{one.partitions:,}", one.source, f"{one.rows:,}", f"{one.seconds:.1f}",
            "" if goal is None else f"{goal:.0f}", f"{one.seconds * 100_000 / one.partitions:.1f}",
            f"{one.peak_bytes / 1e9:.2f} GB", "equal" if one.equal else "different",
            f"{one.others:.0%}",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    sys.exit(main())
