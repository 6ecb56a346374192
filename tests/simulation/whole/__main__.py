"""`python -m tests.simulation.whole`: seeds of whole controllers, one seed event by event, the planted bugs."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial
from statistics import median

import click

from tests.simulation.whole import cells, runner
from tests.simulation.whole.branches import reached
from tests.simulation.whole.options import QUIET, expand, overruled
from tests.simulation.whole.planted import BUGS, planted
from tests.simulation.whole.speed import figures
from tests.simulation.whole.world import Outcome, simulate


@click.command()
@click.option("--seeds", default=40, show_default=True, help="How many seeds to run.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Run this one seed only.")
@click.option("--option", "changes", multiple=True, metavar="NAME=VALUE", help="Overrule an option of the seeds.")
@click.option("--quiet", is_flag=True, help="With --seed: no faults, for figures.")
@click.option("--trace", is_flag=True, help="With --seed: show what happens.")
@click.option("--bug", type=click.Choice(sorted(BUGS)), help="With this planted bug.")
@click.option("--speed", "measures", is_flag=True, help="Show what a second of the world costs, without faults.")
@click.option("--planted", "hunts", is_flag=True, help="Show which seed finds each planted bug, or the one of --bug.")
@click.option("--seconds", default=runner.HUNT_SECONDS, show_default=True, help="Of a processor, for each hunt.")
@click.option("--met", is_flag=True, help="Show which faults met which states, and crashes which files.")
@click.option("--branches", is_flag=True, help="Show what the seeds reach of the code; needs coverage.py.")
@click.option("--note", "notes", is_flag=True, help="With --branches: name them in docs/simulation.md, too.")
@click.option("--jobs", default=0, help="Processes; one for each processor by default.")
def main(
    seeds: int,
    first: int,
    seed: int | None,
    changes: tuple[str, ...],
    quiet: bool,
    trace: bool,
    bug: str | None,
    hunts: bool,
    measures: bool,
    seconds: float,
    met: bool,
    branches: bool,
    notes: bool,
    jobs: int,
) -> None:
    """Simulate whole controllers on bad networks, disks and clocks."""
    overrides = dict(change.split("=", 1) for change in changes)
    if seed is not None:
        options = overruled(QUIET, overrides) if quiet else expand(seed, overrides)
        began = time.process_time()
        with planted(bug):
            outcome = simulate(options, click.echo if trace else None)
        _show(outcome, time.process_time() - began, overrides, bug)
        sys.stdout.flush()
        os._exit(outcome.rule is not None)  # nothing of the killed processes runs now
    if measures:
        click.echo(figures())
        return
    if hunts:
        sys.exit(_hunt([bug] if bug else sorted(BUGS), seconds, jobs))
    numbers = range(first, first + seeds)
    if branches:
        click.echo(reached(numbers, overrides, jobs, notes=notes))
        return
    sys.exit(_run(numbers, overrides, bug, jobs, met=met))


def _run(seeds: range, overrides: dict[str, str], bug: str | None, jobs: int, *, met: bool) -> int:
    coverage: Counter[str] = Counter()
    failures, seconds, took_all = 0, 0.0, 0.0
    for outcome, took in runner.run_seeds(seeds, overrides, bug, jobs):
        coverage.update(outcome.coverage)
        seconds, took_all = seconds + outcome.seconds, took_all + took
        failures += outcome.rule is not None
        _show(outcome, took, overrides, bug)
    counts = {what: count for what, count in sorted(coverage.items()) if not cells.is_cell(what)}
    width = max(map(len, counts), default=0)
    click.echo("\n".join(f"  {what:{width}} {count:>10,}" for what, count in counts.items()))
    if met:
        never = cells.never_met(coverage)
        click.echo(f"{cells.tables(coverage)}\nnever met: {', '.join(never) or 'nothing'}")
    click.echo(
        f"{len(seeds)} seeds, {failures} failed; {seconds:.0f} s of the world in {took_all:.0f} processor seconds"
    )
    return 1 if failures else 0


def _hunt(bugs: list[str], seconds_max: float, jobs: int) -> int:
    """Each bug with its own options."""
    hunts = []
    with multiprocessing.get_context("spawn").Pool(jobs or os.cpu_count()) as pool:
        for hunt in pool.imap(partial(runner.hunt, seconds_max=seconds_max), bugs):
            hunts.append(hunt)
            click.echo(_line(hunt))
    found = [hunt for hunt in hunts if hunt.found]
    if found:
        click.echo(f"median of {len(found)} bugs: a seed in {median(hunt.median for hunt in found):.0f} finds it")
    escaped = [hunt.bug for hunt in hunts if not hunt.found]
    click.echo(f"{len(hunts)} bugs, {len(escaped)} escaped {' '.join(escaped)}")
    return 1 if escaped else 0


def _line(hunt: runner.Hunt) -> str:
    seeds = " ".join(str(outcome.options.seed) for outcome in hunt.found)
    found = f"one in {hunt.median:.0f}, {seeds}: {hunt.found[0].message[:200]}" if hunt.found else "NOBODY"
    broken = "".join(f"\n  WITHOUT THE BUG: {runner.describe_failure(one)}" for one in hunt.broken)
    return f"{hunt.bug:62} {hunt.tried:4} seeds {hunt.seconds:5.0f} s  {found}{broken}"


def _show(outcome: Outcome, took: float, overrides: dict[str, str], bug: str | None) -> None:
    seconds, ratio = outcome.seconds, outcome.seconds / took
    click.echo(f"seed {outcome.options.seed}: {seconds:.1f} s in {took:.2f} processor seconds ({ratio:.1f})")
    click.echo(f"  fingerprint {outcome.fingerprint:x}")
    if outcome.rule is not None:
        click.echo(runner.describe_failure(outcome, overrides, bug))


if __name__ == "__main__":
    main()
