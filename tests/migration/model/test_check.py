"""Exhaustive: every schedule of two controllers, with a fault at every single step, over the real pure code.

Each scenario lists what may go wrong how often (`Budget`); the search then tries it at every step, in every order, and
visits every world that differs. `python -m tests.migration.model.test_check` prints what was explored.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from migrator.errors import InvariantViolation
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import State
from migrator.observe.status import Force
from migrator.records.metadata import MigrationReopening
from migrator.zookeeper.znodes.controller import NOBODY, ControllerClaim, encode_controller
from migrator.zookeeper.znodes.migration import MigrationState, encode_migration
from migrator.zookeeper.znodes.paths import CONTROLLER, MIGRATION
from tests.migration.model import mistakes
from tests.migration.model.cluster import BrokenInvariantError, Budget, demand
from tests.migration.model.images import crc_at, path_of
from tests.migration.model.log import Entry
from tests.migration.model.world import World

MAX_WORLDS = 400_000
MigratorOrModelError = (BrokenInvariantError, InvariantViolation)


@dataclass
class Explored:
    """The states that a search has seen."""

    worlds: int = 0
    steps: int = 0
    settled: Counter[State] = field(default_factory=Counter)
    states: set[State] = field(default_factory=set)


def explore(start: World) -> Explored:
    """Every world that can be reached.

    :raises BrokenInvariantError: with the way that led there.
    """
    here = start.key()
    ways: dict[int, list[int]] = {here: []}
    at_rest: set[int] = set()
    waiting, explored = [(here, start)], Explored()
    while waiting:
        here, world = waiting.pop()
        explored.worlds += 1
        if explored.worlds > MAX_WORLDS:
            raise AssertionError(f"more than {MAX_WORLDS} worlds: the scenario is too wide")
        explored.states.update(node.state for node in world.nodes.values())
        moved = False
        try:
            if world.settled():
                world.check_end()
                explored.settled[world.nodes[world.leader].state] += 1
                at_rest.add(here)
            for successor in world.successors():
                moved = True
                explored.steps += 1
                key = successor.key()
                if key not in ways:
                    ways[key] = []
                    waiting.append((key, successor))
                ways[key].append(here)
        except MigratorOrModelError as broken:
            raise BrokenInvariantError(f"{broken!r} after:\n  " + "\n  ".join(world.trail)) from broken
        if not moved and not world.settled():
            raise BrokenInvariantError("everything stands still after:\n  " + "\n  ".join(world.trail))
    if start.budget.expiries:  # elsewhere an operator may have to act, or a pause is left out of the keys
        demand(len(_leading_to(at_rest, ways)) == len(ways), "from some worlds no way leads to rest, whatever happens")
    return explored


def _leading_to(ends: set[int], ways: dict[int, list[int]]) -> set[int]:
    """All worlds from which one of these can be reached.

    :param ways: by world, where one comes to it from.
    """
    found, waiting = set(ends), list(ends)
    while waiting:
        for before in ways[waiting.pop()]:
            if before not in found:
                found.add(before)
                waiting.append(before)
    return found


def migrated(budget: Budget) -> World:
    """Under a ZooKeeper-era leader of ours that is gone: copied at offset 4, claimed, and two changes behind."""
    world = World.fresh(budget)
    world = run_quietly(world.start())
    assert world.nodes[world.leader].state is State.DUAL_WRITING
    leader = world.nodes[world.leader]
    world.append(leader, Entry(world.epoch, "put", "a", "2"), Entry(world.epoch, "put", "z", "2"))
    world.budget = budget
    world.elect(3002, crashed=True)
    world.trail = ()
    return world


def edited(budget: Budget) -> World:
    """As `migrated`, and somebody has written to ZooKeeper while nobody led."""
    world = migrated(budget)
    world._foreign("set", "b")
    world._foreign("add", "c")
    return world


def restored(budget: Budget) -> World:
    """As `migrated`, and ZooKeeper was restored to what it was before the last leader wrote a change."""
    world = run_quietly(World.fresh(budget).start())
    backup = world.zookeeper.fork()
    world.append(world.nodes[world.leader], Entry(world.epoch, "put", "a", "2"), Entry(world.epoch, "drop", "b"))
    world = run_quietly(world)
    assert world._mark().kraft_metadata_offset == len(world.log)
    world.zookeeper, world.highest_mark = backup, -1
    world.elect(3002, crashed=True)
    world.trail = ()
    return world


def after_stock(budget: Budget, *, moves_the_mark: bool) -> World:
    """A stock controller of this quorum has led meanwhile: it took the cluster back after a rollback, or moved the mark
    although a write had failed."""
    world = run_quietly(World.fresh(budget).start())
    world.epoch += 1
    world.log = (*world.log, Entry(world.epoch, "put", "z", "2"))
    world.zookeeper.set(CONTROLLER, encode_controller(ControllerClaim(3001, 0, world.epoch)))
    if moves_the_mark:
        mark = MigrationState(3001, world.epoch, len(world.log), world.epoch)
        world.zookeeper.set(MIGRATION, encode_migration(mark))
    else:
        world.zookeeper.set(path_of("b"), b"9")
    world.elect(3002, crashed=True)
    world.trail = ()
    return world


def reclaimed(budget: Budget) -> World:
    """As `migrated`, rolled back, changed by a broker, and taken over again by order of the operator."""
    world = migrated(budget)
    world.zookeeper.delete(CONTROLLER)
    world._broker_election()
    world._foreign("set", "b")
    world.tampered = frozenset()  # it has to be overwritten before the mark moves
    world.elect(3002, crashed=True)
    world = run_quietly(world)
    leader = world.nodes[world.leader]
    assert leader.state is State.REFUSED
    shown = leader.coordinator.status(world.now).situation.overridable
    world._deliver(leader, ev.OperatorForce(Force.RECLAIM, overrides=frozenset(shown)))
    world.trail = ()
    return world


def just_started(budget: Budget) -> World:
    """As `migrated`, and the new leader has loaded what the old one had not written: it has not followed it."""
    world = migrated(budget)
    world.remembers_from = len(world.log)
    world.elect(3002, crashed=True)
    world.trail = ()
    return world


def run_quietly(world: World) -> World:
    """The one way without a fault."""
    budget, world.budget = world.budget, Budget()
    for _ in range(500):
        if world.settled():
            break
        world = next(iter(world.successors()))
    world.budget = budget
    return world


def stale_mark(budget: Budget) -> World:
    """A fresh quorum on a cluster that another quorum once migrated."""
    world = World.fresh(budget)
    world.zookeeper.create(MIGRATION, encode_migration(MigrationState(9, 1, 2, 1)))
    world.untouchable = True
    return world.start()


def successor(budget: Budget) -> World:
    """Our quorum is forgotten; the one that follows it is as young, and has another record at our offset and epoch."""
    world = migrated(budget)
    mark, holder = world._mark(), world._controller()
    assert mark.copied
    assert holder is not None
    theirs = replace(mark, kraft_controller_id=holder.broker_id, batch_crc=crc_at(mark.kraft_metadata_offset) + 1)
    world.zookeeper.set(MIGRATION, encode_migration(theirs))
    world.untouchable = True
    return world


def undecodable(budget: Budget) -> World:
    world = World.fresh(budget)
    world.broken_znode = world.untouchable = True
    return world.start()


def finishing(budget: Budget, *, enabled: tuple[bool, bool], zk_brokers: tuple[int, ...]) -> World:
    world = migrated(budget)
    world.enabled, world.zk_brokers = enabled, zk_brokers
    world.elect(3002, crashed=True)
    return world


def reopened(budget: Budget, *, enabled: tuple[bool, bool] = (True, True)) -> World:
    """A finished migration, changes that ZooKeeper has not heard of, somebody who wrote to ZooKeeper since, and the
    order to reopen."""
    world = run_quietly(finishing(Budget(), enabled=(False, False), zk_brokers=()))
    assert world.nodes[world.leader].state is State.FINISHED
    changes = (("put", "a", "7"), ("drop", "b", ""), ("put", "n", "1"))
    world.log = (*world.log, *(Entry(world.epoch, *change) for change in changes))
    world._foreign("set", "z")
    world.enabled, world.budget = enabled, budget
    world.elect(3001, crashed=True)
    world._deliver(world.nodes[3001], ev.OperatorReopen(MigrationReopening(3001, 1, "the test wants it")))
    world.trail = ()
    return world


def reopened_with_low_versions(budget: Budget) -> World:
    """As `reopened`, and versions matter."""
    world = reopened(budget)
    world.lags = True
    return world


def reopened_without_its_znodes(budget: Budget) -> World:
    """As `reopened`, and somebody has tidied up in ZooKeeper: nothing there says any more that it was migrated."""
    world = reopened(budget)
    world.zookeeper.delete(CONTROLLER)
    world.zookeeper.delete(MIGRATION)
    world.zookeeper.create(CONTROLLER, encode_controller(ControllerClaim(NOBODY, 0)))
    world.highest_mark = -1
    return world


SCENARIOS: dict[str, tuple[Callable[[Budget], World], Budget]] = {
    "a crash at every step of a migration": (lambda b: World.fresh(b).start(), Budget(crashes=1, changes=1)),
    "a second leader at every step of a migration": (lambda b: World.fresh(b).start(), Budget(elections=1, changes=1)),
    "two crashes anywhere": (lambda b: World.fresh(b).start(), Budget(crashes=2)),
    "a lost answer at every write, and a second leader": (
        lambda b: World.fresh(b).start(),
        Budget(lost=1, elections=1),
    ),
    "a failed copy, a crash and a foreign write": (
        lambda b: World.fresh(b).start(),
        Budget(copy_failures=1, crashes=1, foreign=1),
    ),
    "a failed copy, and a second leader": (lambda b: World.fresh(b).start(), Budget(copy_failures=1, elections=1)),
    "a failed copy, and lost answers": (lambda b: World.fresh(b).start(), Budget(copy_failures=1, lost=2)),
    "the broker's session expires at any time": (lambda b: World.fresh(b).start(), Budget(expiries=2)),
    "the broker's session expires, and a crash": (lambda b: World.fresh(b).start(), Budget(expiries=1, crashes=1)),
    "/controller deleted at any time during the copy": (lambda b: World.fresh(b).start(), Budget(rollbacks=1)),
    "takeover: second leader, crash and change at every step": (
        migrated,
        Budget(elections=1, crashes=1, changes=1),
    ),
    "takeover: lost answers, twice, and a change": (migrated, Budget(lost=2, changes=1)),
    "takeover: lost answer, second leader": (migrated, Budget(lost=1, elections=1)),
    "takeover: rolled back by the operator at any time": (migrated, Budget(rollbacks=1, crashes=1, changes=1)),
    "repair by order of the operator: a change, a lost answer": (migrated, Budget(repairs=1, changes=1, lost=1)),
    "repair by order of the operator: a change that is taken back": (migrated, Budget(repairs=1, changes=2, lost=1)),
    "repair by order of the operator: a crash, a change": (migrated, Budget(repairs=1, changes=1, crashes=1)),
    "takeover: ZooKeeper was edited, a change, a crash": (edited, Budget(changes=1, crashes=1)),
    "takeover: ZooKeeper was edited, a change, a lost answer": (edited, Budget(changes=1, lost=1)),
    "takeover: ZooKeeper was restored, a change, a second leader": (restored, Budget(changes=1, elections=1)),
    "takeover: a stock leader has claimed, a change": (
        lambda b: after_stock(b, moves_the_mark=False),
        Budget(changes=1),
    ),
    "takeover: a stock leader has moved the mark, a change": (
        lambda b: after_stock(b, moves_the_mark=True),
        Budget(changes=1),
    ),
    "takeover: by order of the operator, after a rollback": (reclaimed, Budget(changes=1, lost=1)),
    "takeover: by a controller that has just started": (just_started, Budget(changes=1, lost=1)),
    "another quorum's /migration": (stale_mark, Budget(crashes=1, elections=1)),
    "the successor of a forgotten quorum": (successor, Budget(crashes=1, elections=1, changes=1)),
    "a znode that does not decode": (undecodable, Budget(crashes=1, elections=1)),
    "finish: all off": (
        lambda b: finishing(b, enabled=(False, False), zk_brokers=()),
        Budget(crashes=2),
    ),
    "finish: one voter is on": (
        lambda b: finishing(b, enabled=(True, False), zk_brokers=()),
        Budget(crashes=1),
    ),
    "finish: brokers in ZooKeeper mode": (
        lambda b: finishing(b, enabled=(True, False), zk_brokers=(0,)),
        Budget(crashes=1),
    ),
    "reopened: crashes, and a change": (reopened, Budget(crashes=2, changes=1)),
    "reopened: a second leader": (reopened, Budget(elections=1)),
    "reopened: a lost answer, a change": (reopened, Budget(lost=1, changes=1)),
    "reopened: one voter is off": (lambda b: reopened(b, enabled=(True, False)), Budget(crashes=1)),
    "reopened: versions are raised, crashes, a change": (reopened_with_low_versions, Budget(crashes=1, changes=1)),
    "reopened: versions are raised, a lost answer": (reopened_with_low_versions, Budget(lost=1, changes=1)),
    "reopened: its znodes are gone, crashes": (reopened_without_its_znodes, Budget(crashes=2)),
}


WIDE = {
    "a failed copy, a crash and a foreign write",
    "a failed copy, and a second leader",
    "a lost answer at every write, and a second leader",
    "a second leader at every step of a migration",
    "reopened: crashes, and a change",
    "takeover: ZooKeeper was restored, a change, a second leader",
    "takeover: lost answer, second leader",
    "takeover: second leader, crash and change at every step",
}
"""They take most of the time."""
ENDS: dict[str, set[State]] = {
    "/controller deleted at any time during the copy": {State.DUAL_WRITING, State.REFUSED},
    "takeover: rolled back by the operator at any time": {State.DUAL_WRITING, State.REFUSED},
    "another quorum's /migration": {State.REFUSED},
    "the successor of a forgotten quorum": {State.REFUSED},
    "a znode that does not decode": set(),
    "finish: all off": {State.FINISHED},
    **{
        name: {State.DUAL_WRITING, State.FINISHED}  # finished: the order was lost before it was in the log
        for name, (_, budget) in SCENARIOS.items()
        if name.startswith("reopened") and (budget.crashes or budget.elections)
    },
}


@functools.cache
def search(name: str) -> Explored:
    """Searched once: two tests ask."""
    build, budget = SCENARIOS[name]
    return explore(build(budget))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.lane("test-all")] if name in WIDE else []) for name in SCENARIOS]
)
def test_nothing_breaks_in_any_order_of_things(name: str) -> None:
    explored = search(name)
    sys.stdout.write(f"{name}: {explored.worlds} worlds, {explored.steps} steps\n")
    expected = ENDS.get(name, {State.DUAL_WRITING})
    assert set(explored.settled) == expected


@pytest.mark.lane("test-all")
def test_between_them_the_scenarios_visit_every_state_of_the_road() -> None:
    small = [name for name, (_, budget) in SCENARIOS.items() if not budget.elections]
    visited = set[State]().union(*(search(name).states for name in small))
    elsewhere = {State.NOTHING_TO_MIGRATE}  # a cluster of KRaft
    elsewhere |= {State.HOLDING, State.PAUSED, State.TURNED_OFF}
    assert set(State) - visited == elsewhere


# The check checks itself: each of these mistakes must be found.

TAKEOVER = "takeover: lost answer, second leader"
EDITED = "takeover: ZooKeeper was edited, a change, a lost answer"
TAKEN_BACK = "repair by order of the operator: a change that is taken back"
LATE = "takeover: lost answers, twice, and a change"
MISTAKES: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    mistakes.set_the_mark_unconditionally_in_the_claim: TAKEOVER,
    mistakes.set_the_mark_unconditionally_in_every_multi: LATE,
    mistakes.forget_both_conditions: TAKEOVER,
    mistakes.claim_before_everything_is_decoded: "a crash at every step of a migration",
    mistakes.take_an_unknown_outcome_for_applied: LATE,
    mistakes.send_again_after_an_unknown_outcome_without_reading: LATE,
    mistakes.ignore_the_guard_of_histories: "another quorum's /migration",
    mistakes.take_an_offset_and_an_epoch_for_a_proof: "the successor of a forgotten quorum",
    mistakes.move_the_mark_with_the_first_part: LATE,
    mistakes.reconcile_with_whatever_image_is_at_hand: "a crash at every step of a migration",
    mistakes.overlook_what_is_under_way_when_a_reconcile_begins: TAKEN_BACK,
    mistakes.skip_the_reconcile_at_the_takeover: LATE,
    mistakes.resume_from_the_end_of_the_log: "takeover: ZooKeeper was restored, a change, a second leader",
    mistakes.take_what_is_remembered_for_everything: "takeover: by a controller that has just started",
    mistakes.remove_before_everything_was_compared: EDITED,
    mistakes.take_every_difference_for_a_change_meanwhile: EDITED,
    mistakes.inform_before_everything_was_compared: EDITED,
    mistakes.open_the_gates_before_everything_was_compared: EDITED,
    mistakes.resume_although_another_has_claimed_since: "takeover: a stock leader has claimed, a change",
    mistakes.resume_from_a_mark_without_a_checksum: "takeover: a stock leader has moved the mark, a change",
    mistakes.overlook_a_claim_that_was_lost_during_the_copy: "/controller deleted at any time during the copy",
    mistakes.take_another_znode_for_another_process_for_ever: "the broker's session expires at any time",
    mistakes.release_whoever_holds_the_claim: "a failed copy, and a second leader",
    mistakes.wait_on_a_claim_without_releasing_it: "a crash at every step of a migration",
    mistakes.finish_without_asking_everybody: "finish: one voter is on",
    mistakes.go_on_after_a_batch_only_when_something_happens: "a crash at every step of a migration",
    mistakes.forget_that_the_migration_was_reopened: "reopened: crashes, and a change",
    mistakes.admit_brokers_before_the_reconcile: "reopened: crashes, and a change",
    mistakes.raise_versions_up_to_what_is_not_written: "reopened: versions are raised, crashes, a change",
    mistakes.forget_versions_when_a_change_comes: "reopened: versions are raised, crashes, a change",
    mistakes.take_a_reopened_migration_for_any_other_after_the_reconcile: "reopened: crashes, and a change",
}


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(
            mistake,
            marks=[pytest.mark.lane("test-all")] if mistake is mistakes.release_whoever_holds_the_claim else [],
            id=mistake.__name__,
        )
        for mistake in MISTAKES
    ],
)
def test_the_check_finds_a_planted_mistake(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    build, budget = SCENARIOS[MISTAKES[mistake]]
    start = build(budget) if mistake is not mistakes.skip_the_reconcile_at_the_takeover else None
    mistake(monkeypatch)
    with pytest.raises(BrokenInvariantError):
        explore(start or build(budget))


if __name__ == "__main__":
    import time

    for title in SCENARIOS:
        if len(sys.argv) > 1 and sys.argv[1] not in title:
            continue
        begun = time.monotonic()
        found = search(title)
        ends = ", ".join(f"{state.value} {count}" for state, count in found.settled.items())
        seconds = time.monotonic() - begun
        sys.stdout.write(f"{title}: {found.worlds} worlds, {found.steps} steps, {seconds:.1f} s; ends: {ends}\n")
