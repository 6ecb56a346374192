"""The order to reopen a finished migration: looked at, noted, and answered when a majority has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.errors import OperatorError
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import State
from migrator.node.migration.reopening import ReopenOrder
from migrator.observe.status import Gate, Orderer
from migrator.records.metadata import ZkMigrationState
from tests.node.support.cluster import running

ALICE = Orderer("User:CN=alice", "ipv4:10.0.0.1:4711")
OPEN, CLOSED = Gate("state", open=True, what="fine"), Gate("controllers", open=False, what="the migration is off")


class Ordered:
    """The order on a node that leads; what happens is noted in order, and answered by ``then``."""

    def __init__(self, core: Any, then: Callable[[ReopenOrder], None]) -> None:
        self.state = State.FINISHED
        self.seen: list[object] = []
        self.gates: tuple[Gate, ...] = (OPEN,)
        self._then = then
        executor: Any = SimpleNamespace(feed=self.feed, coordinator=SimpleNamespace(status=lambda _now: self))
        self._order = ReopenOrder(3, core, executor, lambda kind, text, **more: self.seen.append((kind, text, more)))

    def feed(self, event: ev.Event) -> None:
        self.seen.append(event)
        asyncio.get_running_loop().call_soon(self._then, self._order)

    async def give(self, reason: str = "CHG-1") -> None:
        async def look() -> tuple[Gate, ...]:
            return self.gates

        await self._order.give(reason, ALICE, look)


async def test_it_is_noted_first_and_answered_when_a_majority_has_it(tmp_path: Path) -> None:
    def committed(order: ReopenOrder) -> None:
        order.published(ZkMigrationState.POST_MIGRATION)
        order.published(ZkMigrationState.MIGRATION)
        order.lost_leadership()

    async with running(tmp_path, 1) as cluster:
        ordered = Ordered(await cluster.leader(), committed)
        await ordered.give()
    noted, fed = ordered.seen
    assert noted == ("reopen", "CHG-1", ALICE.details)
    assert isinstance(fed, ev.OperatorReopen)
    assert (fed.order.node_id, fed.order.reason) == (3, "CHG-1")


async def test_what_stands_against_it_is_named_and_nothing_is_done(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        ordered = Ordered(await cluster.leader(), ReopenOrder.lost_leadership)
        with pytest.raises(OperatorError, match="--reason"):
            await ordered.give(" ")
        ordered.gates = (OPEN, CLOSED)
        with pytest.raises(OperatorError, match="was not reopened: controllers: the migration is off"):
            await ordered.give()
        ordered.gates, ordered.state = (OPEN,), State.EXAMINING
        with pytest.raises(OperatorError, match="has changed while the order was checked"):
            await ordered.give()
        assert ordered.seen == []


async def test_a_lost_leadership_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        ordered = Ordered(await cluster.leader(), ReopenOrder.lost_leadership)
        with pytest.raises(OperatorError, match="lost the leadership before a majority"):
            await ordered.give()
