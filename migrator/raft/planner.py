"""Which change of the voters comes next on the way to a target, one voter at a time (KIP-642 on KIP-853).

The same view gives the same step. The leader plans anew after each step and remembers nothing: the next leader, or
this one after a restart, continues from the voters in the log.

    current voters, target, who fetches --> `RULES`, the first that has an answer --> one `Step`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace

from migrator.raft.progress import ReplicaStatus
from migrator.raft.voter_set import STATIC_RANGE, ReplicaKey, VoterSet
from migrator.raft.votes import majority
from migrator.records.control import DynamicVoter
from migrator.records.uuid import ZERO_UUID
from migrator.values import value

Target = tuple[ReplicaKey, ...]
"""The wanted voters, in the order of their ids. A key without a directory means the node on any disk."""


@value
class Replica:
    """A replica, voter or not, as the leader sees it.

    ``is_live``: it fetched within the fetch time-out. ``is_caught_up``: see `seen`. ``obstacle``: another reason why it
    cannot become a voter.
    """

    key: ReplicaKey
    end_offset: int
    is_live: bool
    is_caught_up: bool
    obstacle: str = ""


def seen(status: ReplicaStatus, now_ms: int, fetch_timeout_ms: int, election_timeout_ms: int) -> Replica:
    """The planner's view of a replica in the leader's progress table.

    It is caught up when its last round, and the one that it is in, took less than the election time-out: the records
    that it still lacks would not delay an election (Raft thesis 4.2.1).
    """
    is_live = status.heard_ms >= 0 and now_ms - status.heard_ms <= fetch_timeout_ms
    current_ms = now_ms - status.round_began_ms if status.round_began_ms >= 0 else 0
    is_caught_up = status.rounds > 0 and max(status.last_round_ms, current_ms) < election_timeout_ms
    return Replica(
        ReplicaKey(status.replica_id, status.directory_id), status.end_offset, is_live, is_live and is_caught_up
    )


@value
class PlannerView:
    """The facts that a controller knows when it asks for the next step.

    ``voters`` are those in force. ``ours``: ids of the controllers of this program.
    ``hold``: why the leader may make no change of the voters now.
    """

    own: ReplicaKey
    is_leader: bool
    voters: VoterSet
    target: Target | None
    replicas: tuple[Replica, ...]
    ours: frozenset[int] = frozenset()
    hold: str | None = None
    live: frozenset[ReplicaKey] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        live = {replica.key for replica in self.replicas if replica.is_live} | {self.own}
        object.__setattr__(self, "live", frozenset(live))

    def find(self, key: ReplicaKey) -> Replica | None:
        return next((replica for replica in self.replicas if replica.key == key), None)

    def of(self, node_id: int) -> list[Replica]:
        """The live replicas of an id. There are two for a moment after a node was given another disk."""
        return [replica for replica in self.replicas if replica.key.node_id == node_id and replica.key in self.live]


@value
class Idle:
    """There is nothing to do for this controller."""

    reason: str


@value
class Wait:
    """Something has to happen first. The texts are whole sentences: the reason, and the operator's remedy."""

    reason: str
    remedy: str


@value
class Add:
    key: ReplicaKey


@value
class Remove:
    key: ReplicaKey


@value
class LetAnotherLead:
    """Let another voter lead, so that it removes this one."""

    successor: int


@value
class RemoveSelf:
    """Append the voters without this leader, and resign once they are committed.

    ``is_last_of_ours``: only stock controllers remain, which know no target. So the target is removed first, in the
    same turn.
    """

    is_last_of_ours: bool


@value
class ClearTarget:
    """The voters are those of the target."""


Step = Idle | Wait | Add | Remove | LetAnotherLead | RemoveSelf | ClearTarget


@value
class Plan:
    """A view, and the changes that its target asks for. ``to_remove`` is in the order in which the voters leave."""

    view: PlannerView
    target: Target
    to_add: Target
    to_remove: tuple[ReplicaKey, ...]

    @property
    def others_to_remove(self) -> tuple[ReplicaKey, ...]:
        """The voters to remove, without this leader."""
        return tuple(key for key in self.to_remove if key != self.view.own)


# The requirements of the target


def _satisfies(view: PlannerView, voter: ReplicaKey, wanted: ReplicaKey) -> bool:
    """Whether a voter is the one that the target names. A node with a new disk is another replica."""
    if voter.node_id != wanted.node_id:
        return False
    if wanted.directory_id != ZERO_UUID:
        return wanted.directory_id == voter.directory_id
    return voter in view.live or not view.of(voter.node_id)


def _leaving_order(view: PlannerView, key: ReplicaKey) -> tuple[object, ...]:
    replica = view.find(key)
    is_caught_up, end = (False, -1) if replica is None else (replica.is_caught_up, replica.end_offset)
    return key == view.own, key in view.live, is_caught_up, end, key.node_id


def plan_for(view: PlannerView, target: Target) -> Plan:
    """The voters to add and to remove. Dead and lagging voters leave first, this leader last."""
    voters = keys(view.voters)
    to_add = tuple(wanted for wanted in target if not any(_satisfies(view, voter, wanted) for voter in voters))
    leaving = [voter for voter in voters if not any(_satisfies(view, voter, wanted) for wanted in target)]
    return Plan(view, target, to_add, tuple(sorted(leaving, key=lambda key: _leaving_order(view, key))))


def keys(voters: VoterSet) -> Target:
    """The voters with their directories."""
    return tuple(voters.key(voter.voter_id) for voter in voters.voters)


# Whether the live voters of the next set would be a majority of it


def with_key(voters: VoterSet, key: ReplicaKey) -> VoterSet:
    """The set with one more voter. A plan needs no endpoints."""
    return voters.with_voter(DynamicVoter(key.node_id, key.directory_id, (), STATIC_RANGE))


def _live_in(view: PlannerView, voters: VoterSet) -> int:
    return len({key.node_id for key in view.live if voters.has(key.node_id, key.directory_id)})


def _is_safe(view: PlannerView, voters: VoterSet) -> bool:
    return _live_in(view, voters) >= majority(len(voters))


def _may_remove(view: PlannerView, key: ReplicaKey) -> bool:
    return _is_safe(view, view.voters.without(key.node_id))


# Rules


def _rest(plan: Plan) -> Step | None:
    if plan.view.is_leader:
        return None
    return Idle("Another controller leads. The leader goes on with the plan.")


def _hold(plan: Plan) -> Step | None:
    """Wait while a change is uncommitted, and until the epoch has committed a record: a change before that could give
    two voter sets whose majorities share no voter."""
    if plan.view.hold is None:
        return None
    return Wait(
        plan.view.hold, "Do nothing: the plan goes on by itself. If it does not, see which voters do not fetch."
    )


def _finish(plan: Plan) -> Step | None:
    return None if plan.to_add or plan.to_remove else ClearTarget()


def _candidates(plan: Plan) -> Iterable[Replica]:
    """The replicas that could be added now, the most caught-up first."""
    found = [_candidate(plan.view, wanted) for wanted in plan.to_add if wanted.node_id not in plan.view.voters.ids]
    ready = [replica for replica in found if replica and replica.is_caught_up and not replica.obstacle]
    safe = [replica for replica in ready if _is_safe(plan.view, with_key(plan.view.voters, replica.key))]
    return sorted(safe, key=lambda replica: (-replica.end_offset, replica.key.node_id))


def _candidate(view: PlannerView, wanted: ReplicaKey) -> Replica | None:
    fitting = [it for it in view.of(wanted.node_id) if wanted.directory_id in {ZERO_UUID, it.key.directory_id}]
    return max(fitting, key=lambda replica: (replica.is_caught_up, replica.end_offset), default=None)


def _add(plan: Plan) -> Step | None:
    return next((Add(replica.key) for replica in _candidates(plan)), None)


def _add_first(plan: Plan) -> Step | None:
    return _add(plan) if len(plan.to_add) >= len(plan.to_remove) else None


def _remove_dead(plan: Plan) -> Step | None:
    """Remove a dead voter first: it only makes the majority larger, and a new disk of its id may join only after it."""
    replaced = {wanted.node_id for wanted in plan.to_add if _candidate(plan.view, wanted)}
    gone = (key for key in plan.others_to_remove if key not in plan.view.live or key.node_id in replaced)
    return next((Remove(key) for key in gone if _may_remove(plan.view, key)), None)


def _remove(plan: Plan) -> Step | None:
    if len(plan.to_add) >= len(plan.to_remove):
        return None
    return next((Remove(key) for key in plan.others_to_remove if _may_remove(plan.view, key)), None)


def _leave(plan: Plan) -> Step | None:
    """This leader leaves last. It hands over to another controller of this program, which removes it. If there is none,
    it appends the last set itself."""
    view = plan.view
    if plan.to_add or plan.to_remove != (view.own,) or not _may_remove(view, view.own):
        return None
    staying = view.voters.without(view.own.node_id)
    ours = [replica for replica in view.replicas if replica.key.node_id in view.ours and replica.key in view.live]
    ours = [replica for replica in ours if staying.has(replica.key.node_id, replica.key.directory_id)]
    if not ours:
        return RemoveSelf(is_last_of_ours=not view.ours & staying.ids)
    ready = [replica for replica in ours if replica.is_caught_up]
    if not ready:
        names = _listed(str(replica.key.node_id) for replica in ours)
        return Wait(
            f"This leader has to go, and the controllers that may lead after it have not caught up: {names}.",
            "Wait until one of them has caught up, or reassign to a target with this leader.",
        )
    best = max(ready, key=lambda replica: (replica.end_offset, -replica.key.node_id))
    return LetAnotherLead(best.key.node_id)


def _wait(plan: Plan) -> Step:
    """Name what each controller lacks that cannot join or leave yet. No step can be taken now."""
    waits = [_missing(plan.view, wanted) for wanted in plan.to_add]
    if len(plan.to_add) < len(plan.to_remove):
        waits += [_too_few(plan.view, key) for key in plan.to_remove]
    remedies = dict.fromkeys(wait.remedy for wait in waits)
    return Wait(" ".join(wait.reason for wait in waits), " ".join(remedies))


def _missing(view: PlannerView, wanted: ReplicaKey) -> Wait:
    replica = _candidate(view, wanted)
    name = f"Controller {wanted}"
    if replica is None:
        return Wait(
            f"{name} does not fetch from this leader.",
            "Start the controller, and see that it reaches this leader; or reassign to a target without it.",
        )
    if wanted.node_id in view.voters.ids:
        old = view.voters.key(wanted.node_id)
        without_old = _too_few(view, old)
        return Wait(
            f"Controller {replica.key} runs on a new disk, and its old one is still a voter. {without_old.reason}",
            without_old.remedy,
        )
    if replica.obstacle:
        return Wait(
            f"{name} cannot become a voter: {replica.obstacle}.", "Mend that, or reassign to a target without it."
        )
    if not replica.is_caught_up:
        return Wait(
            f"{name} has not caught up with this leader.",
            "Wait. If it falls back further, look at the disk and the network of that controller.",
        )
    return Wait(f"{name} is ready, but with it too few voters would be live.", "Start the voters that do not fetch.")


def _too_few(view: PlannerView, key: ReplicaKey) -> Wait:
    after = view.voters.without(key.node_id)
    if len(after) == 0:
        return Wait(
            f"Controller {key.node_id} is the only voter and cannot leave before another one has joined.",
            "Name at least one controller in the target that runs.",
        )
    silent = _listed(str(voter.node_id) for voter in keys(after) if voter not in view.live)
    return Wait(
        f"Without controller {key.node_id}, {_live_in(view, after)} of {len(after)} voters would be live, "
        f"and {majority(len(after))} are needed. These do not fetch from this leader: {silent}.",
        f"Start controller {silent}, and see that it reaches this leader.",
    )


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


@value
class Rule:
    """A row of the table: its name, and the function that returns its step, or None when the rule does not apply."""

    name: str
    step: Callable[[Plan], Step | None]


RULES = (
    Rule("only the leader changes voters", _rest),
    Rule("a change is pending, or the epoch is too young", _hold),
    Rule("the voters are those of the target", _finish),
    Rule("add first while additions are at least removals", _add_first),
    Rule("remove a dead voter", _remove_dead),
    Rule("remove another voter, the lagging first", _remove),
    Rule("no removal is safe, an addition is", _add),
    Rule("this leader goes last", _leave),
    Rule("somebody who is needed is missing", _wait),
)
"""The rules, tried in this order. The last one always returns a step."""


def plan(view: PlannerView, rules: tuple[Rule, ...] = RULES) -> Step:
    if view.target is None:
        return Idle("No target is set.")
    asked = plan_for(view, view.target)
    return next(step for rule in rules if (step := rule.step(asked)) is not None)


# The steps to come


def after(view: PlannerView, step: Step) -> PlannerView:
    """The view once a step has succeeded and nothing else has changed."""
    match step:
        case Add(key):
            return replace(view, voters=with_key(view.voters, key))
        case Remove(key):
            return replace(view, voters=view.voters.without(key.node_id))
        case RemoveSelf():
            voters = view.voters.without(view.own.node_id)
            return replace(view, voters=voters, target=None if step.is_last_of_ours else view.target)
        case LetAnotherLead(successor):
            return replace(view, own=view.voters.key(successor))
        case ClearTarget():
            return replace(view, target=None)
        case Idle() | Wait():
            return view


def described(step: Step) -> str:
    """A step as a phrase that operators read."""
    match step:
        case Add(key):
            return f"add controller {key}"
        case Remove(key):
            return f"remove controller {key}"
        case LetAnotherLead(successor):
            return f"let controller {successor} lead, which then removes this one"
        case RemoveSelf():
            return "remove this leader"
        case ClearTarget():
            return "clear the target"
        case Idle(reason) | Wait(reason):
            return reason


STEPS_MAX = 64
"""A bound for `outlook`: more steps than any real change of the voters takes."""


def outlook(view: PlannerView) -> tuple[Step, ...]:
    """The steps from here to the end, if each succeeds and each missing replica of the target comes and catches up."""
    view = _with_target_ready(view)
    steps: list[Step] = []
    while len(steps) < STEPS_MAX:
        step = plan(view)
        if isinstance(step, Idle | Wait):
            break
        steps.append(step)
        if isinstance(step, RemoveSelf):
            break
        view = after(view, step)
    return tuple(steps)


def _with_target_ready(view: PlannerView) -> PlannerView:
    end = max((replica.end_offset for replica in view.replicas), default=0)
    ready = {}
    for wanted in view.target or ():
        voter = view.voters.key(wanted.node_id) if wanted.node_id in view.voters.ids else None
        known = _candidate(view, wanted)
        is_voter = voter is not None and _satisfies(view, voter, wanted)
        key = voter if voter is not None and is_voter else wanted if known is None else known.key
        ready[key] = Replica(key, end, is_live=True, is_caught_up=True)
    others = (replica for replica in view.replicas if replica.key not in ready)
    return replace(view, replicas=(*others, *ready.values()), hold=None)
