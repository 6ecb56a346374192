"""A quorum of a few nodes in which a plan runs to its end, and the rules that each of its steps keeps.

The rules are written down here a second time, from the sheet of KIP-853, and share nothing with the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, product

from migrator.raft.planner import (
    Add,
    ClearTarget,
    Idle,
    LetAnotherLead,
    PlannerView,
    Remove,
    RemoveSelf,
    Replica,
    Wait,
    plan,
    with_key,
)
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value

STEPS_MAX = 24
END = 100
NODES = 5


class BrokenRuleError(AssertionError):
    """A step broke a rule; the text begins with its name."""


@value
class Swap:
    """One record that takes some voters away and brings some: what a planner must never do."""

    removed: tuple[ReplicaKey, ...] = ()
    added: tuple[ReplicaKey, ...] = ()


def disk(node_id: int, number: int = 1) -> Uuid:
    """The directory id of a node's first, second, ... disk."""
    return Uuid(bytes([1, number, *[0] * 13, node_id]))


def key(node_id: int, number: int = 1) -> ReplicaKey:
    """A node on its first, second, ... disk."""
    return ReplicaKey(node_id, disk(node_id, number))


def voters_of(replicas: Iterable[ReplicaKey]) -> VoterSet:
    found = VoterSet(())
    for replica in replicas:
        found = with_key(found, replica)
    return found


def wanted(*ids: int) -> tuple[ReplicaKey, ...]:
    """A target that names no directories."""
    return tuple(ReplicaKey(node_id) for node_id in ids)


def present(node_id: int, *, number: int = 1, lag: int = 0) -> Replica:
    """A node that fetches; it has caught up when it lags behind by nothing."""
    return Replica(key(node_id, number), END - lag, is_live=True, is_caught_up=lag == 0)


@dataclass
class Reassignment:
    """Performs the steps of a plan one after the other, as if each were committed at once.

    ``events``: what happens before the step of that number; it may replace the view (another target, a dead node).
    """

    view: PlannerView
    planner: Callable[[PlannerView], object] = plan
    events: dict[int, Callable[[PlannerView], PlannerView]] = field(default_factory=dict)
    steps: list[object] = field(default_factory=list)

    def run(self) -> object:
        """Until a step changes nothing; returns that one."""
        for number in range(STEPS_MAX):
            if number in self.events:
                self.view = self.events[number](self.view)
            step = self.planner(self.view)
            self.steps.append(step)
            if isinstance(step, Idle | Wait) and number >= max(self.events, default=0):
                check_end(self.view, step)
                return step
            self.view = self._performed(step)
            if isinstance(step, RemoveSelf):
                return step
        raise BrokenRuleError(f"R10: no end in sight after {self.steps}")

    def _performed(self, step: object) -> PlannerView:
        before = self.view
        match step:
            case Add(added):
                return self._appended((), (added,))
            case Remove(removed):
                return self._appended((removed,), ())
            case Swap():
                return self._appended(step.removed, step.added)
            case RemoveSelf():
                check_leaving(before)
                return self._appended((before.own,), ())
            case LetAnotherLead(successor):
                check_successor(before, successor)
                return replace(before, own=before.voters.key(successor))
            case ClearTarget():
                check_reached(before)
                return replace(before, target=None)
            case _:
                return before

    def _appended(self, removed: tuple[ReplicaKey, ...], added: tuple[ReplicaKey, ...]) -> PlannerView:
        before = self.view
        voters = before.voters
        for each in removed:
            voters = voters.without(each.node_id)
        for each in added:
            voters = with_key(voters, each)
        check_append(before, voters)
        return replace(before, voters=voters)


# The rules


def _keys(voters: VoterSet) -> set[ReplicaKey]:
    return {ReplicaKey(voter.voter_id, voter.voter_directory_id) for voter in voters.voters}


def _live(view: PlannerView) -> set[ReplicaKey]:
    return {replica.key for replica in view.replicas if replica.is_live} | {view.own}


def _is_wanted(view: PlannerView, replica: ReplicaKey) -> bool:
    return any(
        each.node_id == replica.node_id and each.directory_id in {ZERO_UUID, replica.directory_id}
        for each in view.target or ()
    )


def _broken(rule: str, view: PlannerView, voters: VoterSet | None = None) -> BrokenRuleError:
    return BrokenRuleError(f"{rule}: {view} -> {voters}")


def check_append(view: PlannerView, voters: VoterSet) -> None:
    """Check each voter set that a plan appends."""
    before, now = _keys(view.voters), _keys(voters)
    if len(before ^ now) != 1:
        raise _broken("R1: voter sets differ by one key", view, voters)
    if view.hold is not None:
        raise _broken(
            "R2: nothing is appended over an uncommitted set, or before the epoch's first commit", view, voters
        )
    if 2 * len(now & _live(view)) <= len(now):
        raise _broken("R8: the live voters are a majority of the new set", view, voters)
    if view.target is None:
        raise _broken("R9: a plan that was cancelled ends", view, voters)
    for added in now - before:
        replica = next((each for each in view.replicas if each.key == added), None)
        if replica is None or not (replica.is_live and replica.is_caught_up):
            raise _broken("only who has caught up is added", view, voters)
        if not _is_wanted(view, added):
            raise _broken("R9: nobody is added but towards the target", view, voters)
    for removed in before - now:
        is_replaced = any(each.node_id == removed.node_id and each != removed for each in _live(view))
        if _is_wanted(view, removed) and (not is_replaced or removed in _live(view)):
            raise _broken("R9: nobody is removed but towards the target", view, voters)


def check_leaving(view: PlannerView) -> None:
    """Check a leader that removes itself."""
    if any(not _is_wanted(view, voter) for voter in _keys(view.voters) - {view.own}):
        raise _broken("the leader leaves last", view)
    if {each.node_id for each in view.target or ()} - view.voters.ids:
        raise _broken("the leader leaves last", view)
    staying = {voter.node_id for voter in (_keys(view.voters) & _live(view)) - {view.own}}
    if view.ours & staying:
        raise _broken("the leader leaves last, and by its own record only when nobody of ours can lead", view)


def check_successor(view: PlannerView, successor: int) -> None:
    """Check a leader that hands over."""
    found = next((each for each in view.replicas if each.key == view.voters.key(successor)), None)
    if found is None or not (found.is_live and found.is_caught_up) or successor not in view.ours:
        raise _broken("only a caught-up voter of ours is handed the lead", view)
    if not _is_wanted(view, found.key) or _is_wanted(view, view.own):
        raise _broken("the lead moves only to a voter that stays, from one that goes", view)


def check_reached(view: PlannerView) -> None:
    """Check a target that is cleared."""
    voters = _keys(view.voters)
    if view.hold is not None:
        raise _broken("R2: no target is cleared while a change is uncommitted", view)
    if not all(_is_wanted(view, each) for each in voters) or len(voters) != len(view.target or ()):
        raise _broken("R9: a target is cleared when the voters are those of it", view)


def check_end(view: PlannerView, step: Idle | Wait) -> None:
    """A plan stops when it is done, or with a reason: something that is missing, and what to do about it."""
    if isinstance(step, Idle):
        if view.is_leader and view.target is not None:
            raise _broken("R10: a leader with a target is not idle", view)
        return
    if not step.reason.endswith(".") or not step.remedy.endswith("."):
        raise _broken("a plan that holds says why, and what to do", view)
    if view.hold is not None:
        return
    ready = {each.key for each in view.replicas if each.is_live and each.is_caught_up and not each.obstacle}
    named = [each for each in view.target or () if any(_fits(each, replica) for replica in ready)]
    if len(named) == len(view.target or ()):
        raise _broken("R10: a plan ends when all of its target run", view)
    if all(f"{each.node_id}" not in step.reason for each in view.target or () if each not in named):
        raise _broken("a plan that holds names who is missing", view)


def _fits(wanted_key: ReplicaKey, replica: ReplicaKey) -> bool:
    return wanted_key.node_id == replica.node_id and wanted_key.directory_id in {ZERO_UUID, replica.directory_id}


# Every situation


@value
class Node:
    """The state of one node; ``lag`` is None if the node does not fetch."""

    is_voter: bool
    is_wanted: bool
    lag: int | None
    is_ours: bool


KINDS = tuple(Node(*each) for each in product((True, False), (True, False), (0, 7, None), (True, False)))


def views(kinds: Iterable[tuple[Node, ...]]) -> Iterator[PlannerView]:
    """Each leader that such nodes may have: one of ours, while the live voters are a majority."""
    for nodes in kinds:
        ids = dict(enumerate(nodes, 1))
        voters = [node_id for node_id, node in ids.items() if node.is_voter]
        target = [node_id for node_id, node in ids.items() if node.is_wanted]
        live = [node_id for node_id in voters if ids[node_id].lag is not None]
        if not target or 2 * len(live) <= len(voters):
            continue
        for own in live:
            if ids[own].is_ours and ids[own].lag == 0:
                yield PlannerView(
                    own=key(own),
                    is_leader=True,
                    voters=voters_of(map(key, voters)),
                    target=wanted(*target),
                    replicas=tuple(present(id_, lag=it.lag) for id_, it in ids.items() if it.lag is not None),
                    ours=frozenset(id_ for id_, it in ids.items() if it.is_ours),
                )


def up_to_names(*, ours_only: bool) -> Iterator[PlannerView]:
    """Every situation of five nodes; those that differ by the nodes' names only are one."""
    kinds = [kind for kind in KINDS if kind.is_ours or not ours_only]
    return views(combinations_with_replacement(kinds, NODES))


def with_names() -> Iterator[PlannerView]:
    """Every situation of five nodes of ours."""
    return views(product([kind for kind in KINDS if kind.is_ours], repeat=NODES))
