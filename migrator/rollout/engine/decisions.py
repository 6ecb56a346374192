"""Decides, from the journal and what is seen: which step comes next, which gates it has, and whether an act has to be
done. Pure.

`apply`, `step` and `acts` ask it with a new look. A step under way always comes first, and phases never mix; nodes that
are down come before nodes that serve, and the leader last. A gate is left out only where it could never open, such as a
gate about nodes that the next steps bring back. Every act that changes something is noted as begun, done, and noted as
done. When an act is noted as begun only, the digest of the file or the running process tells whether it took effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState
from migrator.rollout.journal.progress import Progress, StepProgress
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.modes import OF_BROKERS, FileMode
from migrator.rollout.plan.steps import STOPS, TOUCH_NODE, Act, Phase, Step
from migrator.rollout.ports import BrokerMode, Gate, GateKind, Observation


def next_step(steps: Sequence[Step], progress: Progress, seen: Observation) -> Step | None:
    """The step under way, else the first open step: of nodes that are down before nodes that serve, the leader's last.

    :returns: None at the end of the plan.
    """
    unfinished = [step for step in in_order(steps, progress, seen) if not progress.of(step.name).finished]
    return next((step for step in unfinished if is_under_way(progress.of(step.name))), next(iter(unfinished), None))


def is_under_way(known: StepProgress) -> bool:
    """Whether a step was begun."""
    return bool(known.done) or known.begun is not None


def in_order(steps: Sequence[Step], progress: Progress, seen: Observation) -> list[Step]:
    """The steps in the order in which they are taken, as it looks now. Within a phase: the steps that are done, as they
    were done; then nodes that are down, nodes that serve, and the leader last; then the steps about no node."""
    phases = {phase: number for number, phase in enumerate(dict.fromkeys(step.phase for step in steps))}
    taken = {name: number for number, name in enumerate(progress.steps)}
    leader = None if seen.quorum is None else seen.quorum.leader_id

    def rank(step: Step) -> tuple[int, int, int]:
        phase, known = phases[step.phase], progress.of(step.name)
        if known.finished:
            return phase, 0, taken[step.name]
        if is_under_way(known):
            return phase, 1, 0
        if step.node is None:
            return phase, 3, 0
        if step.rules.silent_first and seen.is_silent(step.node):
            return phase, 2, -1
        if step.rules.leader_last:
            return phase, 2, int(step.node.node_id == leader)
        return phase, 2, int(not seen.is_down(step.node))

    return sorted(steps, key=rank)


def refuse_pause_at_end(stop: str, steps: Sequence[Step], progress: Progress) -> None:
    """
    :param stop: the step after which the operator wants a pause.
    :param steps: in the order in which they are taken.
    :raises OperatorError: it is the last controller's step. It ends the migration, and then other steps have to follow.
    """
    left = [
        step
        for step in steps
        if step.rules.ends_migration and step.node is not None and not progress.of(step.name).finished
    ]
    if len(left) > 1 and left[-1].name == stop:
        names = ", ".join(step.name for step in left)
        raise OperatorError(
            f"after {stop} the migration has ended: it comes last. The leader decides the order, which is now: {names}",
            where="--pause-after",
            remedy=f"To stop after the first controller, name {left[0].name}. To go to the end, leave the option out",
        )


GATED = TOUCH_NODE | {Act.RUN, Act.SOAK}
"""Acts that the gate before a step protects: after one of them is done, this gate is not asked again."""


def asks_again(step: Step, known: StepProgress, act: Act) -> bool:
    """Whether the gate before a step still counts at this act: it was passed, and no act since has certainly touched
    the cluster. An act that was begun may not have happened, so the process is looked at. An act that stops a process
    asks the gate by itself."""
    if act in STOPS:
        return False
    later = step.acts[step.acts.index(Act.CHECK_BEFORE) + 1 :] if Act.CHECK_BEFORE in step.acts else ()
    return Act.CHECK_BEFORE in known.done and act in later and GATED.isdisjoint(known.done)


def gates_before(step: Step, steps: Sequence[Step], progress: Progress, seen: Observation) -> tuple[Gate, ...]:
    """The gates of the check before a step. A controller to be stopped has none when nothing is written, or when this
    rollout has stopped so many that nothing can be committed any more. Gates that make a step wrong for ever are always
    asked."""
    always = tuple(gate for gate in step.before if gate.kind is GateKind.NOT_FINISHED)
    if seen.is_down(step.node) or _starts_voter(step, progress, seen):
        return always
    if step.rules.only_while_written:
        others = [each for each in steps if each.phase is step.phase and each is not step]
        stopped = any(Act.STOP in progress.of(each.name).done for each in others)
        if not seen.may_be_dual_writing or (stopped and not seen.is_led):
            return always
    return step.before


def _starts_voter(step: Step, progress: Progress, seen: Observation) -> bool:
    """Whether a step restores the file of a voter that does not answer, and starts it. Then it does not matter which
    records other voters lack. If the voter's process runs nevertheless, all gates are asked before it is stopped."""
    if not step.rules.starts_silent or step.node is None or Act.EDIT in progress.of(step.name).done:
        return False
    return not seen.serves(step.node)


def _lacks_majority(step: Step, seen: Observation) -> bool:
    """Whether, on the way back, a voter that was started would have to wait for voters that are down and started next:
    without a leader it is unknown whether the voter has every record."""
    if not step.rules.starts_silent or seen.quorum is None or seen.is_led:
        return False
    own = -1 if step.node is None else step.node.node_id
    return any(voter.program is None for voter in seen.quorum.voters.values() if voter.node_id != own)


def gates_after(
    step: Step, steps: Sequence[Step], progress: Progress, seen: Observation, *, stays: bool = False
) -> tuple[Gate, ...]:
    """The gates of the check after a step, with what was seen before each restart; none about nodes that were left out.
    While another broker is down that this roll has still to start, partitions cannot be well: that broker's step is
    next, and each stop of a broker asks for healthy partitions before. The same holds for voters that are down on the
    way back.

    :param stays: whether the run ends after the step.
    """
    others = [each for each in steps if each.phase is step.phase and not progress.of(each.name).finished]
    waits_for_others = any(seen.is_down(each.node) for each in others if each is not step)
    asked = []
    for gate in _after(step, steps, progress, stays=stays):
        if gate.kind is GateKind.PARTITIONS_HEALTHY and waits_for_others:
            continue
        if gate.kind is GateKind.CONTROLLER_BACK and _lacks_majority(step, seen):
            continue
        if gate.kind is GateKind.BROKER_BACK and gate.node is not None:
            known = progress.of(_step_of(gate.node, step.phase, steps).name)
            if known.past or (known.finished and not known.done):
                continue
            restarted = known.before is not None
            gate = replace(gate, before=known.before if restarted else None)  # noqa: PLW2901
        asked.append(gate)
    return tuple(asked)


def _after(step: Step, steps: Sequence[Step], progress: Progress, *, stays: bool) -> tuple[Gate, ...]:
    """The gates after a step of a rack. The rollout waits for the first broker, so that a mistake in the settings takes
    down one broker and not the rack; after the last one, it waits for all. A run that ends, or continues after a
    failure, first waits for the brokers that were restarted so far."""
    if not step.together:
        return step.after
    group = [_step_of(node, step.phase, steps) for node in step.together]
    others = [progress.of(each.name) for each in group if each is not step]
    if all(known.finished for known in others):
        return group[-1].after
    if not any(known.done for known in others):
        return tuple(gate for gate in group[-1].after if gate.node is step.node)
    if not stays and not progress.of(step.name).failed:
        return ()
    restarted = [each.node for each in group if Act.RESTART in progress.of(each.name).done]
    return tuple(gate for gate in group[-1].after if gate.node in restarted)


def open_rack(steps: Sequence[Step], progress: Progress) -> Step | None:
    """A step that is done, in a rack where others are open: the rollout may not have waited for all restarted brokers
    yet."""
    for step in steps:
        members = [progress.of(_step_of(node, step.phase, steps).name) for node in step.together]
        known = progress.of(step.name)
        if known.finished and known.done and not all(each.finished for each in members):
            return step
    return None


def leaves_rack(step: Step, steps: Sequence[Step], progress: Progress, *, stays: bool) -> bool:
    """Whether a step is the last open one of a rack in which brokers were restarted, or the run ends after it. Then the
    rollout waits for these brokers, even if the step's own broker has nothing to do.

    :param stays: whether the run ends after the step.
    """
    others = [progress.of(_step_of(node, step.phase, steps).name) for node in step.together if node is not step.node]
    return (stays or all(known.finished for known in others)) and any(known.done for known in others)


def _step_of(node: Node, phase: Phase, steps: Sequence[Step]) -> Step:
    return next(step for step in steps if step.node is not None and step.node.name == node.name and step.phase is phase)


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
        where=", ".join(node.file_place for node in nodes),
        remedy="Set the file back to ZooKeeper mode: with zookeeper.connect and broker.id, without process.roles. Then "
        "type the command again",
    )


def took_effect(node: Node, known: StepProgress, seen: Observation, incarnation: str | None) -> bool:
    """Whether the process of a node was already stopped. Then no gate delays its start, and the step only waits for its
    return.

    :param incarnation: of the process that runs now; None when none runs.
    """
    if incarnation is None:
        return True
    if known.begun is not Act.RESTART:
        return False
    old = known.expected["incarnation"]
    if UNKNOWN_INCARNATION in (incarnation, old):
        return seen.is_silent(node) or registered_anew(node, known, seen)
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
            return ActDecision.TOOK_EFFECT if registered_anew(step.node, known, seen) else ActDecision.DO
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
    if step.node.role is NodeKind.BROKER:
        broker = seen.broker(step.node)
        if broker is None or broker.mode is None or (broker.may_migrate and step.mode is FileMode.BROKER_ZOOKEEPER):
            return None
        return OF_BROKERS[broker.mode] is step.mode
    voter = seen.voter(step.node)
    if voter is None or voter.migration_on is None:
        return None
    return voter.migration_on is (step.mode is FileMode.CONTROLLER_MIGRATING)


def registered_anew(node: Node | None, known: StepProgress, seen: Observation) -> bool:
    """Whether a broker has another registration than before its restart."""
    broker = seen.broker(node)
    if known.before is None or broker is None:
        return False
    return bool(broker.registration) and broker.registration != known.before.registration


HOME_OR_FORWARD = (
    "'migrator rollout rollback' returns the cluster to ZooKeeper. 'migrator rollout apply --end-again' ends the "
    "migration again"
)


def reopened(seen: Observation) -> str:
    """The time and the reason of the reopening; "" if it was not."""
    return "" if seen.migration is None else seen.migration.reopened


def refuse_reopened(seen: Observation, progress: Progress) -> None:
    """Refuse to go forward in a migration that was reopened after its end, because the rollout would end it again.

    :raises OperatorError: the migration was reopened, and the operator does not know of this reopening.
    """
    found = reopened(seen)
    if found and not progress.goes_back and progress.ends_again != found:
        raise OperatorError(
            f"the migration was finished, and reopened ({found}). A rollout that goes forward would end it again. "
            "Nothing was done",
            where="rollout",
            remedy=HOME_OR_FORWARD,
        )
