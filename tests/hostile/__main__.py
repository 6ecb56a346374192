"""`python -m tests.hostile`: knock at every door with messages that are valid in form and hostile in content."""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter

import click

from tests.hostile.attack import MESSAGES_A_SEED, attack, shrink
from tests.hostile.doors import BY_DOOR, Door
from tests.hostile.values import integer_fields

PROGRESS_SECONDS = 30.0
"""Between two lines that say how far a long run has come."""


@click.command()
@click.option("--messages", default=20_000, show_default=True, help="How many messages, in as many seeds as it takes.")
@click.option("--seed", default=0, show_default=True, help="The first seed; a failure names its own.")
@click.option("--each", is_flag=True, help="Say how often each kind of message was sent.")
@click.option("--replay", is_flag=True, help="Only this seed: show each message, and the fewest that fail.")
def main(messages: int, seed: int, each: bool, replay: bool) -> None:
    """Run seeds one after the other."""
    if replay:
        outcome = attack(seed, trace=click.echo)
        click.echo(outcome)
        if outcome.failure:
            click.echo(f"the fewest messages that fail: {shrink(seed, outcome)}")
        sys.exit(bool(outcome.failure))
    began, said, sent, failures, first = time.process_time(), time.monotonic(), 0, 0, seed
    coverage: Counter[str] = Counter()
    ends: set[tuple[str, int]] = set()
    while sent < messages:
        outcome = attack(seed)
        sent += outcome.messages
        coverage += outcome.coverage
        ends |= outcome.ends
        if outcome.failure:
            failures += 1
            click.echo(f"seed {seed}, message {outcome.index}: {outcome.failure}")
        seed += 1
        if time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            click.echo(f"{sent:,} messages in seeds {first} to {seed - 1}, {failures} failed, {_memory()}")
    _show(coverage, ends, each=each)
    click.echo(
        f"{sent:,} messages in seeds {first} to {seed - 1} of {MESSAGES_A_SEED}, {failures} failed, "
        f"{time.process_time() - began:.0f} s of a processor, {_memory()}"
    )
    sys.exit(bool(failures))


def _memory() -> str:
    return f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB"


def _show(coverage: Counter[str], ends: set[tuple[str, int]], *, each: bool) -> None:
    """By door: messages, kinds of messages sent, and integer fields sent at both ends of their range."""
    for door in Door:
        knocks = BY_DOOR[door]
        counts = [coverage[f"{door.name} {knock.name}"] for knock in knocks]
        integers = {name for knock in knocks if knock.schema is not None for name in integer_fields(knock.schema)}
        both = sum((name, 0) in ends and (name, 1) in ends for name in integers)
        click.echo(
            f"{sum(counts):10,}  {door.name:16} {sum(map(bool, counts))} of {len(knocks)} kinds, the rarest "
            f"{min(counts):,} times; {both} of {len(integers)} integer fields at both ends"
        )
        if each:
            for knock, count in zip(knocks, counts, strict=True):
                click.echo(f"{count:20,}  {knock.name}")


if __name__ == "__main__":
    main()
