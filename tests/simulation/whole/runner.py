"""Seeds on all processors. Each has a process of its own, which ends without a ``finally`` of what was killed in it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TypeVar

from tests.simulation.whole.options import QUIET, Options, expand
from tests.simulation.whole.planted import LIKELIER, planted
from tests.simulation.whole.world import Outcome, simulate

HUNT_SECONDS = 600.0
FOUND_ENOUGH = 3
"""So often a bug is found, to tell how many seeds it takes."""
T = TypeVar("T")


def warm() -> None:
    """Make what each child of this process needs and finds here then: modules, codecs."""
    simulate(replace(QUIET, chaos_seconds=4.0, other_share=0.8, brokers=1))


def in_child(work: Callable[[], T]) -> T:
    """What is done in a child of this process, which ends without more ado."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            data = pickle.dumps(work())
            with os.fdopen(writing, "wb") as out:
                out.write(data)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as found:
        data = found.read()
    os.waitpid(child, 0)
    if not data:
        raise RuntimeError("the child died")
    done: T = pickle.loads(data)  # noqa: S301 - our own child's
    return done


def isolated(options: Options, bug: str | None = None) -> tuple[Outcome, float]:
    """One world in a child of this process, which must have no other threads; and the processor seconds that it took.

    :param bug: the name of a planted one.
    """

    def work() -> tuple[Outcome, float]:
        began = time.process_time()
        with planted(bug):
            outcome = simulate(options)
        return outcome, time.process_time() - began

    return in_child(work)


def run_seed(seed: int, changes: Mapping[str, str] | None = None, bug: str | None = None) -> tuple[Outcome, float]:
    return isolated(expand(seed, changes), bug)


def run_seeds(
    seeds: Iterable[int], changes: Mapping[str, str] | None = None, bug: str | None = None, jobs: int = 0
) -> Iterator[tuple[Outcome, float]]:
    """Outcomes as they come, from ``jobs`` processes (0: one for each processor)."""
    first = warm if bug is None else None  # a bug is planted before anything is made of what it replaces
    with multiprocessing.get_context("spawn").Pool(jobs or os.cpu_count(), first) as pool:
        yield from pool.imap_unordered(partial(run_seed, changes=changes, bug=bug), seeds)


@dataclass(frozen=True)
class Hunt:
    """For a planted bug.

    :ivar found: by which seeds.
    :ivar broken: what the seeds broke without the bug: faults of the product, or of the simulation.
    :ivar seconds: of a processor.
    """

    bug: str
    found: tuple[Outcome, ...]
    broken: tuple[Outcome, ...]
    tried: int
    seconds: float

    @property
    def median(self) -> float:
        """Of the seeds that it takes to meet the bug once."""
        numbers = [-1, *(outcome.options.seed for outcome in self.found)]
        return median(after - before for before, after in pairwise(numbers))


def hunt(bug: str, seconds_max: float = HUNT_SECONDS, wanted: int = FOUND_ENOUGH) -> Hunt:
    """Seed by seed, until enough of them have found the bug. One that breaks a rule without the bug has not."""
    tried, took = 0, 0.0
    found: list[Outcome] = []
    broken: list[Outcome] = []
    while took < seconds_max and len(found) < wanted:
        outcome, seconds = run_seed(tried, LIKELIER[bug], bug)
        tried, took = tried + 1, took + seconds
        if outcome.rule is not None:
            sound, seconds = run_seed(outcome.options.seed, LIKELIER[bug])
            took += seconds
            if sound.rule is None:
                found.append(outcome)
            else:
                broken.append(sound)
    return Hunt(bug, tuple(found), tuple(broken), tried, took)


def replay_command(outcome: Outcome, changes: Mapping[str, str] | None = None, bug: str | None = None) -> str:
    """The one command that shows a seed again."""
    overruled = "".join(f" --option {name}={text}" for name, text in (changes or {}).items())
    planted_bug = "" if bug is None else f" --bug {bug}"
    return f"python -m tests.simulation.whole --seed {outcome.options.seed}{overruled}{planted_bug} --trace"


def describe_failure(outcome: Outcome, changes: Mapping[str, str] | None = None, bug: str | None = None) -> str:
    """Seed, options, rule and how to see it again."""
    return (
        f"seed {outcome.options.seed} broke {outcome.message}\n"
        f"  options: {outcome.options}\n"
        f"  replay:  {replay_command(outcome, changes, bug)}"
    )
