"""Reports of rollouts on a model cluster, with everything that a rollout can have; ``python -m
tests.rollout.support.sample_reports DIRECTORY`` makes their pages, and pictures of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.observe.pages.template import write
from migrator.observe.status import ImagesStatus
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.preview import gather, preview
from migrator.rollout.files.archive import read_changes
from migrator.rollout.journal.journal import read_journal
from migrator.rollout.journal.looks import read_looks
from migrator.rollout.journal.progress import Progress, progress_of
from migrator.rollout.journal.writer import order_of
from migrator.rollout.nodes import Node
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Direction, Phase
from migrator.rollout.ports import ExecutorError, MigrationSeen, PartitionsSeen, Some
from migrator.rollout.report.after import After, after
from migrator.rollout.report.before import Before, before
from migrator.rollout.report.page import render
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator
from tests.verify.support.chromium import VIEWS, browser

EVIL = "<script>document.title='broken in'</script>\"'&"
NOW_MS = 1_790_000_000_000
AWAY_MS = 45_000
"""How long the replicas of the broker are out of sync that comes back slowly."""
RESTART_MS = 4_000
LAGS = (1, 2, *range(7, 14))
"""Looks in dual-write at which ZooKeeper is behind."""
THINKS_MS = 300_000


class Lively(ModelCluster):
    """Restarts take time, a broker comes back slowly, a host is away once, and ZooKeeper lags now and then."""

    clock: ModelClock
    lagging_since = 0
    broken = True
    looks = written = 0

    async def stop(self, node: Node) -> None:
        if node.name == "broker-3" and self.broken and self.state == "DualWrite":
            self.broken = False
            raise ExecutorError("the command ended with exit code 1", where=node.name, remedy="Mend it")
        await super().stop(node)
        await self.clock.sleep(RESTART_MS / 1000)

    async def start(self, node: Node) -> None:
        await super().start(node)
        if node.name == "broker-2":
            self.lagging, self.lagging_since = {node.name}, self.clock.now_ms

    def _health(self) -> PartitionsSeen:
        if self.lagging and self.clock.now_ms - self.lagging_since >= AWAY_MS:
            self.lagging = set()
        found = super()._health()
        hostile = (EVIL,) if found.under_replicated.count else ()
        return replace(found, under_replicated=Some(found.under_replicated.count, hostile))

    def _migration(self) -> MigrationSeen:
        self.looks += 1
        self.written += self.state == "DualWrite"
        self.lag = (self.written * 7919) % 40 if self.written in LAGS else 0
        voters = tuple(node.node_id for node in self.inventory.controllers.nodes)
        images = ImagesStatus(self.looks * 100, self.clock.wall_ms(), voters)
        return replace(super()._migration(), images=images)


def lively(state: Path) -> Operator:
    """An operator at such a cluster."""
    state.mkdir()
    cluster = Lively(model_inventory())
    operator = Operator(cluster, state)
    cluster.clock, operator.thinks_ms = operator.clock, THINKS_MS
    return operator


def forward(state: Path) -> Operator:
    """A rollout to its end, with a wait, a failure, a pause of an hour and an answer that took minutes."""
    operator = lively(state)
    operator.order = order_of("apply --until soak")
    assert operator.apply(StopAt(Phase.SOAK)) is Ending.REACHED
    operator.clock.now_ms += 3_600_000
    operator.order = {"by": EVIL, "command": "resume"}
    try:
        operator.resume()
    except ExecutorError:
        operator.clock.now_ms += 60_000
        assert operator.resume() is Ending.COMPLETE
    return operator


def back(state: Path) -> Operator:
    """A rollout that turned back."""
    operator = lively(state)
    operator.order = order_of("apply --until kraft/broker-1")
    operator.apply(StopAt(step="kraft/broker-1"))
    operator.order = order_of("rollback")
    assert operator.rollback() is Ending.COMPLETE
    return operator


def after_of(operator: Operator) -> After:
    """Its report."""
    entries = read_journal(operator.state)
    rollout = progress_of(entries).rollout
    looked, changes = read_looks(operator.state, rollout), read_changes(operator.state, rollout)
    return after(operator.cluster.inventory, entries, looked, changes)


def before_of(operator: Operator, examined: Sequence[str] | None = None) -> Before:
    """A report before the first act."""

    async def made() -> Before:
        parts = operator.parts()
        steps = plan(parts.inventory, Direction.FORWARD)
        shown = preview(parts, steps, Progress(), await gather(parts, steps, Progress()))
        seen = await parts.observer.observe()
        return before(parts.inventory, Direction.FORWARD, "zk:2181", shown, seen, None, examined, lock_is_local=True)

    return asyncio.run(made())


def _plan(state: Path) -> Before:
    operator = lively(state)
    assert isinstance(operator.cluster, Lively)
    operator.cluster.lagging, operator.cluster.lagging_since = {"broker-2"}, operator.clock.now_ms
    return before_of(operator)


FACTS: Mapping[str, Callable[[Path], After | Before]] = {
    "forward": lambda state: after_of(forward(state)),
    "back": lambda state: after_of(back(state)),
    "before": _plan,
}
"""By kind of page; the directory for the journal does not exist yet."""


def page(kind: str, state: Path) -> str:
    return render(FACTS[kind](state), NOW_MS)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir()
    with browser(place / "profile") as tab:
        for kind in FACTS:
            write(place / f"{kind}.html", page(kind, place / kind))
            tab.open(place / f"{kind}.html")
            for view in VIEWS:
                tab.look(view)
                (place / f"{kind}-{view}.png").write_bytes(tab.screenshot(whole=True))
            (place / f"{kind}.pdf").write_bytes(tab.pdf())
