"""Decides which gates a step has, from what is seen: before it, after it, and asked again. Pure.

`step_gates` and `apply` call it with the step, the journal's progress and a look. A gate is left out only where it
could never open, such as a gate about nodes that the next steps bring back. The reason stands at each exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from migrator.rollout.journal.progress import Progress, StepProgress
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import STOPS, TOUCH_NODE, Act, Phase, Step
from migrator.rollout.ports import Gate, GateKind, Observation

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
