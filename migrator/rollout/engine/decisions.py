"""Decides whether an act of a step has to be done, from the journal and what is seen. Pure.

Every act that changes something is noted as begun, done, and noted as done. When an act is noted as begun only, the
digest of the file or the running process tells whether it took effect.
"""

from __future__ import annotations

from enum import Enum, auto

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState
from migrator.rollout.journal.progress import StepProgress
from migrator.rollout.nodes import Node, Role
from migrator.rollout.plan.modes import OF_BROKERS, FileMode
from migrator.rollout.plan.steps import Act, Step
from migrator.rollout.ports import BrokerMode, Observation

BEHIND_COPY = (PublicState.DUAL_WRITE.label, PublicState.FINISHED.label)
UNKNOWN_INCARNATION = ""
"""The value of an executor that cannot distinguish incarnations; then the broker's registration shows a restart."""


class ActDecision(Enum):
    """What to do about one act."""

    DO = auto()
    START = auto()
    """The second half of a restart: no process runs."""
    FOUND = auto()
    """The node is already in the wanted state, and no act was begun."""
    TOOK_EFFECT = auto()
    """The act was begun, and its effect is there."""
    FILE_CHANGED = auto()
    """Somebody else has changed the file: nothing is done before the operator has looked at it."""


def is_ahead(step: Step, here: FileMode | None) -> bool:
    """Whether a broker's file is in a later mode than the step wants."""
    return step.rules.first_of_brokers and here is FileMode.BROKER_KRAFT


class FileAheadError(OperatorError):
    """A broker's file is in KRaft mode before the copy. The copy does not begin while the broker's process is in
    ZooKeeper mode, and before the copy the quorum refuses a broker in KRaft mode."""


def may_be_ahead(node: Node, seen: Observation) -> bool:
    """Whether a broker's file may rightly be in KRaft mode: the copy was made, and the operator has changed the file
    already."""
    broker = seen.broker(node)
    if broker is not None and (broker.mode is BrokerMode.KRAFT or broker.kraft_in_log):
        return True
    return seen.migration is not None and seen.migration.state in BEHIND_COPY


def ahead_of_copy(*nodes: Node) -> FileAheadError:
    """The error, with the names of brokers and files."""
    return FileAheadError(
        "the property file is in KRaft mode, and nothing is copied yet; nothing was done",
        where=", ".join(f"{node.name} on {node.host}: {node.properties}" for node in nodes),
        remedy="Set the file back to ZooKeeper mode: with zookeeper.connect and broker.id, without process.roles. Then "
        "type the command again",
    )


def took_effect(step: Step, known: StepProgress, seen: Observation, incarnation: str | None) -> bool:
    """Whether the process of a step was already stopped. Then no gate delays its start, and the step only waits for its
    return.

    :param incarnation: of the process that runs now; None when none runs.
    """
    if incarnation is None:
        return True
    if known.begun is not Act.RESTART:
        return False
    old = known.expected["incarnation"]
    if UNKNOWN_INCARNATION in (incarnation, old):
        return seen.is_silent(step.node) or registered_anew(step, known, seen)
    return incarnation != old


def comparable(known: StepProgress, incarnation: str | None, words: str) -> str | None:
    """The incarnation, if it can be compared with the one noted before a restart. It cannot when the operator has
    changed the executor's commands since; then the broker's registration tells a restart.

    :param words: the digest of today's commands.
    """
    if incarnation is None or known.begun is not Act.RESTART:
        return incarnation
    return incarnation if known.expected.get("words", words) == words else UNKNOWN_INCARNATION


def decide_edit(step: StepProgress, now: str | None, wanted: str | None, *, file_is_known: bool) -> ActDecision:
    """What to do about a property file.

    :param now: the digest of the file as it is.
    :param wanted: the digest of the file as it has to be.
    :param file_is_known: whether the file is as this rollout has last seen or written it.
    """
    if step.begun is Act.EDIT:
        if now == step.expected["after"]:
            return ActDecision.TOOK_EFFECT
        return ActDecision.DO if now == step.expected["before"] else ActDecision.FILE_CHANGED
    if not file_is_known:
        return ActDecision.FILE_CHANGED
    return ActDecision.FOUND if now == wanted else ActDecision.DO


def decide_restart(
    step: Step, known: StepProgress, seen: Observation, incarnation: str | None, *, file_is_known: bool
) -> ActDecision:
    """What to do about a restart.

    :param incarnation: of the process that runs now; None when none runs.
    :param file_is_known: whether the file is as this rollout has last written it.
    """
    decision = _decide_restart(step, known, seen, incarnation)
    touches = decision in (ActDecision.DO, ActDecision.START)
    return ActDecision.FILE_CHANGED if touches and not file_is_known else decision


def _decide_restart(step: Step, known: StepProgress, seen: Observation, incarnation: str | None) -> ActDecision:
    if known.begun is Act.RESTART:
        if incarnation is None:
            return ActDecision.START
        old = known.expected["incarnation"]
        if UNKNOWN_INCARNATION in (incarnation, old):
            return ActDecision.TOOK_EFFECT if registered_anew(step, known, seen) else ActDecision.DO
        return ActDecision.DO if incarnation == old else ActDecision.TOOK_EFFECT
    if incarnation is None:
        return ActDecision.START
    if known.past:
        return ActDecision.FOUND
    as_wanted = runs_as_wanted(step, seen)
    if as_wanted and (known.restored or not known.wrote):
        return ActDecision.FOUND
    if not known.wrote and as_wanted is None and seen.is_down(step.node) and step.mode is not FileMode.BROKER_ZOOKEEPER:
        return ActDecision.FOUND  # it is starting with this file, and the gate after it checks its mode
    return ActDecision.DO


def decide_start(known: StepProgress, incarnation: str | None) -> ActDecision:
    """What to do about a process that has to run. In a step that first stops another process, the act STOP starts this
    one, too."""
    if incarnation is None:
        return ActDecision.DO
    return ActDecision.TOOK_EFFECT if known.begun is Act.START or Act.STOP in known.done else ActDecision.FOUND


def decide_stop(known: StepProgress, incarnation: str | None) -> ActDecision:
    """What to do about a process that must not run."""
    if incarnation is not None:
        return ActDecision.DO
    return ActDecision.TOOK_EFFECT if known.begun is Act.STOP else ActDecision.FOUND


def runs_as_wanted(step: Step, seen: Observation) -> bool | None:
    """Whether the node runs in the step's mode; None while it is not seen, or its mode cannot be told."""
    if step.node is None or step.mode is None:
        return None
    if step.node.role is Role.BROKER:
        broker = seen.broker(step.node)
        if broker is None or broker.mode is None or (broker.may_migrate and step.mode is FileMode.BROKER_ZOOKEEPER):
            return None
        return OF_BROKERS[broker.mode] is step.mode
    voter = seen.voter(step.node)
    if voter is None or voter.migration_on is None:
        return None
    return voter.migration_on is (step.mode is FileMode.CONTROLLER_MIGRATING)


def registered_anew(step: Step, known: StepProgress, seen: Observation) -> bool:
    """Whether the broker of a step has another registration than before its restart."""
    broker = seen.broker(step.node)
    if known.before is None or broker is None:
        return False
    return bool(broker.registration) and broker.registration != known.before.registration
