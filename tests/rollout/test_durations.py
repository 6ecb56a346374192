"""How long the restarts of a rollout took, and its own work beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.journal.journal import Entry, Event
from migrator.rollout.journal.summary import TimeSpent, durations_of, failure_of
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
    assert durations_of(entries, STEPS) == TimeSpent(restarts=8.0, own=1.0)
    assert durations_of(entries, STEPS).share == 12.5


def interrupted(after_ms: int, resumed_ms: int) -> Iterator[Entry]:
    """A restart that is begun; its command ends, and another one goes on later."""
    lines = list(restarted("kraft/broker-1", 0))
    yield from (line for line in lines if line.time_ms <= after_ms)
    yield Entry(20, resumed_ms, Event.RESUMED)
    yield from (
        replace(line, time_ms=line.time_ms - after_ms + resumed_ms) for line in lines if line.time_ms > after_ms
    )


@pytest.mark.parametrize("killed_ms", [300, 400, 500, 2_500])
def test_a_step_that_another_command_goes_on_with_is_one_step(killed_ms: int) -> None:
    entries = [Entry(1, 0, Event.RESUMED), *interrupted(killed_ms, killed_ms + DAY_MS)]
    assert durations_of(entries, STEPS) == TimeSpent(restarts=4.0, own=0.5)


def test_how_long_a_person_thinks_is_not_counted() -> None:
    entries = [
        Entry(1, 0, Event.RESUMED),
        Entry(2, DAY_MS, Event.CONFIRMED),
        Entry(3, DAY_MS, Event.PASSED, "finish/controller-3001", Act.CONFIRM),
        *restarted("finish/controller-3001", DAY_MS),
    ]
    assert durations_of(entries, STEPS) == TimeSpent(restarts=4.0, own=0.5)


def test_what_failed_last_is_told_until_something_else_happens() -> None:
    """A command that goes on, and is killed before it has done anything, says nothing new."""
    failed = Entry(1, 0, Event.FAILED, "kraft/broker-1", Act.CHECK_AFTER, {"what": "not within 600 s"})
    assert failure_of([failed, Entry(2, 5, Event.RESUMED)]) == failure_of([failed])
    assert failure_of([failed, Entry(2, 5, Event.RESUMED), Entry(3, 6, Event.PASSED, "kraft/broker-1")]) is None


class Counting(ModelCluster):
    """Counts the looks at the cluster, and those also at all partitions."""

    looks = wide = 0

    async def observe(self, *, partitions: bool = True) -> Observation:
        self.looks += 1
        self.wide += partitions
        return await super().observe(partitions=partitions)


@pytest.mark.parametrize(("roll", "looks"), [(Phase.MIGRATE, (4, 3)), (Phase.KRAFT, (3, 3))])
def test_a_restart_that_waits_for_nobody_takes_few_looks(tmp_path: Path, roll: Phase, looks: tuple[int, int]) -> None:
    """Whether the step may begin, right before the stop, in ZooKeeper mode whether the old registration is gone, and
    behind the restart. Each look asks every node of the cluster."""
    (tmp_path / "state").mkdir()
    cluster = Counting(model_inventory())
    looks_at: dict[str, tuple[int, int]] = {}
    cluster.points.at = lambda where: looks_at.update({where: (cluster.looks, cluster.wide)})
    assert Operator(cluster, tmp_path / "state").apply(StopAt(roll)) is Ending.REACHED
    ends = [looks_at[f"after done {step.name} "] for step in STEPS if step.phase is roll]
    took = [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in pairwise(ends)]
    assert took == [looks] * (len(ends) - 1)
