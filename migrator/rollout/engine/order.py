"""Decides which step comes next: nodes that are down before nodes that serve, and the leader last. Pure.

`apply` asks it before each step, with a new look. A step under way always comes first. Phases never mix.
"""

from __future__ import annotations

from collections.abc import Sequence

from migrator.errors import OperatorError
from migrator.rollout.journal.progress import Progress, StepProgress
from migrator.rollout.plan.steps import Step
from migrator.rollout.ports import Observation


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
