"""Runs that go on behind a kill, until their world is one from which a run came to its end before.

A run from there would do the same once more: what a model cluster and the journal hold decides all that follows. So a
run from each of 600 boundaries costs a step or two. What a command holds in memory is in no world: the first run
behind each step goes all the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending
from tests.rollout.support.model import nothing
from tests.rollout.support.runs import Operator

Way = Callable[[Operator], Ending]
World = tuple[dict[str, object], object, object]
HISTORY = ("commands", "examined", "fault", "inventory", "points")
"""Of a model cluster: what nothing that follows depends on, and what is the same object in each copy."""


class MetError(Exception):
    """The rest of this run is known."""


class Worlds:
    """The states at the ends of steps, from which a checked run came to a good end."""

    def __init__(self, way: Way, check: Callable[[str, Operator], None]) -> None:
        self._way = way
        self._check = check
        self._known: defaultdict[str, list[World]] = defaultdict(list)

    def goes_on(self, where: str, operator: Operator, *, whole: bool = False) -> None:
        """To the end, and the check; or, unless it has to be the ``whole`` way, into a world that is known."""
        passed: list[tuple[str, World]] = []

        def passes(boundary: str) -> None:
            if not is_step_end(boundary):
                return
            world = world_of(operator)
            if world not in self._known[boundary]:
                passed.append((boundary, deepcopy(world)))
            elif not whole:
                raise MetError

        operator.cluster.points.at = passes
        try:
            assert self._way(operator) is Ending.COMPLETE, where
        except MetError:
            return
        operator.cluster.points.at = nothing
        self._check(where, operator)
        for boundary, world in passed:
            self._known[boundary].append(world)


def is_step_end(boundary: str) -> bool:
    """Whether it is behind the last line of a step, which names no act."""
    return boundary.startswith("after done ") and boundary.endswith(" ")


def world_of(operator: Operator) -> World:
    """All that what follows depends on, but the time of day."""
    assert operator.journal is not None
    cluster = {name: found for name, found in vars(operator.cluster).items() if name not in HISTORY}
    return cluster, replace(operator.journal.progress, verified_ms=None), operator.lock.owner


def one_of_each_kind(wheres: Sequence[str]) -> list[int]:
    """The numbers of boundaries that differ in more than the step or the node; of each kind the one in the middle."""
    kinds: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, where in enumerate(wheres):
        side, what, _, *act = where.split(" ")
        kinds[side, what, *act].append(number)
    return sorted(numbers[len(numbers) // 2] for numbers in kinds.values())


def boundaries_of(clean: Operator, way: Way, tmp_path: Path) -> list[tuple[str, Operator]]:
    """The world as a kill at each boundary of one run would leave it."""
    left: list[tuple[str, Operator]] = []

    def leave(where: str) -> None:
        other = clean.copy(tmp_path / str(len(left)))
        if len(left) % 2:
            tear(other.state)
        left.append((where, other))

    clean.cluster.points.at = leave
    assert way(clean) is Ending.COMPLETE
    assert not clean.cluster.violations
    return left


def tear(state: Path) -> None:
    """A part of a line reached the disk."""
    with (state / COMMAND_FILE).open("ab") as file:
        file.write(b'{"n":7,"t":17000')
