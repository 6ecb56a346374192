"""`python -m tests.doors.costs --out FILE`: what each attack costs a controller of ours, and a stock one, as a table.

Each attack has a controller of its own, which is at rest before it; some are tried on a quorum of three, too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import psutil

from tests.doors.costs import honest
from tests.doors.costs.place import ROOT, STOCK_HEAP, STOCK_VERSION, place_in
from tests.doors.costs.report import Row, missed, table
from tests.doors.costs.run import LOWER, Costs, costs_of
from tests.doors.costs.table import ATTACKS, Attack

QUORUM = 3


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Write the tables to this file, too.")
@click.option("--json", "figures", type=click.Path(path_type=Path), help="Write all figures to this file.")
@click.option("--seconds", default=10.0, show_default=True, help="How long each attack lasts.")
@click.option("--only", default="", help="The attacks whose names contain this.")
@click.option("--few", is_flag=True, help="Only the attacks that are tried before each merge.")
@click.option("--peers", default="ours,stock", show_default=True)
@click.option("--voters", default="1,3", show_default=True, help="A single controller, a quorum of three, or both.")
@click.option(
    "--nice",
    default=0,
    show_default=True,
    help="Priority of controllers and honest callers; below 0 on a machine that others use, too (needs root).",
)
def main(
    out: Path | None, figures: Path | None, seconds: float, only: str, few: bool, peers: str, voters: str, nice: int
) -> None:
    """Measure and print."""
    parts, kept = [_setting(seconds, nice)], {}
    for count in map(int, voters.split(",")):
        chosen = [each for each in ATTACKS if only in each.title and (each.small or each.quorum or not few)]
        attacks = [each for each in chosen if count == 1 or each.quorum]
        rows = [_row(attack, seconds, peers.split(","), count, nice) for attack in attacks]
        open_goals = missed(rows)
        head = "A single controller" if count == 1 else f"The leader of a quorum of {count}"
        parts += [f"{head}:", table(rows)]
        parts += ["Goals that were not met:", "\n".join(f"* {each}" for each in open_goals)] if open_goals else []
        kept[count] = [
            {"attack": row.attack.title, "ours": _plain(row.ours), "stock": _plain(row.stock)} for row in rows
        ]
        if figures is not None:
            figures.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        if out is not None:
            out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    click.echo("\n\n".join(parts))


def _row(attack: Attack, seconds: float, peers: Sequence[str], voters: int, nice: int) -> Row:
    measured: dict[str, Costs | None] = {
        peer: _measure(attack, attack.seconds or seconds, voters, nice, stock=peer == "stock")
        for peer in peers
        if peer == "ours" or attack.stock_has_it
    }
    row = Row(attack, measured.get("ours"), measured.get("stock"))
    click.echo(table([row]).splitlines()[-1], err=True)
    return row


def _measure(attack: Attack, seconds: float, voters: int, nice: int, *, stock: bool) -> Costs:
    """Of one peer, on a place of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="migrator-costs-") as directory,
        place_in(Path(directory), stock=stock, voters=voters, nice=nice) as place,
    ):
        return costs_of(place, [attack], seconds)


def _plain(costs: Costs | None) -> object:
    return None if costs is None else dataclasses.asdict(costs)


def _setting(seconds: float, nice: int) -> str:
    described = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    commit = subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    memory = psutil.virtual_memory().total / 2**30
    words = (
        f"Commit {commit}, Python {platform.python_version()}, {os.cpu_count()} cores, {memory:.0f} GiB.",
        f"Stock is Kafka {STOCK_VERSION} with -Xmx{STOCK_HEAP}.",
        f"Each attack lasts {seconds:.0f} s, that with tokens of 16 KB 60 s.",
        f"Honest callers: {honest.RATES}.",
        f"Priority (nice) of controllers and honest callers: {nice}; of attackers: {min(nice + LOWER, LOWER)}.",
    )
    return " ".join(words)


if __name__ == "__main__":
    main()
