"""The planner reaches every target that can be reached, keeps the rules on the way, or says why it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from migrator.raft import planner
from migrator.raft.planner import (
    RULES,
    Add,
    ClearTarget,
    Idle,
    LetAnotherLead,
    Plan,
    PlannerView,
    Remove,
    RemoveSelf,
    Rule,
    Target,
    Wait,
    outlook,
    plan,
    seen,
)
from migrator.raft.progress import ReplicaState, rows
from migrator.raft.voter_set import ReplicaKey
from tests.raft.support.reassignment import (
    BrokenRuleError,
    Reassignment,
    Swap,
    key,
    present,
    up_to_names,
    voters_of,
    wanted,
    with_names,
)

ALL = range(1, 7)
Planner = Callable[[PlannerView], object]


def view_of(
    voters: tuple[int, ...], target: tuple[int, ...] | None, *, own: int = 1, lags: dict[int, int | None] | None = None
) -> PlannerView:
    """Six controllers of ours that run, but for those with another lag; None does not fetch."""
    lag_of = dict.fromkeys(ALL, 0) | (lags or {})
    return PlannerView(
        own=key(own),
        is_leader=True,
        voters=voters_of(map(key, voters)),
        target=None if target is None else wanted(*target),
        replicas=tuple(present(node_id, lag=lag) for node_id, lag in lag_of.items() if lag is not None),
        ours=frozenset(ALL),
    )


def steps_of(view: PlannerView) -> list[object]:
    run = Reassignment(view)
    run.run()
    return run.steps


# Every situation


def test_every_situation_of_five_nodes_ends_at_the_target_or_with_a_reason() -> None:
    reached = held = 0
    for view in up_to_names(ours_only=True):
        last = Reassignment(view).run()
        reached += isinstance(last, Idle)
        held += isinstance(last, Wait)
    assert (reached, held) == (1191, 1643)


@pytest.mark.lane("test-all")
def test_every_situation_of_five_nodes_some_of_them_stock() -> None:
    reached = held = left = 0
    for view in up_to_names(ours_only=False):
        last = Reassignment(view).run()
        reached += isinstance(last, Idle)
        held += isinstance(last, Wait)
        left += isinstance(last, RemoveSelf)
    assert (reached, held, left) == (10851, 18991, 2060)


@pytest.mark.lane("test-all")
def test_every_situation_of_five_nodes_by_name() -> None:
    for view in with_names():
        Reassignment(view).run()


# The ways that people go


def test_three_become_three_others_and_the_leader_hands_over_last() -> None:
    assert steps_of(view_of((1, 2, 3), (4, 5, 6))) == [
        Add(key(4)),
        Remove(key(2)),
        Add(key(5)),
        Remove(key(3)),
        Add(key(6)),
        LetAnotherLead(4),
        Remove(key(1)),
        ClearTarget(),
        Idle("No target is set."),
    ]


def test_it_grows_and_shrinks_one_by_one() -> None:
    run = Reassignment(view_of((1,), (1, 2, 3)))
    sizes = []
    for target in ((1, 2, 3), (1, 2, 3, 4, 5), (1, 2, 3), (1,)):
        run.view = replace(run.view, target=wanted(*target))
        run.run()
        sizes.append(sorted(run.view.voters.ids))
    assert sizes == [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3], [1]]


def test_a_leader_of_the_target_stays() -> None:
    assert steps_of(view_of((1, 2, 3), (3, 4, 5), own=3))[:-2] == [
        Add(key(4)), Remove(key(1)), Add(key(5)), Remove(key(2)),
    ]  # fmt: skip


def test_the_most_caught_up_joins_first_and_the_dead_and_lagging_leave_first() -> None:
    view = view_of((1, 2, 3), (1, 4, 5), lags={3: 7})
    ahead = replace(present(5), end_offset=120)
    view = replace(view, replicas=(*(each for each in view.replicas if each.key != ahead.key), ahead))
    assert steps_of(view)[:4] == [Add(key(5)), Remove(key(3)), Add(key(4)), Remove(key(2))]
    view = view_of((1, 2, 3, 4), (1,), lags={3: 7, 4: None})
    assert steps_of(view)[:3] == [Remove(key(4)), Remove(key(3)), Remove(key(2))]


def test_a_new_disk_joins_once_the_old_one_has_left() -> None:
    view = view_of((1, 2, 3), (1, 2, 3), lags={3: None})
    assert steps_of(view)[0] == ClearTarget()  # a voter that is down is the one that the target means
    wiped = replace(view, replicas=(*view.replicas, present(3, number=2)))
    assert steps_of(wiped)[:3] == [Remove(key(3)), Add(key(3, 2)), ClearTarget()]
    named = replace(wiped, target=(key(1), key(2), key(3, 2)))
    assert steps_of(named)[:3] == [Remove(key(3)), Add(key(3, 2)), ClearTarget()]


def test_a_target_may_change_midway() -> None:
    for number in range(8):
        run = Reassignment(
            view_of((1, 2, 3), (4, 5, 6)), events={number: lambda view: replace(view, target=wanted(1, 2, 5))}
        )
        run.run()
        assert run.view.voters.ids == {1, 2, 5}


def test_a_cancelled_plan_leaves_the_voters_where_they_are() -> None:
    for number in range(8):
        run = Reassignment(view_of((1, 2, 3), (4, 5, 6)), events={number: lambda view: replace(view, target=None)})
        run.run()
        assert run.steps[number:] == [Idle("No target is set.")]


def test_with_stock_successors_only_the_leader_leaves_by_its_own_record() -> None:
    view = replace(view_of((1, 4, 5), (4, 5)), ours=frozenset({1}))
    assert steps_of(view) == [RemoveSelf(is_last_of_ours=True)]
    down = replace(view_of((1, 4, 5, 6), (4, 5, 6), lags={6: None}), ours=frozenset({1, 6}))
    assert plan(down) == RemoveSelf(is_last_of_ours=False)


def test_only_the_leader_acts() -> None:
    assert isinstance(plan(replace(view_of((1, 2, 3), (4,)), is_leader=False)), Idle)


def test_the_outlook_names_the_steps_to_come() -> None:
    view = view_of((1, 2, 3), (2, 3, 4))
    assert outlook(view) == (Add(key(4)), LetAnotherLead(2), Remove(key(1)), ClearTarget())
    assert outlook(replace(view, hold="The set is not committed.")) == outlook(view)
    missing = view_of((1, 2, 3), (2, 3, 4), lags={3: 7, 4: None})
    assert outlook(missing) == (Add(ReplicaKey(4)), LetAnotherLead(2), Remove(key(1)), ClearTarget())
    assert outlook(replace(view, target=None)) == ()


# Why it holds


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        pytest.param(
            view_of((1, 2, 3), (1, 2, 4), lags={4: None}), "Controller 4 does not fetch from this leader.", id="down"
        ),
        pytest.param(
            view_of((1, 2, 3), (1, 2, 4), lags={4: 7}), "Controller 4 has not caught up with this leader.",
            id="lagging",
        ),
        pytest.param(
            view_of((1, 2, 3), (1, 3), lags={3: None}),
            "Without controller 2, 1 of 2 voters would be live, and 2 are needed. "
            "These do not fetch from this leader: 3.",
            id="too-few",
        ),
        pytest.param(
            replace(view_of((1, 2, 3), (4, 5, 6)), hold="The last change is not committed."),
            "The last change is not committed.",
            id="pending",
        ),
        pytest.param(
            view_of((1, 2), (6,), own=1, lags={6: None}), "Controller 6 does not fetch from this leader.", id="alone"
        ),
        pytest.param(
            view_of((1, 2, 3), (2, 3), lags={2: 1, 3: 1}),
            "This leader has to go, and the controllers that may lead after it have not caught up: 2 and 3.",
            id="successor",
        ),
    ],
)  # fmt: skip
def test_a_plan_that_holds_says_why(view: PlannerView, reason: str) -> None:
    last = Reassignment(view).run()
    assert isinstance(last, Wait)
    assert last.reason == reason


# Who has caught up


def standing(progress: ReplicaState, now: int) -> tuple[bool, bool, int]:
    (row,) = rows([progress])
    found = seen(row, now, fetch_timeout_ms=2000, election_timeout_ms=1000)
    return found.is_live, found.is_caught_up, row.rounds


def test_a_replica_has_caught_up_when_a_round_was_shorter_than_an_election() -> None:
    progress = ReplicaState(4, key(4).directory_id, 0)
    assert standing(progress, 0) == (False, False, 0)
    progress.fetched(10, 5000, now=100)
    progress.fetched(4000, 9000, now=900)
    assert standing(progress, 900) == (True, False, 0)  # it has yet to reach 5000
    progress.fetched(5000, 9000, now=1200)
    assert standing(progress, 1200) == (True, False, 1)  # after 1,100 ms
    progress.fetched(9000, 9500, now=2100)
    assert standing(progress, 2100) == (True, True, 2)
    assert standing(progress, 3099) == (True, True, 2)
    assert standing(progress, 3100) == (True, False, 2)  # 500 records take it a second now
    progress.fetched(9500, 9500, now=3200)
    progress.fetched(9500, 9500, now=4500)
    assert standing(progress, 6500) == (True, True, 4)  # nothing was to be fetched
    assert standing(progress, 6501) == (False, False, 4)


# The bugs that a planner may have, each caught by a rule


def _towards(view: PlannerView) -> tuple[list[ReplicaKey], list[ReplicaKey]]:
    """The voters to add and to remove, in the order of ids, without other rules."""
    ids = [each.node_id for each in view.target or ()]
    return (
        [key(node_id) for node_id in ids if node_id not in view.voters.ids],
        [key(node_id) for node_id in sorted(view.voters.ids) if node_id not in ids],
    )


def _first(step: Callable[[Plan], object]) -> Planner:
    """The planner with one more rule, before all that change anything."""
    rules = (*RULES[:3], Rule("the bug", step), *RULES[3:])  # type: ignore[arg-type] # a bug may do what no `Step` says
    return lambda view: plan(view, rules)


def _swap(asked: Plan) -> object:
    added, removed = _towards(asked.view)
    return Swap((removed[0],), (added[0],)) if added and removed else None


def _two_at_once(asked: Plan) -> object:
    added, _ = _towards(asked.view)
    return Swap((), tuple(added[:2])) if len(added) > 1 else None


def _silent_is_added(asked: Plan) -> object:
    added, _ = _towards(asked.view)
    return Add(added[0]) if added else None


def _live_majority_is_not_counted(asked: Plan) -> object:
    others = asked.others_to_remove
    return Remove(others[0]) if others else None


def _leader_goes_first(asked: Plan) -> object:
    return RemoveSelf(is_last_of_ours=False) if asked.view.own in asked.to_remove else None


def _pending_is_ignored() -> Planner:
    rules = tuple(rule for rule in RULES if rule.step is not planner._hold)
    return lambda view: plan(view, rules)


def _keeps_its_first_target() -> Planner:
    first: list[Target | None] = []

    def stubborn(view: PlannerView) -> object:
        first.append(view.target)
        return plan(replace(view, target=first[0]))

    return stubborn


def _as_it_is(view: PlannerView) -> PlannerView:
    return view


def _cancelled(view: PlannerView) -> PlannerView:
    return replace(view, target=None)


def _retargeted(view: PlannerView) -> PlannerView:
    return replace(view, target=wanted(view.own.node_id))


def _held(view: PlannerView) -> PlannerView:
    return replace(view, hold="The last change is not committed.")


BUGS: dict[str, tuple[Callable[[], Planner], Callable[[PlannerView], PlannerView], str]] = {
    "1, 2: a change over an uncommitted one, or too early in the epoch": (_pending_is_ignored, _held, "R2"),
    "10: a swap": (lambda: _first(_swap), _as_it_is, "R1"),
    "11: two keys at once": (lambda: _first(_two_at_once), _as_it_is, "R1"),
    "16: a cancelled plan goes on": (_keeps_its_first_target, _cancelled, "R9"),
    "16: a replaced target goes on": (_keeps_its_first_target, _retargeted, "R9"),
    "17: a silent node is added": (lambda: _first(_silent_is_added), _as_it_is, "only who has caught up is added"),
    "18: the last live majority is removed": (lambda: _first(_live_majority_is_not_counted), _as_it_is, "R8"),
    "21: the leader removes itself first": (lambda: _first(_leader_goes_first), _as_it_is, "the leader leaves last"),
}
"""By the number of the fault: the planner that has it, what happens after its first step, and the rule that tells."""


def _rule_that_tells(make: Callable[[], Planner], change: Callable[[PlannerView], PlannerView]) -> str:
    for view in up_to_names(ours_only=True):
        try:
            Reassignment(view, make(), {1: change}).run()
        except BrokenRuleError as broken:
            return str(broken)
    return "nobody"


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_of_a_planner_breaks_a_rule(name: str) -> None:
    make, change, rule = BUGS[name]
    assert _rule_that_tells(make, change).startswith(rule)


@pytest.mark.parametrize("change", [_as_it_is, _cancelled, _retargeted, _held])
def test_the_planner_without_a_bug_breaks_none(change: Callable[[PlannerView], PlannerView]) -> None:
    assert _rule_that_tells(lambda: plan, change) == "nobody"
