"""Decides the next step of one voter. Pure: the same look gives the same step, also after a crash.

The conditions are the gates of the rollout's phase HANDOVER (`migrator.rollout.plan.phases`): some before a voter is
stopped, and one after its start, that it is back. A condition that only the operator can change is refused at once,
because the operator sits in front of the command.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import Enum

from migrator.migration.machine.states import PublicState
from migrator.records.versions import parse_version, version_at
from migrator.rollout.gates.gates import judge
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.phases import is_handed_over, may_be_handed_over
from migrator.rollout.ports import GateKind, MigrationSeen, Observation, Shut
from migrator.rollout.target_release import TargetRelease
from migrator.seeing.controllers import CANCEL_REASSIGNMENT, ControllerProgram
from migrator.values import value


class Way(Enum):
    """``ROLLING``: one voter after the other, while the quorum serves. ``DIRECTORY``: all voters are stopped, then
    Kafka starts on their directories. ``MEMBERS``: other controllers become the voters (`migrator.handover.members`).
    """

    ROLLING = "rolling"
    DIRECTORY = "directory"
    MEMBERS = "members"


class Action(Enum):
    """The kinds of steps, in the order in which several voters take them: stopped voters come first."""

    REFUSE = "refuse"
    FORMAT = "format the directory"
    START = "start Kafka"
    WRITE_FILE = "write the property file"
    STOP = "stop this program"
    WAIT = "wait"
    DONE = "done"


@value
class MetadataDirectory:
    """A node's metadata directory. While a process uses it, only the answers of that process are known. ``holds_log``:
    it has a log with records. ``finished``: by these records no migration is under way; None unknown. ``level``: their
    metadata.version; 0 unknown."""

    in_use: bool = False
    formatted: bool = False
    holds_log: bool = False
    finished: bool | None = None
    level: int = 0


@value
class LocalNode:
    """A voter of this machine. ``file_written``: whether its stock property file has the right text."""

    node_id: int
    directory: MetadataDirectory
    file_written: bool

    @property
    def node(self) -> Node:
        """The voter as the gates name it."""
        return Node(f"controller {self.node_id}", NodeKind.CONTROLLER, self.node_id, "", "", "", "", {})


@value
class HandoverStep:
    """``why``: the reason to wait or to refuse. ``remedy``: for the operator."""

    node_id: int
    action: Action
    why: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"controller {self.node_id}: {self.action.value}{f': {self.why}' if self.why else ''}"


@value
class WantedHandover:
    """The operator's goal: a release of Kafka, and the way to it."""

    target: TargetRelease
    way: Way


def next_step(node: LocalNode, seen: Observation, wanted: WantedHandover) -> HandoverStep:
    # Without a leader's answer, the log in the directory shows the migration's state.
    if seen.migration is None and node.directory.finished is not None:
        seen = replace(seen, migration=migration_seen(is_over=node.directory.finished))
    if refusal := _refusal(node, seen, wanted):
        return refusal
    voter = seen.voter(node.node)
    program = None if voter is None else voter.program
    if program is ControllerProgram.STOCK:
        return _joined(node, seen)
    if not node.file_written:
        return HandoverStep(node.node_id, Action.WRITE_FILE)
    if program is ControllerProgram.MIGRATOR:
        return _stop(node, seen, wanted)
    if node.directory.in_use:
        return _wait(
            node, "a process uses the directory of this controller, but does not answer: it is starting or stopping"
        )
    return _start(node, seen, wanted)


def shows(taken: Action, node: LocalNode, seen: Observation) -> bool:
    """Whether the effect of a step that was taken is visible. The next step does not say it: a voter that is about to
    stop may have to wait again, for another voter that is a record behind."""
    voter, in_use = seen.voter(node.node), node.directory.in_use
    program = None if voter is None else voter.program
    match taken:
        case Action.WRITE_FILE:
            return node.file_written
        case Action.FORMAT:
            return node.directory.formatted or in_use
        case Action.STOP:
            return program is ControllerProgram.STOCK or (program is None and not in_use)
        case _:
            return program is ControllerProgram.STOCK or in_use


def migration_seen(*, is_over: bool) -> MigrationSeen:
    """The state of the migration as gates read it. A quorum that never migrated counts as finished."""
    return MigrationSeen((PublicState.FINISHED if is_over else PublicState.DUAL_WRITE).label)


def _wait(node: LocalNode, why: str, remedy: str = "") -> HandoverStep:
    return HandoverStep(node.node_id, Action.WAIT, why, remedy)


def _refusal(node: LocalNode, seen: Observation, wanted: WantedHandover) -> HandoverStep | None:
    """An obstacle that does not go away by waiting; None without one."""

    def refused(why: str, remedy: str) -> HandoverStep:
        return HandoverStep(node.node_id, Action.REFUSE, why, remedy)

    target = wanted.target
    if wanted.way is Way.ROLLING and not target.rolling:
        return refused(
            f"Kafka {target.version} cannot join a quorum of this program",
            "Use --way directory, or hand over to 3.9 first",
        )
    if seen.migration is not None and not seen.is_finished:
        return refused(
            "the migration is not finished, and stock controllers would end it at once",
            "Finish the migration first: set zookeeper.metadata.migration.enable=false on every controller, and see "
            "'migrator status'",
        )
    if seen.quorum is not None and seen.quorum.target:
        return refused(f"a reassignment of the voters to {seen.quorum.target} is under way", CANCEL_REASSIGNMENT)
    level = parse_version(seen.metadata_version).level if seen.metadata_version else node.directory.level
    if level and not target.lowest <= level <= target.highest:
        return refused(
            f"Kafka {target.version} cannot start with metadata.version {version_at(level).name}",
            f"It needs {version_at(target.lowest).name} to {version_at(target.highest).name}: change it with "
            "kafka-features, or choose another release",
        )
    return None


def _joined(node: LocalNode, seen: Observation) -> HandoverStep:
    if not seen.is_led:
        return _wait(node, "Kafka's controller runs, but the quorum has no leader yet")
    for waiting in judge(is_handed_over(node.node), seen):
        return _wait(node, f"Kafka's controller runs, and {waiting.what}", "See its log")
    return HandoverStep(node.node_id, Action.DONE)


def _stop(node: LocalNode, seen: Observation, wanted: WantedHandover) -> HandoverStep:
    for gate in may_be_handed_over(node.node):
        if gate.kind is GateKind.OTHERS_CAUGHT_UP and wanted.way is not Way.ROLLING:
            continue  # on this way all voters are stopped, so none has to wait for the others
        if gate.kind is GateKind.VOTERS_SETTLED and not seen.is_led:
            continue  # without a leader no reassignment continues
        if waiting := judge(gate, seen):
            return _wait(node, *_still_serves(gate.kind, _reasons(waiting)))
    return HandoverStep(node.node_id, Action.STOP)


def _still_serves(gate: GateKind, why: str) -> tuple[str, str]:
    """The reason why a controller is not stopped yet, and the remedy. The gate's own remedy speaks of the inventory,
    which a hand-over does not have."""
    if gate is not GateKind.OTHERS_CAUGHT_UP:
        return why, ""
    only = "this controller is stopped only while every other voter runs and has every committed record"
    return f"{only}: {why}", "Start these voters, or wait until they have caught up"


def _start(node: LocalNode, seen: Observation, wanted: WantedHandover) -> HandoverStep:
    if wanted.way is Way.DIRECTORY and (ours := list(_others_of_ours(node, seen))):
        names = ", ".join(map(str, ours))
        return _wait(node, f"controllers {names} still run this program", "Run this command on their machines too")
    if not node.directory.holds_log:
        others = next(each for each in may_be_handed_over(node.node) if each.kind is GateKind.OTHERS_CAUGHT_UP)
        if waiting := judge(others, seen):
            return _wait(
                node,
                "the directory holds no whole log, so every other voter must have every committed record first: "
                f"{_reasons(waiting)}",
                "Start these voters first, or restore this directory from a copy",
            )
    if seen.migration is None:
        return _wait(node, "neither the quorum nor its own log says whether the migration is finished")
    if not node.directory.formatted:
        return HandoverStep(node.node_id, Action.FORMAT)
    return HandoverStep(node.node_id, Action.START)


def _others_of_ours(node: LocalNode, seen: Observation) -> Iterator[int]:
    voters = {} if seen.quorum is None else seen.quorum.voters
    for other, voter in sorted(voters.items()):
        if other != node.node_id and voter.program is ControllerProgram.MIGRATOR:
            yield other


def _reasons(waiting: Sequence[Shut]) -> str:
    return "; ".join(f"{each.who}: {each.what}" for each in waiting)


def choose(
    steps: Sequence[HandoverStep],
    pending: Collection[int],
    leader_id: int | None,
    way: Way,
    first: int | None = None,
) -> HandoverStep | None:
    """The step that comes next: a refusal first, then the steps of stopped voters. The leader is stopped last.

    :param pending: the voters with a step that was taken and does not show yet (`shows`). In a rolling hand-over no
        other step is taken meanwhile.
    :param first: the voter that an interrupted hand-over was busy with. In a rolling hand-over it may be about to stop,
        so no other voter is stopped before it is handed over.
    :returns: None while taken steps have to become visible first.
    """
    refused = [step for step in steps if step.action is Action.REFUSE]
    if refused:
        return refused[0]
    fresh = [step for step in steps if step.node_id not in pending]
    if not fresh or (way is Way.ROLLING and pending):
        return None
    if way is Way.ROLLING and any(step.node_id == first and step.action is not Action.DONE for step in steps):
        fresh = [step for step in fresh if step.action is not Action.STOP or step.node_id == first]
    order = list(Action)
    return min(
        fresh,
        key=lambda step: (
            order.index(step.action),
            step.node_id != first,
            step.node_id == leader_id,
            step.node_id,
        ),
    )
