"""`python -m tests.hostile`: knock at every door with messages that are valid in form and hostile in content."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from tests.hostile.attack import MESSAGES_A_SEED, attack, shrink


@click.command()
@click.option("--messages", default=20_000, show_default=True, help="How many messages, in as many seeds as it takes.")
@click.option("--seed", default=0, show_default=True, help="The first seed; a failure names its own.")
@click.option("--replay", is_flag=True, help="Only this seed: show each message, and the fewest that fail.")
def main(messages: int, seed: int, replay: bool) -> None:
    """Run seeds one after the other."""
    if replay:
        outcome = attack(seed, trace=click.echo)
        click.echo(outcome)
        if outcome.failure:
            click.echo(f"the fewest messages that fail: {shrink(seed, outcome)}")
        sys.exit(bool(outcome.failure))
    began, sent, failures = time.process_time(), 0, 0
    coverage: Counter[str] = Counter()
    first = seed
    while sent < messages:
        outcome = attack(seed)
        sent += outcome.messages
        for name, count in outcome.coverage.items():
            coverage[name.partition(" ")[0]] += count
        if outcome.failure:
            failures += 1
            click.echo(f"seed {seed}, message {outcome.index}: {outcome.failure}")
        seed += 1
    for door, count in sorted(coverage.items()):
        click.echo(f"{count:10,}  {door}")
    seconds = time.process_time() - began
    click.echo(
        f"{sent:,} messages in seeds {first} to {seed - 1} of {MESSAGES_A_SEED}, {failures} failed, {seconds:.0f} s "
        "of a processor"
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
