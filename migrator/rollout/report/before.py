"""The page of a plan before a rollout, with its risks, for the people who have to agree. It opens nothing.

`migrator rollout report` calls `before` with the plan, a look and what preflight found; `page` shows the result. A
source that was not read is named as a risk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from migrator.observe.printable import number_of
from migrator.rollout.engine.preview import StepPreview, StepState
from migrator.rollout.inventory import ControllerKind, Inventory, Roll
from migrator.rollout.journal.summary import RehearsedTimes
from migrator.rollout.nodes import NodeKind
from migrator.rollout.plan.steps import STOPS, Direction
from migrator.rollout.ports import Observation, Some
from migrator.values import value


@value
class Before:
    """``forecast``: of the last rehearsal; None without one. ``restarts``: how many processes are stopped or restarted.
    ``risks``: a sentence each."""

    cluster: str
    cluster_id: str
    direction: Direction
    zookeeper: str
    nodes: str
    restarts: int
    gate_seconds: float
    soak_seconds: float
    forecast: RehearsedTimes | None
    risks: tuple[str, ...]
    steps: tuple[StepPreview, ...]

    def as_json(self) -> dict[str, Any]:
        """The JSON value for scripts; each step as `migrator rollout plan --json` shows it."""
        whole = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "steps"}
        steps = [one.as_json() for one in self.steps]
        return {"kind": "before", **orjson.loads(orjson.dumps(whole)), "steps": steps}


def before(
    inventory: Inventory,
    direction: Direction,
    zookeeper: str,
    shown: Sequence[StepPreview],
    seen: Observation,
    forecast: RehearsedTimes | None,
    examined: Sequence[str] | None,
    *,
    lock_is_local: bool,
) -> Before:
    """The facts of a plan.

    :param zookeeper: where ZooKeeper is; "" without one.
    :param seen: the cluster as it is now, with partitions.
    :param examined: what preflight found, a sentence each; None if it has not run.
    :param lock_is_local: whether the lock would be on this host only.
    """
    controllers, brokers = inventory.controllers, inventory.brokers
    whose = "Kafka's" if controllers.kind is ControllerKind.STOCK else "of this program"
    many = f"{number_of(len(controllers.nodes), 'controller')} {whose}, {number_of(len(brokers.nodes), 'broker')}"
    return Before(
        cluster=inventory.cluster,
        cluster_id=seen.cluster_id,
        direction=direction,
        zookeeper=zookeeper,
        nodes=many,
        restarts=sum(1 for one in shown if one.changes_a_node and STOPS & ({*one.step.acts} - one.left)),
        gate_seconds=inventory.times.gate,
        soak_seconds=inventory.times.soak,
        forecast=forecast,
        risks=(
            *_of_plan(inventory, direction, shown, zookeeper, lock_is_local=lock_is_local),
            *_of_cluster(inventory, seen),
            *_of_preflight(inventory, direction, examined),
        ),
        steps=tuple(shown),
    )


def _of_plan(
    inventory: Inventory, direction: Direction, shown: Sequence[StepPreview], zookeeper: str, *, lock_is_local: bool
) -> Iterator[str]:
    left = [one.step for one in shown if one.state in (StepState.OPEN, StepState.UNDER_WAY)]
    ends = [step.name for step in left if step.rules.ends_migration and step.node is not None]
    if ends and inventory.controllers.kind is ControllerKind.STOCK:
        yield f"From the step {ends[0]} on, the migration may be over: then 'migrator rollout rollback' is refused"
    elif ends:
        until = ", until Kafka's controllers take over" if inventory.handover is not None else ""
        yield (
            f"After the step {ends[-1]}, the migration is over. From there on only 'migrator rollout rollback "
            f"--reopen' leads back{until} (docs/way-back.md)"
        )
    if inventory.brokers.roll is Roll.RACK:
        yield "All brokers of one rack are down at the same time: replicas in other racks have to be enough"
    if direction is Direction.FORWARD and not inventory.times.soak:
        yield "There is no soak: the roll to KRaft begins as soon as both sides are written"
    if inventory.left_out.verify:
        yield "ZooKeeper is not compared with the metadata log before the end: the inventory leaves 'verify' out"
    if not zookeeper:
        yield "'access' names no ZooKeeper: the lock is not there, and brokers are seen through the quorum only"
    if lock_is_local:
        yield "The lock is on this host only: a second rollout on another host is not prevented"
    for node in inventory.gone:
        yield f"{node.name} is left out for good"


def _of_preflight(inventory: Inventory, direction: Direction, examined: Sequence[str] | None) -> Sequence[str]:
    if examined is not None or direction is Direction.BACK:
        return examined or ()
    if inventory.left_out.preflight:
        return ("The cluster is not examined before the first step: the inventory leaves 'preflight' out",)
    return ("Preflight has not run yet: 'migrator rollout apply --until preflight' runs it, and changes no node",)


def _of_cluster(inventory: Inventory, seen: Observation) -> Iterator[str]:
    names = {node.node_id: node.name for node in inventory.nodes if node.role is NodeKind.BROKER}
    down = [names.get(broker, f"broker {broker}") for broker, each in (seen.brokers or {}).items() if each.mode is None]
    if down:
        yield f"Down now: {', '.join(down)}"
    found = seen.partitions
    if found is not None:
        yield from _partitions("offline", found.offline)
        yield from _partitions("under-replicated", found.under_replicated)
        yield from _partitions("with fewer replicas in sync than min.insync.replicas", found.under_min_isr)
        yield from _partitions("being reassigned", found.reassigning)
    else:
        yield "The state of the partitions is unknown"
    yield from (f"Could not be looked at: {each}" for each in seen.unknown)


def _partitions(what: str, some: Some) -> Iterator[str]:
    if some.count:
        examples = f", for example {', '.join(some.names)}" if some.names else ""
        yield f"{number_of(some.count, 'partition')} {what} now{examples}: gates wait for them"
