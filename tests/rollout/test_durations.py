"""How long the restarts of a rollout took, and its own work beside them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.journal.journal import Entry, Event
from migrator.rollout.journal.summary import Durations, durations_of
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Act, Direction, Phase
from migrator.rollout.ports import Observation
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

STEPS = plan(model_inventory(), Direction.FORWARD)
DAY_MS = 86_400_000


def restarted(step: str, at_ms: int) -> Iterator[Entry]:
    """0.5 s before the restart is begun, which takes 4 s until the broker is back."""
    lines = [
        (200, Event.PASSED, Act.CHECK_BEFORE),
        (300, Event.BEGUN, Act.EDIT),
        (400, Event.DONE, Act.EDIT),
        (500, Event.BEGUN, Act.RESTART),
        (2_500, Event.DONE, Act.RESTART),
        (4_500, Event.PASSED, Act.CHECK_AFTER),
        (4_500, Event.DONE, ""),
    ]
    for number, (after_ms, event, act) in enumerate(lines):
        yield Entry(number, at_ms + after_ms, event, step, act)


@pytest.mark.parametrize("pause_ms", [0, DAY_MS])
@pytest.mark.parametrize("last", [Event.PAUSED, Event.DONE])
def test_how_long_nobody_goes_on_is_not_counted(pause_ms: int, last: Event) -> None:
    """A command may end behind a step that it was told, or behind the last step of a phase, without a word."""
    told = "migrate/broker-1" if last is Event.PAUSED else ""
    entries = [
        Entry(1, 0, Event.RESUMED),
        *restarted("migrate/broker-1", 0),
        *([Entry(9, 4_500, Event.PAUSED, told)] if told else []),
        Entry(10, 4_500 + pause_ms, Event.RESUMED),
        *restarted("migrate/broker-2", 4_500 + pause_ms),
    ]
    assert durations_of(entries, STEPS) == Durations(restarts=8.0, own=1.0)
    assert durations_of(entries, STEPS).share == 12.5


class Counting(ModelCluster):
    """Counts the looks at the cluster."""

    looks = 0

    async def observe(self) -> Observation:
        self.looks += 1
        return await super().observe()


@pytest.mark.parametrize(("roll", "looks"), [(Phase.MIGRATE, 4), (Phase.KRAFT, 3)])
def test_a_restart_that_waits_for_nobody_takes_few_looks(tmp_path: Path, roll: Phase, looks: int) -> None:
    """Whether the step may begin, right before the stop, in ZooKeeper mode whether the old registration is gone, and
    behind the restart. Each look asks every node of the cluster."""
    (tmp_path / "state").mkdir()
    cluster = Counting(model_inventory())
    looks_at: dict[str, int] = {}
    cluster.points.at = lambda where: looks_at.update({where: cluster.looks})
    assert Operator(cluster, tmp_path / "state").apply(StopAt(roll)) is Ending.REACHED
    ends = [looks_at[f"after done {step.name} "] for step in STEPS if step.phase is roll]
    assert [later - earlier for earlier, later in pairwise(ends)] == [looks] * (len(ends) - 1)
