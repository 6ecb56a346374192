"""Shows what a rollout is going to do: each step, what it finds, changes and waits for, and how it is undone.

A preview changes nothing. It takes the property files, as they are now, through all modes of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import Enum

from migrator.config.properties import decoded
from migrator.rollout.engine import decisions
from migrator.rollout.engine.decisions import ActDecision, in_order
from migrator.rollout.files.property_files import at_once, earlier_of, texts_of
from migrator.rollout.journal.progress import Progress, StepProgress, again
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan import jobs
from migrator.rollout.plan.modes import FileMode, changes_shown, file_mode, parsed, rewritten, stock_file
from migrator.rollout.plan.steps import TOUCH_NODE, Act, Job, Sight, Step
from migrator.rollout.ports import Gate, Observation
from migrator.values import value

CLUSTER_ID = "CLUSTER-ID"
_NOTHING: tuple[str, ...] = ()


class StepState(Enum):
    """How far one step is."""

    DONE = "done"
    UNDER_WAY = "under way"
    NOT_NEEDED = "not needed, as it looks now"
    OPEN = "open"


@value
class StepPreview:
    """``changes``: lines ``- key=value`` and ``+ key=value`` of ``file``. ``command``: what a job runs. ``is_new``: the
    file does not exist yet. ``left``: acts that are left out, because they are done or not needed."""

    step: Step
    state: StepState
    file: str = ""
    changes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    is_new: bool = False
    left: frozenset[Act] = frozenset()

    @property
    def changes_a_node(self) -> bool:
        """Whether the step still has to touch a file or a process."""
        acts = {Act.EDIT, *TOUCH_NODE} & {*self.step.acts}
        return self.state in (StepState.OPEN, StepState.UNDER_WAY) and bool(acts - self.left)

    def as_json(self) -> dict[str, object]:
        step = self.step
        return {
            "step": step.name,
            "phase": step.phase.value,
            "state": self.state.value,
            "node": None if step.node is None else step.node.name,
            "host": None if step.node is None else step.node.host,
            "acts": [act.value for act in step.acts if act not in self.left],
            "why": step.rules.why,
            "undo": step.rules.undo,
            "before": asked(step.before),
            "after": asked(step.after),
            "file": self.file or None,
            "file_is_new": self.is_new,
            "changes": list(self.changes),
            "command": list(self.command),
        }


@value
class PreviewFacts:
    """The input of a preview. ``texts``: property files by node. ``running``: incarnations by node. ``earlier``:
    by node and mode, the file as this rollout found it in that mode. ``stock``: files of Kafka's controllers by node,
    those that exist already."""

    seen: Observation
    texts: Mapping[str, str]
    running: Mapping[str, str]
    earlier: Mapping[tuple[str, FileMode], str]
    stock: Mapping[str, str]


async def gather(parts: RolloutParts, steps: Sequence[Step], progress: Progress) -> PreviewFacts:
    """Look at everything that the steps need.

    :raises OperatorError: a host cannot be reached, or a file cannot be read.
    """
    nodes, executor = parts.inventory.nodes, parts.executor
    texts = await texts_of(executor, nodes)
    for node in nodes:
        parsed(node, texts[node.name])
    running = await at_once(executor.incarnation, nodes)
    changed = [
        (step.node, step.mode)
        for step in steps
        if step.node is not None and step.mode is not None
        if not decisions.is_ahead(step, file_mode(step.node.role, parsed(step.node, texts[step.node.name])))
    ]
    kept = await at_once(lambda it: earlier_of(executor, *it, progress.rollout, texts[it[0].name]), changed)
    successors = tuple(parts.inventory.controllers.stock.values())
    theirs = await at_once(lambda node: executor.read(node, node.properties), successors)
    return PreviewFacts(
        await parts.observer.observe(partitions=False),
        texts,
        {node.name: runs for node, runs in zip(nodes, running, strict=True) if runs is not None},
        {(node.name, mode): decoded(it) for (node, mode), it in zip(changed, kept, strict=True) if it is not None},
        {node.name: decoded(it) for node, it in zip(successors, theirs, strict=True) if it is not None},
    )


@value
class _Later:
    """The nodes after earlier steps of the plan. ``texts``: property files by node. ``running``: incarnations,
    also of processes that will have been started. ``touched``: nodes that will have another process than now."""

    texts: dict[str, str]
    running: dict[str, str]
    touched: set[str]


def preview(parts: RolloutParts, steps: Sequence[Step], progress: Progress, facts: PreviewFacts) -> list[StepPreview]:
    """All steps, in the order in which they are taken, as it looks now."""
    later = _Later(dict(facts.texts), dict(facts.running), set())
    return [_preview(parts, step, progress, facts, later) for step in in_order(steps, progress, facts.seen)]


def _preview(parts: RolloutParts, step: Step, progress: Progress, facts: PreviewFacts, later: _Later) -> StepPreview:
    known, node = progress.of(step.name), step.node
    if known.finished:
        return StepPreview(step, StepState.DONE)
    begun = bool(known.done) or known.begun is not None
    name = "" if node is None else node.name
    runs, starts = name in facts.running, name in progress.returned
    sight = Sight(facts.seen, node, _mode(step, later.texts), runs, starts)
    if not begun and not step.rules.needed.is_there(sight):
        return StepPreview(step, StepState.NOT_NEEDED)
    state = StepState.UNDER_WAY if begun else StepState.OPEN
    if known.has_other_settings(parts.mode_settings("").digest):
        known = again(known, Act.EDIT)
    file, changes, left = "", _NOTHING, frozenset(known.done) - {Act.CONFIRM, Act.PROVE}
    if node is not None and step.mode is not None and Act.EDIT in {*step.acts} - left:
        known = replace(known, past=decisions.is_ahead(step, _mode(step, later.texts)))
        file, changes = _edited(parts, step, node, facts, later.texts, progress.release_version)
        left |= frozenset() if changes else {Act.EDIT}
    if node is not None:
        left |= _found(parts, step, node, known, facts, later) - ({Act.RESTART} if changes else set())
        _take_along(node, (TOUCH_NODE & {*step.acts}) - left, later)
    is_new = step.successor is not None and step.successor.name not in facts.stock
    command = _command(parts, step, facts.seen, progress)
    return StepPreview(step, state, file, changes, command, is_new, left & {*step.acts})


def _found(
    parts: RolloutParts, step: Step, node: Node, known: StepProgress, facts: PreviewFacts, later: _Later
) -> frozenset[Act]:
    """The acts that will not be needed, because of the process that will be running, or not running, by then."""
    runs = decisions.comparable(known, later.running.get(node.name), parts.inventory.words_for(node))
    restart = decisions.decide_restart(step, known, facts.seen, runs, file_is_known=True)
    found = {
        Act.RESTART: ActDecision.DO if node.name in later.touched else restart,
        Act.STOP: decisions.decide_stop(known, runs),
        Act.START: decisions.decide_start(known, runs) if step.successor is None else ActDecision.DO,
    }
    return frozenset(act for act, decision in found.items() if decision in (ActDecision.FOUND, ActDecision.TOOK_EFFECT))


def _take_along(node: Node, acts: AbstractSet[Act], later: _Later) -> None:
    """Note in ``later`` what these acts change of the node's process."""
    if acts:
        later.touched.add(node.name)
    if Act.STOP in acts:
        later.running.pop(node.name, None)
    if acts & {Act.START, Act.RESTART}:
        later.running[node.name] = decisions.UNKNOWN_INCARNATION


def _mode(step: Step, texts: Mapping[str, str]) -> FileMode | None:
    if step.node is None or step.mode in (None, FileMode.STOCK):
        return None
    return file_mode(step.node.role, parsed(step.node, texts[step.node.name]))


def _edited(
    parts: RolloutParts, step: Step, node: Node, facts: PreviewFacts, texts: dict[str, str], release_version: str
) -> tuple[str, tuple[str, ...]]:
    """Path and changes of the step's file; ``texts`` gets the new text."""
    before, release = texts[node.name], parts.inventory.handover
    if step.successor is not None and release is not None:
        there = facts.stock.get(step.successor.name, "")
        return step.successor.properties, tuple(changes_shown(there, stock_file(before, release)))
    here = file_mode(node.role, parsed(node, before))
    if step.mode is None or decisions.is_ahead(step, here):
        return node.properties, ()
    after = rewritten(
        node, before, step.mode, parts.mode_settings(release_version), facts.earlier.get((node.name, step.mode))
    )
    texts[node.name] = after
    return node.properties, tuple(changes_shown(before, after))


def _command(parts: RolloutParts, step: Step, seen: Observation, progress: Progress) -> tuple[str, ...]:
    if step.job is Job.LEAVE_OUT:
        gone = jobs.silent_gone(parts.inventory.gone, seen)
        leader = parts.inventory.controllers.nodes[0]
        return tuple(jobs.finish_without(leader, parts.inventory, gone, progress.reason))
    if step.job is None or step.node is None or step.job in (Job.ARCHIVE, Job.SET_ASIDE, Job.UNREGISTER):
        return ()
    return tuple(
        jobs.command_of(step.job, step.node, parts.inventory, seen.cluster_id or CLUSTER_ID, progress.release_version)
    )


def leads_back(shown: Sequence[StepPreview]) -> bool:
    """Whether a way back would change anything but empty directories of controllers that do not run."""
    gives_back = any(one.step.job is Job.GIVE_BACK and one.state is not StepState.NOT_NEEDED for one in shown)
    return gives_back or any(one.changes_a_node for one in shown)


def asked(gates: Iterable[Gate]) -> list[str]:
    lines = []
    for gate in gates:
        who = "" if gate.node is None else f"{gate.node.name}: "
        what = gate.state or ("" if gate.mode is None else gate.mode.value)
        lines.append(f"{who}{gate.kind.value}{f' ({what})' if what else ''}")
    return lines
