"""What comes next, and whether it has to be done at all: decisions on the plan, the journal and what is seen. Pure.

Every action that changes something is noted as begun, done, and noted as done. An action that was begun and not noted
as done is looked at first: the digest of the file, or the process that runs, says whether it took effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState
from migrator.rollout.gates import FINISHED, FORWARD_AGAIN, ONLY_A_BACKUP
from migrator.rollout.modes import FileMode
from migrator.rollout.nodes import Node, Role
from migrator.rollout.ports import BrokerMode, BrokerSeen, ControllerProgram, Gate, GateQuestion, Observation
from migrator.rollout.progress import Progress, StepProgress
from migrator.rollout.steps import Act, Condition, Phase, Step

COPIED = (PublicState.MIGRATE_ZK_DATA.label, PublicState.DUAL_WRITE.label, PublicState.FINISHED.label)
LEADER_LAST = (Phase.FINISH, Phase.HANDOVER, Phase.STOP_QUORUM)
MODES = {
    FileMode.BROKER_ZOOKEEPER: BrokerMode.ZOOKEEPER,
    FileMode.BROKER_MIGRATING: BrokerMode.MIGRATING,
    FileMode.BROKER_KRAFT: BrokerMode.KRAFT,
}
KRAFT_OR_UNSEEN = (None, BrokerMode.KRAFT)
TOUCH_NODE = frozenset((Act.RESTART, Act.STOP, Act.START))
STOPS = frozenset((Act.RESTART, Act.STOP))
"""Acts that stop a process that serves: the gate before the step is asked as the last thing before it is stopped."""
GATED = TOUCH_NODE | {Act.RUN, Act.SOAK}
"""Acts that the gate before a step is for: once one of them has come to its end, nobody asks that gate again."""
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


def next_step(steps: Sequence[Step], progress: Progress, seen: Observation) -> Step | None:
    """The step under way; else the first open one, but who is down before who serves, and who leads last.

    :returns: None at the end of the plan.
    """
    unfinished = [step for step in in_order(steps, progress, seen) if not progress.of(step.name).finished]
    return next((step for step in unfinished if is_under_way(progress.of(step.name))), next(iter(unfinished), None))


def is_under_way(known: StepProgress) -> bool:
    """Whether a step was begun."""
    return bool(known.done) or known.begun is not None


def in_order(steps: Sequence[Step], progress: Progress, seen: Observation) -> list[Step]:
    """The steps as they are taken, as it looks now: within a phase, those that are done, as they were; then who is down
    before who serves, or who leads last; then what is about no node."""
    phases = list(dict.fromkeys(step.phase for step in steps))
    taken = list(progress.steps)
    leader = None if seen.quorum is None else seen.quorum.leader_id

    def rank(step: Step) -> tuple[int, int, int]:
        phase, known = phases.index(step.phase), progress.of(step.name)
        if known.finished:
            return phase, 0, taken.index(step.name)
        if is_under_way(known):
            return phase, 1, 0
        if step.node is None:
            return phase, 3, 0
        if step.phase in LEADER_LAST:
            return phase, 2, int(step.node.node_id == leader)
        return phase, 2, int(not is_down(step, seen))

    return sorted(steps, key=rank)


def refuse_pause_at_end(stop: str, steps: Sequence[Step], progress: Progress) -> None:
    """
    :param stop: the step after which the operator wants a pause.
    :param steps: in the order in which they are taken.
    :raises OperatorError: it is the last controller's: after it the migration has ended, and others come first.
    """
    left = [
        step
        for step in steps
        if step.phase is Phase.FINISH and step.node is not None and not progress.of(step.name).finished
    ]
    if len(left) > 1 and left[-1].name == stop:
        names = ", ".join(step.name for step in left)
        raise OperatorError(
            f"after {stop} there is no way back: it comes last. The leader decides the order, which is now: {names}",
            where="--pause-after",
            remedy=f"To stop after the first controller, name {left[0].name}. To go to the end, leave the option out",
        )


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


def asks_again(step: Step, known: StepProgress, act: Act) -> bool:
    """Whether the gate before a step still counts at this act of it: it was passed, and nothing behind it has touched
    the cluster for certain. What is begun may not have happened: whoever asks looks at the process. Who stops a process
    asks by itself."""
    if act in STOPS:
        return False
    later = step.acts[step.acts.index(Act.CHECK_BEFORE) + 1 :] if Act.CHECK_BEFORE in step.acts else ()
    return Act.CHECK_BEFORE in known.done and act in later and GATED.isdisjoint(known.done)


def touched(known: StepProgress) -> bool:
    """Whether the restart of a step was begun."""
    return known.begun is Act.RESTART or Act.RESTART in known.done


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
        return _is_silent(step, seen) or _registered_anew(step, known, seen)
    return incarnation != old


def comparable(known: StepProgress, incarnation: str | None, words: str) -> str | None:
    """The incarnation, if it can be compared with the one that was noted before a restart: the operator may have worded
    the executor's commands otherwise since. Then the broker's registration tells.

    :param words: digest of what words the commands now.
    """
    if incarnation is None or known.begun is not Act.RESTART:
        return incarnation
    return incarnation if known.expected.get("words", words) == words else UNKNOWN_INCARNATION


def _is_silent(step: Step, seen: Observation) -> bool:
    """Whether the node of a step is seen not to serve: a broker that is registered nowhere, a voter without answer."""
    if step.node is None or step.node.role is Role.BROKER or seen.quorum is None:
        return is_down(step, seen)
    voter = seen.quorum.voters.get(step.node.node_id)
    return voter is not None and voter.program is None


def refuse_back(seen: Observation, files: Sequence[FileMode], *, one_ends_it: bool, is_complete: bool) -> None:
    """
    :param files: what the controllers' property files are for.
    :param is_complete: whether the rollout has come to its end.
    :param one_ends_it: whether one leader without the migration ends it, as with Kafka's controllers.
    :raises OperatorError: the end of the migration was reached, or nobody can say that it was not.
    """
    off = [mode is FileMode.CONTROLLER_ENDED for mode in files]
    refuse_ended(seen, is_complete=is_complete)
    if (seen.migration is None or not seen.migration.state) and (any(off) if one_ends_it else all(off)):
        raise OperatorError(
            "controllers have the migration off, and none of them answers: the migration may be finished",
            where="rollback",
            remedy="Start the controllers; 'migrator status' says whether it is finished",
        )


def refuse_ended(seen: Observation, *, is_complete: bool) -> None:
    """
    :raises OperatorError: the end of the migration was reached.
    """
    if seen.is_finished:
        go_on = "Nothing is to be done" if is_complete else FORWARD_AGAIN
        raise OperatorError(f"the migration {FINISHED}", where="rollback", remedy=f"{go_on}. {ONLY_A_BACKUP}")


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
        Condition.NOT_IN_ZOOKEEPER: here is not FileMode.BROKER_ZOOKEEPER or mode is not BrokerMode.ZOOKEEPER,
        Condition.NOT_STOCK: voter is None or voter.program is not ControllerProgram.STOCK,
        Condition.REGISTERED: broker is not None,
        Condition.NO_ZOOKEEPER_CONTROLLER: seen.controller_broker is None,
    }[step.condition]


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
    return _is_led(seen) or seen.quorum_claims or (seen.migration is not None and bool(seen.migration.state))


def _is_led(seen: Observation) -> bool:
    return seen.quorum is not None and seen.quorum.leader_id is not None


def is_past(step: Step, here: FileMode) -> bool:
    """Whether a broker's file is beyond what the step wants: it was taken further before this rollout."""
    return step.phase is Phase.MIGRATE and here is FileMode.BROKER_KRAFT


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
            return Decision.TOOK_EFFECT if _registered_anew(step, known, seen) else Decision.DO
        return Decision.DO if incarnation == old else Decision.TOOK_EFFECT
    if incarnation is None:
        return Decision.START
    if known.past:
        return Decision.FOUND
    as_wanted = runs_as_wanted(step, seen)
    if known.wrote and not (known.restored and as_wanted):
        return Decision.DO
    return Decision.DO if as_wanted is False else Decision.FOUND


def decide_start(known: StepProgress, incarnation: str | None) -> Decision:
    """Of a process that has to run."""
    if incarnation is None:
        return Decision.DO
    return Decision.TOOK_EFFECT if known.begun is Act.START else Decision.FOUND


def decide_stop(known: StepProgress, incarnation: str | None) -> Decision:
    """Of a process that must not run."""
    if incarnation is not None:
        return Decision.DO
    return Decision.TOOK_EFFECT if known.begun is Act.STOP else Decision.FOUND


def runs_as_wanted(step: Step, seen: Observation) -> bool | None:
    """Whether the node is seen in the step's mode; None while it is not seen."""
    if step.node is None or step.mode is None:
        return None
    if step.node.role is Role.BROKER:
        broker = (seen.brokers or {}).get(step.node.node_id)
        return None if broker is None or broker.mode is None else broker.mode is MODES[step.mode]
    voter = None if seen.quorum is None else seen.quorum.voters.get(step.node.node_id)
    if voter is None or voter.migration_on is None:
        return None
    return voter.migration_on is (step.mode is FileMode.CONTROLLER_MIGRATING)


def broker_before(node: Node, seen: Observation) -> BrokerSeen | None:
    """What is seen of a broker before its restart, for the gate behind it."""
    if node.role is not Role.BROKER:
        return None
    return (seen.brokers or {}).get(node.node_id) or BrokerSeen(node.node_id, None)


def questions_before(
    step: Step, steps: Sequence[Step], progress: Progress, seen: Observation
) -> tuple[GateQuestion, ...]:
    """What the check before a step asks. Of a controller to be stopped nothing, if nothing is written, or if this
    rollout has stopped so many that nobody can commit anything any more. What makes a step wrong for ever is asked
    always."""
    always = tuple(question for question in step.before if question.gate is Gate.NOT_FINISHED)
    if is_down(step, seen):
        return always
    if step.phase is Phase.STOP_QUORUM:
        others = [each for each in steps if each.phase is step.phase and each is not step]
        stopped = any(Act.STOP in progress.of(each.name).done for each in others)
        if not may_be_dual_writing(seen) or (stopped and not _is_led(seen)):
            return always
    return step.before


def questions_after(
    step: Step, steps: Sequence[Step], progress: Progress, seen: Observation
) -> tuple[GateQuestion, ...]:
    """What the check after a step asks, with what was seen before each restart; nothing of nodes that were left out.
    Partitions cannot be well while another broker is down that this roll has still to start: its step is the next one,
    and whoever stops a broker asks for them before."""
    others = [each for each in steps if each.phase is step.phase and not progress.of(each.name).finished]
    waits_for_others = any(is_down(each, seen) for each in others if each is not step)
    asked = []
    for question in _after(step, steps, progress):
        if question.gate is Gate.PARTITIONS_HEALTHY and waits_for_others:
            continue
        if question.gate is Gate.BROKER_BACK and question.node is not None:
            known = progress.of(_step_of(question.node, step.phase, steps).name)
            if known.past or (known.finished and not known.done):
                continue
            restarted = known.before is not None
            question = replace(question, before=known.before if restarted else None)  # noqa: PLW2901
        asked.append(question)
    return tuple(asked)


def _after(step: Step, steps: Sequence[Step], progress: Progress) -> tuple[GateQuestion, ...]:
    """Of a rack: the first member is waited for, so that a mistake in the settings takes one broker away and not all;
    then, behind the last one, all."""
    if not step.together:
        return step.after
    group = [_step_of(node, step.phase, steps) for node in step.together]
    others = [progress.of(each.name) for each in group if each is not step]
    if all(known.finished for known in others):
        return group[-1].after
    if any(known.done for known in others):
        return ()
    return tuple(question for question in group[-1].after if question.node is step.node)


def closes_rack(step: Step, steps: Sequence[Step], progress: Progress) -> bool:
    """Whether a step is the last open one of a rack in which brokers were restarted: they are waited for, even if its
    own broker has nothing to do."""
    others = [progress.of(_step_of(node, step.phase, steps).name) for node in step.together if node is not step.node]
    return all(known.finished for known in others) and any(known.done for known in others)


def _step_of(node: Node, phase: Phase, steps: Sequence[Step]) -> Step:
    return next(step for step in steps if step.node is not None and step.node.name == node.name and step.phase is phase)


def _registered_anew(step: Step, known: StepProgress, seen: Observation) -> bool:
    if step.node is None or known.before is None:
        return False
    broker = (seen.brokers or {}).get(step.node.node_id)
    return broker is not None and bool(broker.registration) and broker.registration != known.before.registration
