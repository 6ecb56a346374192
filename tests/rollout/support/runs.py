"""Runs of a rollout on a model cluster: the commands of an operator, killed at any boundary.

Tests make an `Operator`, run commands to their end or to a boundary, and look at model and journal. Each run folds the
journal anew, as another process would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, RolloutRun, StopAt
from migrator.rollout.inventory import Inventory
from migrator.rollout.journal.journal import Detail, Entry, Event, read_journal
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.meanwhile import Silences
from migrator.rollout.nodes import Node
from migrator.rollout.opening.opening import (
    may_go_on,
    may_turn_back,
    note_with,
    note_without,
    open_rollout,
    refuse_with,
    refuse_without,
    turn_back,
)
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.steps import Phase
from tests.rollout.support.model import ModelCluster, Points, nothing
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.support.model_lock import ModelLock

Begins = Callable[[RolloutParts, RolloutJournal], Coroutine[Any, Any, None]]
"""The looks of a command before it goes on with the steps."""


class CountingJournal(RolloutJournal):
    """Passes a boundary before and after each line."""

    def __init__(self, directory: Path, points: Points, order: Mapping[str, str]) -> None:
        super().__init__(directory, order)
        self._points = points

    def append(self, time_ms: int, event: Event, step: str = "", act: str = "", **details: Detail) -> Entry:
        self._points.boundary(f"before {event.value} {step} {act}")
        entry = super().append(time_ms, event, step, act, **details)
        self._points.boundary(f"after {event.value} {step} {act}")
        return entry


async def keep_nothing(file: Path) -> str:
    """The model has no znodes."""
    return f"no {file.name}"


class Operator:
    """Runs the commands of a rollout on one model cluster; each run is a process of its own."""

    def __init__(self, cluster: ModelCluster, state: Path) -> None:
        self.cluster = cluster
        self.state = state
        self.lock = ModelLock()
        self.clock = ModelClock()
        self.said: list[str] = []
        self.hears: Callable[[str], None] = self.said.append
        """Called for each line that is shown."""
        self.confirms = True
        self.zookeeper_connect = ""
        self.ends_again = False
        """The option --end-again."""
        self.reopens = False
        """The option --reopen."""
        self.inventory: Inventory | None = None
        """The present inventory, if it differs from the cluster."""
        self.gone: tuple[str, ...] = ()
        """The option --without-node."""
        self.back: tuple[str, ...] = ()
        """The option --with-node."""
        self.order: Mapping[str, str] = {}
        """The person who types the commands, for the journal."""
        self.thinks_ms = 0
        """How long the answer takes."""
        self.asked: list[tuple[str, ...]] = []
        self.warned: list[int] = []
        self.accepts = True
        self.journal: RolloutJournal | None = None
        """Of the command that runs, or that ran last."""

    def copy(self, state: Path) -> Operator:
        """Another world that is as this one is now, with a journal of its own."""
        state.mkdir()
        if (self.state / COMMAND_FILE).exists():
            (state / COMMAND_FILE).write_bytes((self.state / COMMAND_FILE).read_bytes())
        same: dict[int, object] = {id(each): each for each in (self.cluster.inventory, self.cluster.points)}
        other = Operator(deepcopy(self.cluster, same), state)
        other.cluster.points = Points()
        other.lock, other.clock = deepcopy(self.lock), deepcopy(self.clock)
        other.inventory = self.inventory
        return other

    def parts(self) -> RolloutParts:
        progress = self.journal.progress if self.journal else progress_of(read_journal(self.state))
        left_out = progress.left_out
        self.cluster.left_out = {*(left_out.keys() - {*self.back}), *self.gone}
        return RolloutParts(
            (self.inventory or self.cluster.inventory).without((*(left_out.keys() - {*self.back}), *self.gone)),
            self.cluster,
            self.cluster,
            self.lock,
            self.clock,
            Silences(self.hears, self.clock.monotonic_ms),
            keep_nothing,
            self.cluster.unregister,
            self.zookeeper_connect,
            self.ends_again,
            self.reopens,
        )

    def apply(self, stop: StopAt = StopAt(), *, canary: str = "") -> Ending:  # noqa: B008 - a value that nobody changes
        """Begin, or go on forward."""

        async def begins(parts: RolloutParts, journal: RolloutJournal) -> None:
            await open_rollout(parts, journal, canary)

        return self._command(begins, stop)

    def rollback(self, stop: StopAt = StopAt()) -> Ending:  # noqa: B008 - a value that nobody changes
        """Turn, and go all the way back."""

        async def turns(parts: RolloutParts, journal: RolloutJournal) -> None:
            await turn_back(parts, journal, await may_turn_back(parts, journal))

        return self._command(turns, stop)

    def resume(self) -> Ending:
        """Go on, whichever way."""
        return self._command(may_go_on)

    def resume_until(self, phase: Phase) -> None:
        """Go on forward, to the end of a phase."""
        assert self.apply(StopAt(phase)) is Ending.REACHED

    def interrupted_at(self, boundary: str, error: BaseException) -> None:
        """Go on up to a boundary, where this is raised."""

        def raises(where: str) -> None:
            if where == boundary:
                raise error

        self.cluster.points.at = raises
        with pytest.raises(type(error)):
            self.resume()
        self.cluster.points.at = nothing

    def node(self, name: str) -> Node:
        """Of the inventory."""
        return next(node for node in self.cluster.inventory.nodes if node.name == name)

    def _command(self, begins: Begins, stop: StopAt = StopAt()) -> Ending:  # noqa: B008 - a value that nobody changes
        async def work(journal: RolloutJournal) -> Ending:
            parts = self.parts()
            await refuse_without(parts, journal)
            await refuse_with(parts, journal)
            await begins(parts, journal)
            note_without(parts, journal, "its disk is broken")
            await note_with(parts, journal)
            return await self._run(parts, journal).run(stop)

        return self._with_journal(work)

    def _run(self, parts: RolloutParts, journal: RolloutJournal) -> RolloutRun:
        async def confirm(left: Sequence[str]) -> bool:
            self.asked.append(tuple(left))
            self.clock.now_ms += self.thinks_ms
            return self.confirms

        async def accept(warnings: int) -> bool:
            self.warned.append(warnings)
            self.clock.now_ms += self.thinks_ms
            return self.accepts

        return RolloutRun(parts, journal, self.state, confirm, accept)

    @property
    def entries(self) -> list[Entry]:
        """The events of the journal."""
        return read_journal(self.state)

    def _with_journal(self, work: Callable[[RolloutJournal], Coroutine[Any, Any, Ending]]) -> Ending:
        self.journal = journal = CountingJournal(self.state, self.cluster.points, self.order)
        try:
            return asyncio.run(work(journal))
        finally:
            journal.close()
