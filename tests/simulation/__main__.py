"""`python -m tests.simulation`: run seeds, replay one, or show that planted bugs are found."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter

import click

from tests.simulation import planted as planting
from tests.simulation import runner
from tests.simulation.options import expand
from tests.simulation.world import simulate


@click.command()
@click.option("--seeds", default=300, show_default=True, help="How many seeds to run.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Run this one seed only.")
@click.option("--option", "changes", multiple=True, metavar="NAME=VALUE", help="Overrule an option of the seeds.")
@click.option("--trace", is_flag=True, help="With --seed: show every event and effect.")
@click.option("--planted", is_flag=True, help="Show which seed finds each planted bug.")
@click.option("--jobs", default=0, help="Processes; one per processor by default.")
def main(
    seeds: int, first: int, seed: int | None, changes: tuple[str, ...], trace: bool, planted: bool, jobs: int
) -> None:
    """Simulate the consensus core on bad networks, disks and clocks."""
    overrides = dict(change.split("=", 1) for change in changes)
    if planted:
        sys.exit(_show_planted(jobs))
    if seed is not None:
        sys.exit(_replay(seed, overrides, trace=trace))
    sys.exit(_run(range(first, first + seeds), overrides, jobs))


def _replay(seed: int, overrides: dict[str, str], *, trace: bool) -> int:
    options = expand(seed, overrides)
    click.echo(options)
    outcome = simulate(options, click.echo if trace else None)
    click.echo(runner.describe_coverage(outcome.coverage))
    click.echo(runner.describe_failure(outcome, overrides) if outcome.rule else "every rule held")
    return 1 if outcome.rule else 0


def _run(seeds: range, overrides: dict[str, str], jobs: int) -> int:
    began = time.monotonic()
    coverage: Counter[str] = Counter()
    failures = 0
    for outcome in runner.run_seeds(seeds, overrides, jobs):
        coverage.update(outcome.coverage)
        if outcome.rule is not None:
            failures += 1
            click.echo(runner.describe_failure(outcome, overrides))
    click.echo(runner.describe_coverage(coverage))
    missing = [] if overrides else runner.never_happened(coverage)
    if missing:
        click.echo(f"never happened, so nothing is proved about it: {', '.join(missing)}")
    click.echo(f"{len(seeds)} seeds, {failures} failed, {time.monotonic() - began:.1f} s")
    return 1 if failures or missing else 0


def _show_planted(jobs: int) -> int:
    began = time.monotonic()
    escaped = 0
    click.echo(f"{'bug':52} {'seed':>5}  found by")
    with multiprocessing.get_context("spawn").Pool(jobs or None) as pool:
        for catch in pool.imap(planting.hunt, planting.BUGS):
            escaped += catch.seed is None
            seed = "-" if catch.seed is None else str(catch.seed)
            click.echo(f"{catch.name:52} {seed:>5}  {catch.rule or 'NOBODY'}")
    click.echo(f"{len(planting.BUGS)} bugs, {escaped} escaped, {time.monotonic() - began:.1f} s")
    return 1 if escaped else 0


if __name__ == "__main__":
    main()
