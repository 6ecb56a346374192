"""Whether a step or an act of it has to be done at all: decisions on the journal and what is seen. Pure.

Every action that changes something is noted as begun, done, and noted as done. An action that was begun and not noted
as done is looked at first: the digest of the file, or the process that runs, says whether it took effect.
"""

from __future__ import annotations

from enum import Enum, auto

from migrator.migration.machine.states import PublicState
from migrator.rollout.engine.looks import is_down, is_silent, may_be_dual_writing, registered_anew, runs_as_wanted
from migrator.rollout.journal.progress import StepProgress
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.plan.steps import Act, Condition, Phase, Step
from migrator.rollout.ports import BrokerMode, Observation
from migrator.seeing.controllers import ControllerProgram

COPIED = (PublicState.MIGRATE_ZK_DATA.label, PublicState.DUAL_WRITE.label, PublicState.FINISHED.label)
KRAFT_OR_UNSEEN = (None, BrokerMode.KRAFT)
UNKNOWN_INCARNATION = ""
"""Of an executor that cannot tell: the registration of the broker tells then."""


class Decision(Enum):
    """What to do about one act."""

    DO = auto()
    START = auto()
    """Of a restart: only the second half, nothing runs."""
    FOUND = auto()
    """Nothing is to be done, and nothing was begun."""
    TOOK_EFFECT = auto()
    """It was begun, and its effect is there."""
    FILE_CHANGED = auto()
    """Somebody else has changed the file: nothing is done before a person has looked."""


def is_needed(step: Step, seen: Observation, here: FileMode | None, *, runs: bool, starts: bool = False) -> bool:
    """Whether a step that was not begun has to be done.

    :param here: what the node's property file is for; None where the step is about no file.
    :param runs: whether the node's process does.
    :param starts: whether this rollout has to start it, because it was left out and is there again.
    """
    state = "" if seen.migration is None else seen.migration.state
    node_id = -1 if step.node is None else step.node.node_id
    broker = (seen.brokers or {}).get(node_id)
    voter = None if seen.quorum is None else seen.quorum.voters.get(node_id)
    mode = None if broker is None else broker.mode
    migrates = None if voter is None else voter.migration_on
    finished = seen.is_finished
    return {
        Condition.ALWAYS: True,
        Condition.NOT_COPIED: state not in COPIED,
        Condition.NOT_FINISHED: not finished,
        Condition.RULES_AND_IS_DOWN: seen.quorum_claims and not runs,
        Condition.DUAL_WRITING: may_be_dual_writing(seen),
        Condition.NODE_DOWN: not finished and not runs,
        Condition.STILL_MIGRATING: here is FileMode.CONTROLLER_MIGRATING
        or migrates is True
        or (starts and not runs and (voter is None or voter.program is None)),
        Condition.MIGRATION_OFF: here is FileMode.CONTROLLER_ENDED or (runs and migrates is False),
        Condition.NOT_IN_KRAFT: not (finished and runs and here is FileMode.BROKER_KRAFT and mode in KRAFT_OR_UNSEEN),
        Condition.IN_KRAFT: here is FileMode.BROKER_KRAFT
        or mode is BrokerMode.KRAFT
        or (broker is not None and broker.kraft_in_log),
        Condition.NOT_IN_ZOOKEEPER: here is not FileMode.BROKER_ZOOKEEPER
        or mode is not BrokerMode.ZOOKEEPER
        or (broker is not None and broker.may_migrate),
        Condition.NOT_STOCK: voter is None or voter.program is not ControllerProgram.STOCK,
        Condition.REGISTERED: broker is not None,
        Condition.NO_ZOOKEEPER_CONTROLLER: seen.controller_broker is None,
    }[step.condition]


def is_ahead(step: Step, here: FileMode | None) -> bool:
    """Whether a broker's file is beyond what the step wants."""
    return step.phase is Phase.MIGRATE and here is FileMode.BROKER_KRAFT


def took_effect(step: Step, known: StepProgress, seen: Observation, incarnation: str | None) -> bool:
    """Whether the process of a step was stopped already: no gate holds up what brings it back, or waits for it.

    :param incarnation: of the process that runs now; None: none does.
    """
    if incarnation is None:
        return True
    if known.begun is not Act.RESTART:
        return False
    old = known.expected["incarnation"]
    if UNKNOWN_INCARNATION in (incarnation, old):
        return is_silent(step, seen) or registered_anew(step, known, seen)
    return incarnation != old


def comparable(known: StepProgress, incarnation: str | None, words: str) -> str | None:
    """The incarnation, if it can be compared with the one that was noted before a restart: the operator may have worded
    the executor's commands otherwise since. Then the broker's registration tells.

    :param words: digest of what words the commands now.
    """
    if incarnation is None or known.begun is not Act.RESTART:
        return incarnation
    return incarnation if known.expected.get("words", words) == words else UNKNOWN_INCARNATION


def decide_edit(step: StepProgress, now: str | None, wanted: str | None, *, file_is_known: bool) -> Decision:
    """
    :param now: digest of the file as it is.
    :param wanted: as it has to be.
    :param file_is_known: whether the file is as this rollout has seen it or left it.
    """
    if step.begun is Act.EDIT:
        if now == step.expected["after"]:
            return Decision.TOOK_EFFECT
        return Decision.DO if now == step.expected["before"] else Decision.FILE_CHANGED
    if not file_is_known:
        return Decision.FILE_CHANGED
    return Decision.FOUND if now == wanted else Decision.DO


def decide_restart(
    step: Step, known: StepProgress, seen: Observation, incarnation: str | None, *, file_is_known: bool
) -> Decision:
    """
    :param incarnation: of the process that runs now; None: none does.
    :param file_is_known: whether the file is as this rollout has left it.
    """
    decision = _decide_restart(step, known, seen, incarnation)
    touches = decision in (Decision.DO, Decision.START)
    return Decision.FILE_CHANGED if touches and not file_is_known else decision


def _decide_restart(step: Step, known: StepProgress, seen: Observation, incarnation: str | None) -> Decision:
    if known.begun is Act.RESTART:
        if incarnation is None:
            return Decision.START
        old = known.expected["incarnation"]
        if UNKNOWN_INCARNATION in (incarnation, old):
            return Decision.TOOK_EFFECT if registered_anew(step, known, seen) else Decision.DO
        return Decision.DO if incarnation == old else Decision.TOOK_EFFECT
    if incarnation is None:
        return Decision.START
    if known.past:
        return Decision.FOUND
    as_wanted = runs_as_wanted(step, seen)
    if as_wanted and (known.restored or not known.wrote):
        return Decision.FOUND
    if not known.wrote and as_wanted is None and is_down(step, seen) and step.mode is not FileMode.BROKER_ZOOKEEPER:
        return Decision.FOUND  # it starts just now, with this file, and the gate behind sees its mode
    return Decision.DO


def decide_start(known: StepProgress, incarnation: str | None) -> Decision:
    """Of a process that has to run. The stop of a step that stops another one before starts it as well."""
    if incarnation is None:
        return Decision.DO
    return Decision.TOOK_EFFECT if known.begun is Act.START or Act.STOP in known.done else Decision.FOUND


def decide_stop(known: StepProgress, incarnation: str | None) -> Decision:
    """Of a process that must not run."""
    if incarnation is not None:
        return Decision.DO
    return Decision.TOOK_EFFECT if known.begun is Act.STOP else Decision.FOUND
