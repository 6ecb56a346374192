"""What is seen of the node of a step, and of a quorum that may have data. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.migration.machine.states import PublicState
from migrator.rollout.journal.progress import StepProgress
from migrator.rollout.nodes import Node, Role
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.plan.steps import Step
from migrator.rollout.ports import BrokerMode, BrokerSeen, Observation
from migrator.seeing.controllers import ControllerProgram

MODES = {
    FileMode.BROKER_ZOOKEEPER: BrokerMode.ZOOKEEPER,
    FileMode.BROKER_MIGRATING: BrokerMode.MIGRATING,
    FileMode.BROKER_KRAFT: BrokerMode.KRAFT,
}


def is_down(step: Step, seen: Observation) -> bool:
    """Whether the broker of a step is registered nowhere: then its restart harms nobody, and no gate holds it up."""
    if step.node is None or step.node.role is not Role.BROKER or seen.brokers is None:
        return False
    broker = seen.brokers.get(step.node.node_id)
    return broker is None or broker.mode is None


def serves(node: Node, seen: Observation) -> bool:
    """Whether a broker is seen to be registered, or a voter to answer."""
    if node.role is Role.BROKER:
        broker = (seen.brokers or {}).get(node.node_id)
        return broker is not None and broker.mode is not None
    voter = None if seen.quorum is None else seen.quorum.voters.get(node.node_id)
    return voter is not None and voter.program is not None


def answers(node: Node, seen: Observation, program: ControllerProgram) -> bool:
    """Whether the process of a node has answered at this look.

    :param program: what the node's own process is, if it is a controller: another one takes over from it.
    """
    if node.role is Role.BROKER:
        broker = (seen.brokers or {}).get(node.node_id)
        return broker is not None and broker.serving
    voter = None if seen.quorum is None else seen.quorum.voters.get(node.node_id)
    return voter is not None and voter.program is program


def is_silent(step: Step, seen: Observation) -> bool:
    """Whether the node of a step is seen not to serve: a broker that is registered nowhere, a voter without answer."""
    if step.node is None or step.node.role is Role.BROKER or seen.quorum is None:
        return is_down(step, seen)
    voter = seen.quorum.voters.get(step.node.node_id)
    return voter is not None and voter.program is None


def is_led(seen: Observation) -> bool:
    """Whether a voter leads."""
    return seen.quorum is not None and seen.quorum.leader_id is not None


def runs_as_wanted(step: Step, seen: Observation) -> bool | None:
    """Whether the node is seen in the step's mode; None while it is not seen, or cannot be told from another mode."""
    if step.node is None or step.mode is None:
        return None
    if step.node.role is Role.BROKER:
        broker = (seen.brokers or {}).get(step.node.node_id)
        if broker is None or broker.mode is None or (broker.may_migrate and step.mode is FileMode.BROKER_ZOOKEEPER):
            return None
        return broker.mode is MODES[step.mode]
    voter = None if seen.quorum is None else seen.quorum.voters.get(step.node.node_id)
    if voter is None or voter.migration_on is None:
        return None
    return voter.migration_on is (step.mode is FileMode.CONTROLLER_MIGRATING)


def broker_before(node: Node, seen: Observation) -> BrokerSeen | None:
    """What is seen of a broker before its restart, for the gate behind it."""
    if node.role is not Role.BROKER:
        return None
    return (seen.brokers or {}).get(node.node_id) or BrokerSeen(node.node_id, None)


def registered_anew(step: Step, known: StepProgress, seen: Observation) -> bool:
    """Whether the broker of a step is seen with another registration than before its restart."""
    if step.node is None or known.before is None:
        return False
    broker = (seen.brokers or {}).get(step.node.node_id)
    return broker is not None and bool(broker.registration) and broker.registration != known.before.registration


def may_be_dual_writing(seen: Observation) -> bool:
    """Whether both sides are written, or nobody can say that they are not: the quorum may have what ZooKeeper lacks."""
    if seen.migration is not None and seen.migration.state:
        return seen.migration.state == PublicState.DUAL_WRITE.label
    unknown = seen.quorum is not None or seen.quorum_claims or not seen.zookeeper_answers
    return unknown and seen.controller_broker is None


def silent_gone(gone: Sequence[Node], seen: Observation) -> list[int]:
    """Ids of the voters among nodes that are gone for good, unless they answer."""
    voters = {} if seen.quorum is None else seen.quorum.voters
    asked = [voters.get(node.node_id) for node in gone if node.role is Role.CONTROLLER]
    return [voter.node_id for voter in asked if voter is not None and voter.program is None]


def has_data(seen: Observation) -> bool:
    """Whether a quorum has committed something: a voter with an empty directory could vote that away."""
    return is_led(seen) or seen.quorum_claims or (seen.migration is not None and bool(seen.migration.state))
