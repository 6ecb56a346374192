"""What to do next about one voter: a pure function of what is seen, so that it can be asked again after any crash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from migrator.handover.observations import LocalNode, ObservedQuorum
from migrator.records.versions import version_at
from migrator.rollout.target_release import TargetRelease
from migrator.seeing.controllers import CANCEL_REASSIGNMENT, ControllerProgram, ControllerSeen
from migrator.values import value


class Way(Enum):
    """One voter after the other while the quorum serves, all at once on the directories, or other voters instead
    (`migrator.handover.members`)."""

    ROLLING = "rolling"
    DIRECTORY = "directory"
    MEMBERS = "members"


class Action(Enum):
    """In the order in which the steps of several voters are taken: who is down comes first."""

    REFUSE = "refuse"
    FORMAT = "format the directory"
    START = "start Kafka"
    WRITE_FILE = "write the property file"
    STOP = "stop this program"
    WAIT = "wait"
    DONE = "done"


@value
class HandoverStep:
    """``why`` says what is waited for, or refused; ``remedy`` what to do about that."""

    node_id: int
    action: Action
    why: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"controller {self.node_id}: {self.action.value}{f': {self.why}' if self.why else ''}"


@value
class Handover:
    """What is wanted."""

    target: TargetRelease
    way: Way


def next_step(node: LocalNode, quorum: ObservedQuorum, wanted: Handover) -> HandoverStep:
    """The one thing to do about this voter now."""
    voter = quorum.voters[node.node_id]
    refusal = _refusal(node, quorum, wanted)
    if refusal is not None:
        return refusal
    if voter.program is ControllerProgram.STOCK:
        return _joined(voter, quorum)
    if not node.file_written:
        return HandoverStep(node.node_id, Action.WRITE_FILE)
    if voter.program is ControllerProgram.MIGRATOR:
        return _stop(node, quorum, wanted)
    if node.directory.in_use:
        return _wait(
            node, "a process uses the directory of this controller, but does not answer: it is starting or stopping"
        )
    return _start(node, quorum, wanted)


def _wait(node: LocalNode | ControllerSeen, why: str, remedy: str = "") -> HandoverStep:
    return HandoverStep(node.node_id, Action.WAIT, why, remedy)


def _refusal(node: LocalNode, quorum: ObservedQuorum, wanted: Handover) -> HandoverStep | None:
    """What no waiting mends. The end of the migration is final, so whoever knows of it is believed."""
    seen = node.directory
    if wanted.way is Way.ROLLING and not wanted.target.rolling:
        return HandoverStep(
            node.node_id,
            Action.REFUSE,
            f"Kafka {wanted.target.version} cannot join a quorum of this program",
            "Use --way directory, or hand over to 3.9 first",
        )
    if quorum.finished is False or (quorum.finished is None and seen.finished is False):
        return HandoverStep(
            node.node_id,
            Action.REFUSE,
            "the migration is not finished, and stock controllers would end it at once",
            "Finish the migration first: set zookeeper.metadata.migration.enable=false on every controller, and "
            "see 'migrator status'",
        )
    if quorum.target:
        return HandoverStep(
            node.node_id,
            Action.REFUSE,
            f"a reassignment of the voters to {quorum.target} is under way",
            CANCEL_REASSIGNMENT,
        )
    level = quorum.level or seen.level
    if level and not wanted.target.lowest <= level <= wanted.target.highest:
        return HandoverStep(
            node.node_id,
            Action.REFUSE,
            f"Kafka {wanted.target.version} cannot start with metadata.version {version_at(level).name}",
            f"It needs {version_at(wanted.target.lowest).name} to {version_at(wanted.target.highest).name}: change it "
            "with kafka-features, or choose another release",
        )
    return None


def _joined(voter: ControllerSeen, quorum: ObservedQuorum) -> HandoverStep:
    if quorum.is_up(voter.node_id):
        return HandoverStep(voter.node_id, Action.DONE)
    if quorum.leader_id is None:
        return _wait(voter, "Kafka's controller runs, but the quorum has no leader yet")
    behind = "nobody says how far it is" if voter.lag_records < 0 else f"is {voter.lag_records} records behind"
    return _wait(voter, f"Kafka's controller runs, and {behind}", "See its log")


def _stop(node: LocalNode, quorum: ObservedQuorum, wanted: Handover) -> HandoverStep:
    if quorum.finished is None and not node.directory.finished:
        return _wait(node, "no controller answers whether the migration is finished")
    if quorum.leader_id is not None and quorum.target is None:
        return _wait(node, "nobody says whether the voters are being reassigned: the metadata log is still being read")
    missing = quorum.missing(node.node_id)
    if wanted.way is Way.ROLLING and (missing or quorum.leader_id is None):
        names = ", ".join(map(str, missing)) or "all"
        return _wait(
            node,
            f"this controller is stopped only while every other voter runs and has every committed record; these "
            f"voters do not: {names}",
            "Start these voters, or wait until they have caught up",
        )
    return HandoverStep(node.node_id, Action.STOP)


def _start(node: LocalNode, quorum: ObservedQuorum, wanted: Handover) -> HandoverStep:
    seen = node.directory
    ours = quorum.others_of(ControllerProgram.MIGRATOR, node.node_id)
    if wanted.way is Way.DIRECTORY and ours:
        names = ", ".join(map(str, ours))
        return _wait(node, f"controllers {names} still run this program", "Run this command on their machines too")
    if not seen.holds_log:
        missing = quorum.missing(node.node_id)
        if missing or quorum.leader_id is None:
            names = ", ".join(map(str, missing)) or "all"
            return _wait(
                node,
                f"the directory holds no whole log, so every other voter must have every committed record first; these "
                f"voters do not: {names}",
                "Start these voters first, or restore this directory from a copy",
            )
        if not seen.formatted:
            return HandoverStep(node.node_id, Action.FORMAT)
    elif quorum.finished is None and seen.finished is None:
        return _wait(node, "neither the quorum nor its own log says whether the migration is finished")
    return HandoverStep(node.node_id, Action.START)


def choose(
    steps: Sequence[HandoverStep],
    taken: Mapping[int, Action],
    quorum: ObservedQuorum,
    way: Way,
    first: int | None = None,
) -> HandoverStep | None:
    """Which of the steps comes next: refusals, then who is down; who leads is stopped last.

    :param taken: by voter, the last step that was taken. As long as it is still the next one it does not show yet; in a
        rolling hand-over nothing else is done meanwhile.
    :param first: the voter that an interrupted hand-over was busy with.
    :returns: None while there is only that to wait for.
    """
    refused = [step for step in steps if step.action is Action.REFUSE]
    if refused:
        return refused[0]
    fresh = [step for step in steps if taken.get(step.node_id) is not step.action]
    if not fresh or (way is Way.ROLLING and len(fresh) < len(steps)):
        return None
    order = list(Action)
    return min(
        fresh,
        key=lambda step: (
            order.index(step.action),
            step.node_id != first,
            step.node_id == quorum.leader_id,
            step.node_id,
        ),
    )
