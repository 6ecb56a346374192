"""The state of a rollout for `status`: its journal, its lock and the cluster, in one value. Pure.

`migrator rollout status` makes a `RolloutStatus` and prints it, as text or JSON. A part that could not be looked at is
None, with the reason in ``trouble``: it is never shown as healthy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from migrator.observe.kafkas_words import kafkas_words
from migrator.observe.printable import number_of
from migrator.rollout.engine.decisions import next_step
from migrator.rollout.gates.following import named
from migrator.rollout.inventory import Inventory
from migrator.rollout.journal.journal import Entry
from migrator.rollout.journal.looks import ShutGate
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.journal.summary import LastFailure, RehearsedTimes, counted, failure_of, forecast_of, of_last
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Direction, Step
from migrator.rollout.ports import BrokerMode, BrokerSeen, LockHolder, Observation
from migrator.values import value

OF_GATE = ("time_ms", "step", "waits", "state", "offline", "under_replicated", "lag")
OF_HOLDER = ("rollout", "owner", "host", "since_ms", "process", "directory")


@value
class RolloutStatus:
    """``state``: none, running, stopped, failed or complete. ``step``: under way, or next. ``trouble``: why the cluster
    or the lock could not be looked at; ``seen`` or ``holder`` is then None. ``names``: of brokers, by id. ``plan``: the
    digest of the plan that was reviewed; "" without one. ``ends_again``: the reopening in which it goes forward.
    ``gate``: at which the command waits, or waited as it ended."""

    cluster: str
    state: str
    rollout: str
    direction: Direction
    done: int
    steps: int
    step: Step | None
    soaked_seconds: int
    failure: LastFailure | None
    forecast: RehearsedTimes | None
    seen: Observation | None
    holder: LockHolder | None
    trouble: str
    names: Mapping[int, str] = field(default_factory=dict)
    plan: str = ""
    ends_again: str = ""
    gate: ShutGate | None = None

    @property
    def is_complete(self) -> bool:
        return self.state == "complete"

    @property
    def is_blind(self) -> bool:
        """Whether nothing of the cluster could be seen, so nothing can be said about it."""
        seen = self.seen
        return seen is None or (not seen.zookeeper_answers and seen.quorum is None and seen.brokers is None)

    @property
    def is_locked_out(self) -> bool:
        """Whether no command may go on, because another rollout holds the lock."""
        holder = self.holder
        return self.state in ("stopped", "failed") and holder is not None and holder.rollout != self.rollout

    @property
    def is_reopened(self) -> bool:
        """Whether the migration was reopened after its end, so that only an explicit order leads forward."""
        seen = None if self.seen is None else self.seen.migration
        return seen is not None and seen.reopened not in ("", self.ends_again) and self.direction is Direction.FORWARD

    def as_json(self) -> dict[str, Any]:
        holder, step = self.holder, self.step
        return {
            "cluster": self.cluster,
            "state": self.state,
            "rollout": self.rollout or None,
            "plan": self.plan or None,
            "direction": self.direction.value,
            "steps_done": self.done,
            "steps": self.steps,
            "step": None if step is None else step.name,
            "why": None if step is None else step.rules.why,
            "soaked_seconds": self.soaked_seconds,
            "gate": None
            if self.gate is None
            else {"since_ms": self.gate.since_ms, **{name: getattr(self.gate.last, name) for name in OF_GATE}},
            "failure": None if self.failure is None else str(self.failure),
            "failure_remedy": None if self.failure is None else self.failure.remedy or None,
            "failure_output": None if self.failure is None else self.failure.output or None,
            "forecast_seconds": None if self.forecast is None else self.forecast.seconds,
            "lock": None if holder is None else {name: getattr(holder, name) for name in OF_HOLDER},
            "seen": None if self.seen is None else seen_lines(self.seen, self.names),
            "trouble": self.trouble or None,
        }


def standing_of(
    inventory: Inventory,
    entries: Sequence[Entry],
    *,
    running: bool,
    seen: Observation | None = None,
    holder: LockHolder | None = None,
    trouble: str = "",
    gate: ShutGate | None = None,
) -> RolloutStatus:
    """Put the state together.

    :param running: whether a command of the rollout runs on this host.
    """
    progress, last = progress_of(entries), of_last(entries)
    steps = plan(inventory, progress.direction, progress.canary, reopens=progress.reopens)
    failure = failure_of(last)
    done, count = counted(steps, progress)
    if not progress.rollout:
        state = "none"
    elif progress.closed:
        state = "complete"
    elif running:
        state = "running"
    else:
        state = "stopped" if failure is None else "failed"
    return RolloutStatus(
        cluster=inventory.cluster,
        state=state,
        rollout=progress.rollout,
        direction=progress.direction,
        done=done,
        steps=count,
        step=None if state in ("none", "complete") else next_step(steps, progress, seen or Observation()),
        soaked_seconds=progress.soaked_ms // 1000,
        failure=failure,
        forecast=forecast_of(entries),
        seen=seen,
        holder=holder,
        trouble=trouble,
        names={node.node_id: node.name for node in (*inventory.brokers.nodes, *inventory.gone)},
        plan=progress.plan,
        ends_again=progress.ends_again,
        gate=gate if state in ("running", "stopped") else None,
    )


def seen_lines(seen: Observation, names: Mapping[int, str]) -> list[str]:
    """The state of the cluster, in sentences.

    :param names: of brokers, by id.
    """
    lines = []
    migration, quorum, partitions = seen.migration, seen.quorum, seen.partitions
    state = "unknown" if migration is None or not migration.state else migration.state
    modes = {broker.mode for broker in (seen.brokers or {}).values()}
    in_zookeeper = bool(modes & {BrokerMode.ZOOKEEPER, BrokerMode.MIGRATING})
    phase = kafkas_words(state, "", in_zookeeper_mode=in_zookeeper)
    lines.append(f"migration: {state}{f' ({phase} in Kafka)' if phase else ''}")
    if migration is not None and migration.reopened:
        lines.append(f"reopened after its end: {migration.reopened}")
    if quorum is not None:
        leader = "nobody leads" if quorum.leader_id is None else f"controller {quorum.leader_id} leads"
        silent = [str(voter.node_id) for voter in quorum.voters.values() if voter.program is None]
        no_answer = f"; no answer from {', '.join(silent)}" if silent else ""
        lines.append(f"quorum: {leader}{no_answer}")
    if seen.controller_broker is not None:
        lines.append(f"ZooKeeper controller: broker {seen.controller_broker}")
    if seen.brokers is not None:
        lines.append("brokers: " + ", ".join(_by_mode(seen.brokers, names)))
    if partitions is not None:
        lines.append(
            f"partitions: {partitions.offline.count} offline, {partitions.under_replicated.count} under-replicated, "
            f"{partitions.reassigning.count} being reassigned"
        )
    if migration is not None and migration.write_behind_lag >= 0:
        lines.append(f"ZooKeeper is {number_of(migration.write_behind_lag, 'record')} behind")
    lines += [f"foreign write: {path}" for path in (() if migration is None else migration.foreign_writes)]
    lines += [f"waits: {problem}" for problem in (() if migration is None else migration.problems)]
    return [*lines, *(f"unknown: {each}" for each in seen.unknown)]


def _by_mode(brokers: Mapping[int, BrokerSeen], names: Mapping[int, str]) -> Iterator[str]:
    """How many brokers are in which mode, with names unless all are in one mode. Brokers that are down always have
    names."""
    modes: dict[str, list[str]] = {}
    for broker_id, broker in brokers.items():
        mode = "no mode (down)" if broker.mode is None else f"{broker.mode.value} mode"
        if broker.may_migrate:
            mode = "ZooKeeper or migration mode (their settings are not seen)"
        modes.setdefault(mode, []).append(names.get(broker_id, f"broker {broker_id}"))
    for mode, found in modes.items():
        is_down = mode.endswith("(down)")
        shown = f": {named(tuple(found))}" if is_down or len(modes) > 1 else ""
        yield f"{len(found)} in {mode}{shown}"
