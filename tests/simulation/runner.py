"""Many seeds on all processors, and what they covered."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from tests.simulation.options import expand
from tests.simulation.world import Outcome, simulate

MUST_HAPPEN = (
    "acknowledged writes",
    "appends refused by a full disk",
    "batches lost",
    "candidacies",
    "changes appended",
    "changes committed",
    "changes committed by another leader",
    "changes lost with the power",
    "changes truncated",
    "crashes",
    "crashes after a change",
    "disks lost",
    "doors closed",
    "early elections",
    "early questions",
    "elections",
    "empty disks filled",
    "graceful stops",
    "hand-overs",
    "hand-overs to a successor that goes on",
    "journeys' stages reached",
    "leaders that remove themselves",
    "one-way partitions",
    "partitions",
    "pauses",
    "plans cancelled",
    "plans resumed by another leader",
    "pre-votes",
    "promises before the time-out",
    "refused: does not lead",
    "refused: has caught up",
    "refused: is dynamic",
    "refused: is new",
    "refused: is there",
    "refused: last set is committed",
    "refused: may go",
    "refused: is after every shown end",
    "refused: own epoch is committed",
    "refused: range fits",
    "resignations",
    "shutdowns",
    "skewed clocks",
    "slow disks",
    "snapshot chunks",
    "snapshots fetched",
    "snapshots taken",
    "stopped by a full disk",
    "strangers at a leader",
    "targets replaced",
    "torn batches",
    "transactions aborted",
    "transactions committed",
    "transactions left open by a leader",
    "truncations",
    "votes asked for by strangers",
    "waits for addresses",
    "wiped disks",
)
"""Without these a run of many seeds has proved less than it claims."""


def run_seed(seed: int, overrides: dict[str, str] | None = None) -> Outcome:
    return simulate(expand(seed, overrides))


def run_seeds(seeds: Iterable[int], overrides: dict[str, str] | None = None, jobs: int = 0) -> Iterator[Outcome]:
    """Outcomes as they come, from ``jobs`` processes (0: one per processor)."""
    with multiprocessing.get_context("spawn").Pool(jobs or os.cpu_count()) as pool:
        yield from pool.imap_unordered(partial(run_seed, overrides=overrides), seeds, chunksize=8)


def never_happened(coverage: Counter[str]) -> list[str]:
    """The events that should have been tried and were not."""
    return [what for what in MUST_HAPPEN if not coverage[what]]


def replay_command(outcome: Outcome, overrides: dict[str, str] | None = None) -> str:
    """The one command that shows a seed again, event by event."""
    changes = "".join(f" --option {name}={text}" for name, text in (overrides or {}).items())
    return f"python -m tests.simulation --seed {outcome.options.seed}{changes} --trace"


def describe_failure(outcome: Outcome, overrides: dict[str, str] | None = None) -> str:
    """Seed, options, rule and how to see it again."""
    return (
        f"seed {outcome.options.seed} broke {outcome.message}\n"
        f"  options: {outcome.options}\n"
        f"  replay:  {replay_command(outcome, overrides)}"
    )


def describe_coverage(coverage: Counter[str]) -> str:
    """The events, with their counts."""
    width = max(map(len, coverage), default=0)
    return "\n".join(f"  {what:{width}} {count:>10,}" for what, count in sorted(coverage.items()))
