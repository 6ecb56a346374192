"""What a second of the world costs, and how much of that the rules take."""

from __future__ import annotations

import time
from dataclasses import replace
from unittest.mock import patch

from tests.simulation.whole.machine import SimulatedMachine
from tests.simulation.whole.options import QUIET, Options
from tests.simulation.whole.runner import in_child, isolated, warm
from tests.simulation.whole.watch import Watch
from tests.simulation.whole.world import simulate

SECONDS = 60.0
TRIES = 3
"""Of which the best one counts: the machine has other work, too."""
GOALS = {0.0: 80, 10.0: 20}
"""By the writes in a second: seconds of the world in a processor second."""
RULES_SHARE_MAX = 0.25


def figures() -> str:
    """One line for each goal: three controllers without faults, from their start to their stop."""
    warm()
    return "\n".join(
        _figure(replace(QUIET, writes=writes, chaos_seconds=SECONDS), goal) for writes, goal in GOALS.items()
    )


def _figure(options: Options, goal: int) -> str:
    tries = [isolated(options) for _ in range(TRIES)]
    took = min(took for _, took in tries)
    seconds = tries[0][0].seconds
    return (
        f"{options.writes:2.0f} writes a second: {seconds:.1f} s of the world in {took:.2f} processor seconds: "
        f"{seconds / took:.1f} (goal {goal}); {in_child(lambda: _rules_share(options)):.0%} of that for the rules "
        f"(at most {RULES_SHARE_MAX:.0%})"
    )


def _rules_share(options: Options) -> float:
    clock, spent = time.perf_counter, 0.0
    look = Watch.after_event

    def timed(watch: Watch, machine: SimulatedMachine | None) -> None:
        nonlocal spent
        began = clock()
        look(watch, machine)
        spent += clock() - began

    began = clock()
    with patch.object(Watch, "after_event", timed):
        simulate(options)
    return spent / (clock() - began)
