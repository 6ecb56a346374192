"""The plan: an inventory -> the steps of the whole way, forward or back. Pure.

It has every step, also those whose effect is there already: `apply` finds that out by looking at their turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState
from migrator.rollout.inventory import ControllerKind, Inventory, Roll
from migrator.rollout.nodes import Node, Role
from migrator.rollout.plan.modes import OF_BROKERS, FileMode
from migrator.rollout.plan.steps import Act, Condition, Direction, Job, Phase, Step
from migrator.rollout.ports import BrokerMode, Gate, GateQuestion
from migrator.seeing.controllers import ControllerProgram

INELIGIBLE, DUAL_WRITE, FINISHED = (
    GateQuestion(Gate.MIGRATION_STATE, state=state.label)
    for state in (PublicState.MIGRATION_INELIGIBLE, PublicState.DUAL_WRITE, PublicState.FINISHED)
)
HEALTHY, QUORUM = GateQuestion(Gate.PARTITIONS_HEALTHY), GateQuestion(Gate.QUORUM_HEALTHY)
FINISHING, NOT_FINISHED = GateQuestion(Gate.FINISHING), GateQuestion(Gate.NOT_FINISHED)
WRITTEN, ALONE = GateQuestion(Gate.WRITE_BEHIND_IDLE), GateQuestion(Gate.NO_FOREIGN_WRITES)
AGREE = GateQuestion(Gate.IMAGES_AGREE)
KEEPS_UP = GateQuestion(Gate.LEADER_KEEPS_UP)
UNFINISHED = Condition.NOT_FINISHED
ROLL_CONDITIONS = {
    Phase.KRAFT: Condition.NOT_IN_KRAFT,
    Phase.LEAVE_KRAFT: Condition.IN_KRAFT,
    Phase.LEAVE_MIGRATION: Condition.NOT_IN_ZOOKEEPER,
}


def plan(inventory: Inventory, direction: Direction, canary: str = "") -> tuple[Step, ...]:
    """Every step of the way.

    :param canary: name or id of the broker that goes first in every roll; "" for none. One that was chosen once, and is
        not in the inventory any more, holds nothing up: no broker goes first then.
    """
    steps = _forward(inventory, canary) if direction is Direction.FORWARD else _back(inventory, canary)
    return tuple(steps)


def _forward(inventory: Inventory, canary: str) -> Iterator[Step]:
    controllers, left_out = inventory.controllers.nodes, inventory.left_out
    first, proof = controllers[0], () if left_out.verify else (Act.RUN,)
    if not left_out.preflight:
        yield _job(Phase.PREFLIGHT, Job.PREFLIGHT, first, Condition.NOT_COPIED)
    if not left_out.rehearse:
        yield _job(Phase.REHEARSE, Job.REHEARSE, first, Condition.NOT_COPIED)
    for node in controllers:
        acts, mode = (Act.EDIT, Act.RUN), FileMode.CONTROLLER_MIGRATING
        yield Step(_name(Phase.FORMAT, node), Phase.FORMAT, acts, node, mode, Job.FORMAT, Condition.NODE_DOWN)
    for node in controllers:
        yield Step(_name(Phase.START, node), Phase.START, (Act.START,), node, condition=UNFINISHED)
    yield Step("started", Phase.START, (Act.CHECK_AFTER,), condition=UNFINISHED, after=(QUORUM, INELIGIBLE))
    yield from _roll(inventory, Phase.MIGRATE, BrokerMode.MIGRATING, canary, before=(QUORUM, KEEPS_UP))
    yield Step("copy", Phase.COPY, (Act.CHECK_AFTER,), condition=UNFINISHED, after=(DUAL_WRITE, QUORUM, WRITTEN))
    if inventory.times.soak or not left_out.verify:
        yield Step("soak", Phase.SOAK, (Act.SOAK, *proof), first, None, Job.VERIFY, UNFINISHED, before=(QUORUM, ALONE))
    yield from _roll(inventory, Phase.KRAFT, BrokerMode.KRAFT, canary, before=(DUAL_WRITE, QUORUM, KEEPS_UP))
    yield from _unregister(inventory)
    before = (*_may_end(inventory), QUORUM)
    if left_out.verify:
        yield Step("ready", Phase.READY, (Act.CHECK_BEFORE,), condition=UNFINISHED, before=before)
    else:
        acts = (Act.CHECK_BEFORE, Act.RUN)
        yield Step("verify", Phase.VERIFY, acts, first, None, Job.VERIFY, UNFINISHED, before=before)
    yield from _finish(inventory)
    if inventory.handover is not None:
        yield from _hand_over(inventory)
    yield Step("archive", Phase.ARCHIVE, (Act.RUN,), first, None, Job.ARCHIVE)


def _finish(inventory: Inventory) -> Iterator[Step]:
    controllers = inventory.controllers.nodes
    proof = () if inventory.left_out.verify else (Act.PROVE,)
    acts = (Act.CONFIRM, Act.CHECK_BEFORE, *proof, Act.EDIT, Act.RESTART, Act.CHECK_AFTER)
    for node in controllers:
        yield Step(
            _name(Phase.FINISH, node),
            Phase.FINISH,
            acts,
            node,
            FileMode.CONTROLLER_ENDED,
            condition=Condition.STILL_MIGRATING,
            before=(*_may_end(inventory), GateQuestion(Gate.OTHERS_CAUGHT_UP, node)),
            after=(GateQuestion(Gate.CONTROLLER_BACK, node, program=program_of(inventory), migration_on=False), QUORUM),
        )
    if _waits_for_gone(inventory):
        acts, before = (Act.CHECK_BEFORE, Act.RUN, Act.CHECK_AFTER), (FINISHING,)
        yield Step("finished", Phase.FINISH, acts, job=Job.LEAVE_OUT, before=before, after=(FINISHED, QUORUM))
    else:
        yield Step("finished", Phase.FINISH, (Act.CHECK_AFTER,), after=(FINISHED, QUORUM))


def _waits_for_gone(inventory: Inventory) -> bool:
    """Whether the end needs an order: our leader asks every controller, one of Kafka's asks none."""
    ours = inventory.controllers.kind is ControllerKind.MIGRATOR
    return ours and any(node.role is Role.CONTROLLER for node in inventory.gone)


def _unregister(inventory: Inventory) -> Iterator[Step]:
    """Neither the end of the migration nor the way back comes while a broker is registered that is gone."""
    for node in inventory.gone:
        if node.role is Role.BROKER:
            yield Step(
                _name(Phase.UNREGISTER, node),
                Phase.UNREGISTER,
                (Act.RUN,),
                node,
                job=Job.UNREGISTER,
                condition=Condition.REGISTERED,
            )


def _may_end(inventory: Inventory) -> tuple[GateQuestion, ...]:
    """What must hold up to the end of the migration, and is asked before each step to it."""
    in_kraft = GateQuestion(Gate.BROKERS_IN_MODE, mode=BrokerMode.KRAFT, nodes=inventory.brokers.nodes)
    return DUAL_WRITE, in_kraft, replace(WRITTEN, program=program_of(inventory)), ALONE, AGREE


def _hand_over(inventory: Inventory) -> Iterator[Step]:
    for node in inventory.controllers.nodes:
        yield Step(
            _name(Phase.HANDOVER, node),
            Phase.HANDOVER,
            (Act.CHECK_BEFORE, Act.EDIT, Act.STOP, Act.START, Act.CHECK_AFTER),
            node,
            FileMode.STOCK,
            condition=Condition.NOT_STOCK,
            successor=inventory.controllers.stock[node.node_id],
            before=(FINISHED, GateQuestion(Gate.VOTERS_SETTLED), GateQuestion(Gate.OTHERS_CAUGHT_UP, node)),
            after=(GateQuestion(Gate.CONTROLLER_BACK, node, program=ControllerProgram.STOCK), QUORUM),
        )


def _back(inventory: Inventory, canary: str) -> Iterator[Step]:
    """The migration may end until its last controller is restarted with the migration on: whoever goes back looks at
    each step whether it has ended. Until then brokers in KRaft mode have no other controller than the quorum: no voter
    stops while another one is down."""
    controllers = inventory.controllers.nodes
    for node in controllers:
        back = GateQuestion(Gate.CONTROLLER_BACK, node, program=program_of(inventory), migration_on=True)
        yield Step(
            _name(Phase.MIGRATION_ON, node),
            Phase.MIGRATION_ON,
            (Act.CHECK_BEFORE, Act.EDIT, Act.RESTART, Act.CHECK_AFTER),
            node,
            FileMode.CONTROLLER_MIGRATING,
            condition=Condition.MIGRATION_OFF,
            before=(NOT_FINISHED, GateQuestion(Gate.OTHERS_CAUGHT_UP, node)),
            after=(NOT_FINISHED, back),
        )
    for node in controllers:
        yield Step(
            _name(Phase.START_QUORUM, node),
            Phase.START_QUORUM,
            (Act.CHECK_BEFORE, Act.START),
            node,
            condition=Condition.RULES_AND_IS_DOWN,
            before=(NOT_FINISHED,),
        )
    before = (NOT_FINISHED, DUAL_WRITE, QUORUM, KEEPS_UP)
    yield from _roll(inventory, Phase.LEAVE_KRAFT, BrokerMode.MIGRATING, canary, before)
    yield from _unregister(inventory)
    drained = (NOT_FINISHED, GateQuestion(Gate.NONE_IN_KRAFT, nodes=inventory.brokers.nodes), WRITTEN)
    yield Step("drain", Phase.DRAIN, (Act.CHECK_AFTER,), condition=Condition.DUAL_WRITING, after=drained)
    for node in controllers:
        acts = (Act.CHECK_BEFORE, Act.STOP)
        yield Step(_name(Phase.STOP_QUORUM, node), Phase.STOP_QUORUM, acts, node, before=drained)
    yield Step(
        "give-back",
        Phase.GIVE_BACK,
        (Act.RUN, Act.CHECK_AFTER),
        controllers[0],
        job=Job.GIVE_BACK,
        condition=Condition.NO_ZOOKEEPER_CONTROLLER,
        after=(GateQuestion(Gate.ZOOKEEPER_CONTROLLER),),
    )
    yield from _set_aside(inventory)
    yield from _roll(inventory, Phase.LEAVE_MIGRATION, BrokerMode.ZOOKEEPER, canary, before=(NOT_FINISHED,))


def _set_aside(inventory: Inventory) -> Iterator[Step]:
    """As soon as a broker is the ZooKeeper controller, nothing needs the log any more; and a controller that comes up
    again with its host, while brokers are still in migration mode, must not find it."""
    before, acts = (NOT_FINISHED, GateQuestion(Gate.ZOOKEEPER_CONTROLLER)), (Act.CHECK_BEFORE, Act.STOP, Act.RUN)
    for node in inventory.controllers.nodes:
        yield Step(_name(Phase.SET_ASIDE, node), Phase.SET_ASIDE, acts, node, job=Job.SET_ASIDE, before=before)


def _roll(
    inventory: Inventory, phase: Phase, mode: BrokerMode, canary: str, before: tuple[GateQuestion, ...]
) -> Iterator[Step]:
    """One step a broker. Of a group, the first one is waited for; then the others are restarted one after the other,
    and waited for together."""
    for group in _groups(inventory, canary):
        back = tuple(GateQuestion(Gate.BROKER_BACK, each, mode) for each in group)
        always = tuple(question for question in before if question is NOT_FINISHED)
        for node in group:
            after = (*back, HEALTHY) if node is group[-1] else back[:1] if node is group[0] else ()
            yield Step(
                _name(phase, node),
                phase,
                (Act.CHECK_BEFORE, Act.EDIT, Act.RESTART, Act.CHECK_AFTER),
                node,
                OF_BROKERS[mode],
                condition=ROLL_CONDITIONS.get(phase, UNFINISHED),
                before=(*before, *_may_stop(group)),
                after=(*always, *after) if after else (),
                together=tuple(group) if len(group) > 1 else (),
            )


def _may_stop(group: Sequence[Node]) -> tuple[GateQuestion, GateQuestion]:
    """Replicas on the brokers of a rack count no more once one of them stops: what is left without the rack does."""
    healthy = GateQuestion(Gate.PARTITIONS_HEALTHY, nodes=tuple(group)) if len(group) > 1 else HEALTHY
    return healthy, GateQuestion(Gate.MAY_STOP, nodes=tuple(group))


def _groups(inventory: Inventory, canary: str) -> list[list[Node]]:
    """Brokers rack by rack, in the order of the inventory; the canary is alone, and first."""
    brokers = inventory.brokers.nodes
    racks: dict[str, list[Node]] = {}
    for node in brokers:
        racks.setdefault(node.rack, []).append(node)
    chosen = [node for node in brokers if canary and canary in (node.name, str(node.node_id))]
    others = [[node for node in rack if node not in chosen] for rack in racks.values()]
    if inventory.brokers.roll is Roll.BROKER:
        others = [[node] for rack in others for node in rack]
    return [group for group in (chosen, *others) if group]


def has_canary(inventory: Inventory, canary: str) -> bool:
    """Whether a broker of the inventory has this name or id."""
    return any(canary in (node.name, str(node.node_id)) for node in inventory.brokers.nodes)


def refuse_canary(inventory: Inventory, canary: str) -> None:
    """
    :param canary: as the operator has typed it just now; "" for none.
    :raises OperatorError: there is no such broker.
    """
    if canary and not has_canary(inventory, canary):
        names = ", ".join(node.name for node in inventory.brokers.nodes)
        raise OperatorError(f"there is no broker {canary}", where="--canary", remedy=f"Name one of {names}")


def is_same_canary(inventory: Inventory, one: str, other: str) -> bool:
    """Whether both are names or ids of one broker, or both are ""."""
    return one == other or any({one, other} <= {node.name, str(node.node_id)} for node in inventory.brokers.nodes)


def refuse_step(steps: Sequence[Step], name: str) -> None:
    """
    :param name: as the operator has typed it just now; "" for none.
    :raises OperatorError: there is no such step.
    """
    if name and name not in [step.name for step in steps]:
        known = ", ".join(step.name for step in steps)
        raise OperatorError(f"there is no step {name}", where="--pause-after", remedy=f"Name one of {known}")


def canary_steps(steps: Sequence[Step], canary: str) -> set[str]:
    """Names of the steps after which a rollout with this canary waits for the operator."""
    return {
        step.name
        for step in steps
        if canary and step.phase in (Phase.MIGRATE, Phase.KRAFT)
        if step.node is not None and canary in (step.node.name, str(step.node.node_id))
    }


def _job(phase: Phase, job: Job, node: Node, condition: Condition) -> Step:
    return Step(phase.value, phase, (Act.RUN,), node, None, job, condition)


def _name(phase: Phase, node: Node) -> str:
    return f"{phase.value}/{node.name}"


def program_of(inventory: Inventory) -> ControllerProgram:
    """What the controllers are that migrate the cluster."""
    stock = inventory.controllers.kind is ControllerKind.STOCK
    return ControllerProgram.STOCK if stock else ControllerProgram.MIGRATOR
