"""How far a rollout has come: the journal, folded into one value. Pure.

Every command folds the journal with `progress_of`, and each new line after it. The journal is the only memory of a
rollout, so two commands with the same journal decide the same. An act that was begun and is not done may have happened
or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

from migrator.rollout.journal.journal import Detail, Entry, Event
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.steps import Act, Direction, Job
from migrator.rollout.ports import BrokerMode, BrokerSeen, Observation
from migrator.values import value


@value
class StepProgress:
    """``done``: acts that are done. ``begun``: the act that was begun, with the ``expected`` result. ``wrote``: this
    step has changed the file; ``restored``: to its content before the rollout. ``past``: the node was found beyond this
    step. ``before``: what was seen of the broker before its restart. ``failed``: an act has failed, and the operator
    may have corrected a file since. ``started``: this step has started or restarted its node. ``settings``: the digest
    of the inventory's settings when the file was made; "" where the journal does not say."""

    done: tuple[Act, ...] = ()
    begun: Act | None = None
    expected: Mapping[str, Detail] = field(default_factory=dict)
    wrote: bool = False
    restored: bool = False
    past: bool = False
    finished: bool = False
    before: BrokerSeen | None = None
    failed: bool = False
    started: bool = False
    settings: str = ""

    def has_other_settings(self, settings: str) -> bool:
        """Whether the file was written with other settings, and has to be written anew."""
        return Act.EDIT in self.done and not self.past and self.settings not in ("", settings)


@value
class Progress:
    """The rollout that was opened last. A node that is left out stays so in the next rollout. Only the fold changes the
    dicts.

    ``files``: by node, the digest of its property file as last seen or written; None for a file that did not exist.
    ``written``: by node, the digest of a write that was begun and whose end is unknown. ``verified_ms``: when both
    sides were last found equal, by the wall clock. ``last_stopped``: the controller that was stopped last.
    ``left_out``: by node that is gone for good, the reason. ``returned``: nodes that were left out and are there again,
    and that the rollout starts. ``cluster`` and ``cluster_id``: its name in the inventory, and its id; "" where the
    journal does not say. ``baseline``: by partition, the brokers whose replicas were out of sync before, and have been
    so since. ``release_version``: the metadata.version of the controllers; "" unknown. ``rolled_back``: by node that
    was left out when a rollback was complete, the id of that rollback, until its directory with the log of that quorum
    is moved away. ``ends_again``: the reopening of the migration in which the operator lets the rollout go forward.
    ``reopens``: the way back has begun after the end of the migration, and reopens it. ``plan``: the digest of the plan
    that a person has reviewed; "" without one.
    """

    rollout: str = ""
    cluster: str = ""
    cluster_id: str = ""
    release_version: str = ""
    ends_again: str = ""
    reopens: bool = False
    direction: Direction = Direction.FORWARD
    canary: str = ""
    steps: dict[str, StepProgress] = field(default_factory=dict)
    files: dict[str, str | None] = field(default_factory=dict)
    written: dict[str, str | None] = field(default_factory=dict)
    soaked_ms: int = 0
    verified_ms: int | None = None
    closed: bool = False
    last_stopped: str = ""
    paused_after: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = field(default_factory=dict)
    returned: frozenset[str] = frozenset()
    baseline: Mapping[str, frozenset[int]] = field(default_factory=dict)
    rolled_back: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""

    def knows(self, node: str, digest: str | None) -> bool:
        """Whether a property file is as this rollout has last seen or written it; True for a file never seen."""
        return node not in self.files or digest in (self.files[node], self.written.get(node, self.files[node]))

    @property
    def goes_back(self) -> bool:
        """Whether the rollout is on its way back."""
        return bool(self.rollout) and self.direction is Direction.BACK and not self.closed

    @property
    def reason(self) -> str:
        """Why nodes are left out."""
        return "; ".join(dict.fromkeys(self.left_out.values()))

    def of(self, step: str) -> StepProgress:
        return self.steps.get(step, StepProgress())


_OF_NEW_DIRECTORY = (Job.FORMAT.value, Job.SET_ASIDE.value)
"""Jobs after which a controller has no directory of an earlier quorum any more."""


def progress_of(entries: Iterable[Entry], before: Progress | None = None) -> Progress:
    """Fold a journal, from its beginning or on from ``before``. Every line costs the same: the fold copies three dicts
    once, and changes its copies in place until it returns them."""
    progress = before or Progress()
    progress = replace(progress, steps=dict(progress.steps), files=dict(progress.files), written=dict(progress.written))
    for entry in entries:
        progress = _after(progress, entry)
    return progress


def _after(progress: Progress, entry: Entry) -> Progress:
    details = entry.details
    if entry.event is Event.OPENED:
        return Progress(
            rollout=str(details["rollout"]),
            cluster=str(details.get("cluster", "")),
            cluster_id=str(details.get("cluster_id", "")),
            direction=Direction(str(details["direction"])),
            canary=str(details.get("canary", "")),
            release_version=str(details.get("release_version", "")),
            ends_again=str(details.get("ends_again", "")),
            reopens=bool(details.get("reopens_migration", False)),
            left_out=progress.left_out,
            rolled_back=progress.rolled_back,
            plan=str(details.get("plan", "")),
        )
    if whole := _OF_ALL.get(entry.event):
        return whole(progress, details, entry.step)
    if entry.event is Event.VERIFIED or (entry.event is Event.DONE and details.get("job") == Job.VERIFY.value):
        progress = replace(progress, verified_ms=entry.time_ms)
    if entry.event is Event.DONE and details.get("job") in _OF_NEW_DIRECTORY:
        rolled_back = {name: rollout for name, rollout in progress.rolled_back.items() if name != _node_of(entry.step)}
        progress = replace(progress, rolled_back=rolled_back)
    _note_file(progress, entry)
    if not entry.step:
        return progress
    if reopened := str(details.get("reopens") or "").split():
        steps = {name: known for name, known in progress.steps.items() if name.partition("/")[0] not in reopened}
        return replace(progress, steps=steps)
    progress.steps[entry.step] = _step_after(progress.of(entry.step), entry)
    if entry.event is Event.DONE and entry.act == Act.STOP:
        return replace(progress, last_stopped=str(details["node"]))
    return progress


def _turned(progress: Progress, details: Mapping[str, Detail], _: str) -> Progress:
    level = str(details.get("release_version") or progress.release_version)
    reopens = bool(details.get("reopens_migration", False))
    steps = {} if progress.goes_back else progress.steps  # it reopens a migration that has ended meanwhile
    changed = replace(progress, direction=Direction.BACK, closed=False, baseline={}, release_version=level)
    return replace(changed, reopens=reopens, plan="", steps=steps)


def _resumed(progress: Progress, details: Mapping[str, Detail], _: str) -> Progress:
    return replace(progress, plan=str(details.get("plan") or progress.plan))


def _forward(progress: Progress, *_: object) -> Progress:
    return replace(progress, direction=Direction.FORWARD, steps={}, baseline={}, reopens=False)


def _closed(progress: Progress, *_: object) -> Progress:
    if progress.direction is Direction.FORWARD or not progress.steps:
        return replace(progress, closed=True)
    left = dict.fromkeys(progress.left_out, progress.rollout)
    return replace(progress, closed=True, rolled_back={**left, **progress.rolled_back})


def _soaked(progress: Progress, details: Mapping[str, Detail], _: str) -> Progress:
    return replace(progress, soaked_ms=_number(details["soaked_ms"]))


def _paused(progress: Progress, _: Mapping[str, Detail], step: str) -> Progress:
    return replace(progress, paused_after=progress.paused_after | {step})


def _left_out(progress: Progress, details: Mapping[str, Detail], _: str) -> Progress:
    return replace(progress, left_out={**progress.left_out, str(details["node"]): str(details["reason"])})


def _back_in(progress: Progress, details: Mapping[str, Detail], _: str) -> Progress:
    node = str(details["node"])
    left_out = {name: reason for name, reason in progress.left_out.items() if name != node}
    steps = {name: known for name, known in progress.steps.items() if _node_of(name) != node}
    return replace(progress, left_out=left_out, returned=progress.returned | {node}, steps=steps)


def _node_of(step: str) -> str:
    return step.partition("/")[2]


def _not_well_before(progress: Progress, details: Mapping[str, Detail], _: str) -> Progress:
    names, brokers = _replicas(details)
    return replace(progress, baseline={**progress.baseline, **dict.fromkeys(names, brokers)})


def _healed(progress: Progress, details: Mapping[str, Detail], _: str) -> Progress:
    names, brokers = _replicas(details)
    left = {name: old - brokers if name in names else old for name, old in progress.baseline.items()}
    return replace(progress, baseline={name: old for name, old in left.items() if old})


def _replicas(details: Mapping[str, Detail]) -> tuple[list[str], frozenset[int]]:
    """Names of partitions, and the brokers of their replicas."""
    return str(details["partitions"]).split(), frozenset(map(int, str(details["brokers"]).split()))


_OF_ALL: Mapping[Event, Callable[[Progress, Mapping[str, Detail], str], Progress]] = {
    Event.TURNED: _turned,
    Event.RESUMED: _resumed,
    Event.CLOSED: _closed,
    Event.SOAKED: _soaked,
    Event.PAUSED: _paused,
    Event.FORWARD: _forward,
    Event.LEFT_OUT: _left_out,
    Event.BACK_IN: _back_in,
    Event.BASELINE: _not_well_before,
    Event.HEALED: _healed,
}
"""Lines that are about the whole rollout."""


def _note_file(progress: Progress, entry: Entry) -> None:
    """Note in place what a line says of a property file."""
    details = entry.details
    if entry.event is Event.BEGUN and entry.act == Act.EDIT:
        progress.written[str(details["node"])] = _text(details["after"])
    elif "file" in details:
        node = str(details["node"])
        progress.files[node] = _text(details["file"])
        progress.written.pop(node, None)


def _step_after(step: StepProgress, entry: Entry) -> StepProgress:
    details = entry.details
    if entry.event is Event.SKIPPED or (entry.event is Event.DONE and not entry.act):
        return replace(step, finished=True, begun=None)
    if not entry.act:
        return step
    act = Act(entry.act)
    if entry.event is Event.BEGUN:
        return replace(step, begun=act, expected=details, before=_seen(details) or step.before)
    if entry.event is Event.PASSED and act in step.done:  # a gate that was asked again ends no act that was begun
        return step
    if entry.event in (Event.DONE, Event.FOUND, Event.PASSED):
        started = step.started or (entry.event is Event.DONE and act in (Act.RESTART, Act.START))
        step = replace(step, done=(*step.done, act), begun=None, expected={}, started=started)
        if act is Act.EDIT:
            return replace(
                step,
                wrote=step.wrote or entry.event is Event.DONE,
                restored=bool(details.get("restored")),
                past=bool(details.get("past")),
                settings=str(details.get("settings") or ""),
            )
    if entry.event is Event.REOPENED:
        return again(step, act)
    if entry.event is Event.FAILED:
        step = replace(step, failed=True)
        return again(step, Act(str(details["again"]))) if details.get("again") else step
    return step


def again(step: StepProgress, act: Act) -> StepProgress:
    """The step as it was before an act, but with what is known of the node."""
    done = step.done[: step.done.index(act)] if act in step.done else step.done
    return replace(step, done=done, begun=None, expected={})


def restart_begun(node: Node, seen: Observation, incarnation: str | None) -> dict[str, Detail]:
    """The details of a line about a node before its restart; `progress_of` reads them."""
    details: dict[str, Detail] = {"node": node.name, "incarnation": incarnation}
    if node.role is NodeKind.BROKER:
        broker = seen.broker(node) or BrokerSeen(node.node_id, None)
        mode = None if broker.mode is None else broker.mode.value
        details |= {"broker": broker.broker_id, "registration": broker.registration, "mode": mode}
        details["release"] = broker.release
    return details


def _seen(details: Mapping[str, Detail]) -> BrokerSeen | None:
    if "registration" not in details:
        return None
    mode = details.get("mode")
    return BrokerSeen(
        broker_id=_number(details["broker"]),
        mode=BrokerMode(mode) if mode else None,
        registration=str(details["registration"]),
        release=str(details.get("release") or ""),
    )


def _number(detail: Detail) -> int:
    return int(detail) if isinstance(detail, int) else 0


def _text(detail: Detail) -> str | None:
    return detail if isinstance(detail, str) else None
