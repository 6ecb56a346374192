"""Bugs on purpose: each is a patch of the core or of the simulated node that the simulator has to find.

A bug that nobody finds means that the rule against it is not checked, or that its situation never arises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from migrator.raft import core, election, follower, learning, quorum, replication, votes
from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.census import EMPTY_END, Census
from migrator.raft.departure import QUESTIONS_MAX, Departure
from migrator.raft.messages import EpochOffset, VoteResponse
from migrator.raft.peers import Peers
from migrator.raft.quorum import Quorum
from migrator.raft.replication import FetchPosition
from migrator.raft.states import NEVER_ELECTED, Follower, Leader, Unattached
from migrator.values import value
from tests.simulation.batches import Record
from tests.simulation.controller import Controller
from tests.simulation.disk import SimulatedDisk, SimulatedLog
from tests.simulation.image import Image
from tests.simulation.node import SimulatedNode
from tests.simulation.planted_voters import VOTER_BUGS
from tests.simulation.runner import run_seed
from tests.simulation.world import Outcome

SEEDS_MAX = 1000
"""Every bug is found within so many seeds."""

Patches = list[tuple[object, str, object]]
BUGS: dict[str, Callable[[], Patches]] = dict(VOTER_BUGS)

VOTERS_CHANGE = {"dynamic": "yes"}
BY_HAND = {"dynamic": "yes", "change_rate": "20", "journey": "random", "spares": "2"}
DOORS_CLOSE = {"door_rate": "4", "barred": "no"}
DISKS_ARE_LOST = {"dynamic": "no", "barred": "no", "disk_loss_rate": "1", "disk_losses_at_once": "2", "crash_rate": "4"}
LIKELIER: dict[str, dict[str, str]] = {
    "answer_of_the_leader_leaves_the_evidence": DOORS_CLOSE,
    "refused_port_alone_is_evidence": DOORS_CLOSE,
    "early_elections_have_no_bound": DOORS_CLOSE,
    "hook_is_not_asked": {"dynamic": "no", "barred": "yes"},
    "hook_is_not_asked_again": {
        "dynamic": "no",
        "voters": "3",
        "barred": "yes",
        "crash_rate": "4",
        "delay_max_ms": "40",
    },
    "v01_change_before_a_commit_of_the_own_epoch": BY_HAND | {"crash_rate": "4"},
    "v07_leader_that_removes_itself_counts_itself": BY_HAND | {"is_advertised": "no"},
    "v22_vote_of_a_stranger_unseats_a_leader": BY_HAND | {"pre_votes": "no", "partition_rate": "3"},
    "removed_voter_stands_no_more_although_it_is_needed": BY_HAND | {"crash_after_change": "1"},
    "mark_of_an_empty_disk_is_forgotten_at_the_second_start": DISKS_ARE_LOST,
    "silent_voters_count_as_empty": DISKS_ARE_LOST,
    "leader_that_overslept_answers_first": {"dynamic": "no", "voters": "5", "pause_rate": "4", "delay_max_ms": "40"},
}
"""Options that make a rare situation frequent, for bugs that would take more seeds than `SEEDS_MAX`."""


def bug(plant: Callable[[], Patches]) -> Callable[[], Patches]:
    """Register a bug under its function's name; the function returns (object, attribute, replacement)."""
    BUGS[plant.__name__] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Have a bug while the context lasts."""
    with ExitStack() as stack:
        for target, attribute, replacement in BUGS[name]():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield


@value
class Catch:
    """Which seed found a bug, by which rule; None when none did."""

    name: str
    seed: int | None
    rule: str | None
    seeds_tried: int


def hunt(name: str) -> Catch:
    """Look for a bug seed by seed."""
    with planted(name):
        for seed in range(SEEDS_MAX):
            outcome: Outcome = run_seed(seed, LIKELIER.get(name, VOTERS_CHANGE if name in VOTER_BUGS else None))
            if outcome.rule is not None:
                return Catch(name, seed, outcome.rule, seed + 1)
    return Catch(name, None, None, SEEDS_MAX)


# Votes


@bug
def vote_is_not_persisted() -> Patches:
    original = Quorum.vote_for

    def vote_for(self: Quorum, *args: Any) -> None:
        original(self, *args)
        self.effects = [effect for effect in self.effects if not isinstance(effect, fx.PersistElectionState)]

    return [(Quorum, "vote_for", vote_for)]


@bug
def vote_is_not_fsynced() -> Patches:
    def persist(self: SimulatedNode, effect: fx.PersistElectionState) -> None:
        self.disk.unsynced_election = effect.state

    return [(SimulatedNode, "_persist", persist)]


@bug
def two_votes_in_an_epoch() -> Patches:
    original = election._grant

    def grant(books: Quorum, request: Any) -> bool:
        if isinstance(books.state, Unattached):
            books.state.voted_id = None
        return original(books, request)

    return [(election, "_grant", grant)]


@bug
def vote_without_log_check() -> Patches:
    return [(votes, "is_up_to_date", lambda _candidate, _ours: True)]


@bug
def half_is_a_majority() -> Patches:
    return [(votes, "majority", lambda voters: voters // 2)]


@bug
def stale_votes_count() -> Patches:
    original = learning.absorb

    def absorb(books: Quorum, peer: int, response: Any) -> bool:
        is_stale_grant = isinstance(response, VoteResponse) and response.vote_granted
        return is_stale_grant or original(books, peer, response)

    return [(Peers, "forget_all", lambda _self: None), (core, "absorb", absorb)]


@bug
def hook_is_not_asked() -> Patches:
    original = election._grant

    def grant(books: Quorum, request: Any) -> bool:
        with patch.object(books.config, "may_grant_vote", lambda _candidate: True):
            return original(books, request)

    return [(election, "_grant", grant)]


@bug
def hook_is_not_asked_again() -> Patches:
    """The candidate that got the vote may have been restarted since, and be barred now."""
    original = election._grant

    def grant(books: Quorum, request: Any) -> bool:
        state = books.state
        if isinstance(state, Unattached) and state.voted_id == request.candidate_id:
            return True
        return original(books, request)

    return [(election, "_grant", grant)]


# What counts as committed


@bug
def old_epochs_are_committed() -> Patches:
    original = Quorum.become_leader

    def become_leader(self: Quorum) -> None:
        original(self)
        if isinstance(self.state, Leader):
            self.state.start_offset = -1

    return [(Quorum, "become_leader", become_leader)]


@bug
def leader_counts_unsynced() -> Patches:
    original = replication._durable_end

    def durable_end(books: Quorum, leader: Leader, voter: int) -> int | None:
        return books.log.end_offset() if voter == books.node_id else original(books, leader, voter)

    return [(replication, "_durable_end", durable_end)]


@bug
def sync_is_reported_before_it_is_done() -> Patches:
    original = SimulatedNode._request_sync

    def request_sync(self: SimulatedNode, effect: fx.RequestSync) -> None:
        original(self, effect)
        self.soon(ev.LogSynced(self.disk.log.end_offset(), effect.generation))

    return [(SimulatedNode, "_request_sync", request_sync)]


@bug
def high_watermark_falls() -> Patches:
    def advance(self: Quorum, offset: int) -> None:
        if offset != self.high_watermark:
            self.high_watermark = offset
            self.emit(fx.AdvanceHighWatermark(offset))

    return [(Quorum, "advance_high_watermark", advance)]


@bug
def follower_believes_high_watermark_beyond_its_log() -> Patches:
    def update(books: Quorum, state: Follower) -> None:
        books.advance_high_watermark(state.leader_high_watermark)

    return [(follower, "update_high_watermark", update)]


@bug
def answer_before_commit() -> Patches:
    original = Controller._append

    def append(self: Controller, records: tuple[Record, ...], promise: tuple[int, ...] = ()) -> None:
        original(self, records, promise)
        self.node.world.history.acknowledged.update(promise)

    return [(Controller, "_append", append)]


# Divergence


@bug
def truncation_below_high_watermark() -> Patches:
    def truncate(books: Quorum, _peer: int, diverging: EpochOffset) -> bool:
        offset = max(books.log.start_offset(), follower.truncation_offset(books.log, diverging) - 3)
        books.rewrite(fx.TruncateTo(offset), durable_end=min(books.synced_end, offset))
        return True

    return [(follower, "_truncate", truncate)]


@bug
def divergence_is_not_seen() -> Patches:
    original = replication.locate

    def locate(log: Any, offset: int, last_epoch: int) -> FetchPosition:
        position = original(log, offset, last_epoch)
        return FetchPosition() if position.diverging and offset <= log.end_offset() else position

    return [(replication, "locate", locate)]


@bug
def start_of_the_last_epoch_is_lost_at_boot() -> Patches:
    original = SimulatedDisk.recover

    def recover(self: SimulatedDisk) -> None:
        original(self)
        if len(self.log._epochs) > 1:
            self.log._epochs.pop()

    return [(SimulatedDisk, "recover", recover)]


@bug
def snapshot_below_the_log_start_hides_divergence() -> Patches:
    """A fault of an earlier version of the core; the simulator found it."""

    def locate(log: SimulatedLog, offset: int, last_epoch: int) -> FetchPosition:
        with patch.object(log, "_snapshots", [EpochOffset(0, log.start_offset()), *log.snapshots()]):
            return original(log, offset, last_epoch)

    original = replication.locate
    return [(replication, "locate", locate)]


# Leadership


@bug
def check_quorum_is_off() -> Patches:
    return [(module, "CHECK_QUORUM_FACTOR", 1e9) for module in (quorum, replication)]


# Snapshots and transactions


@bug
def snapshot_beyond_high_watermark() -> Patches:
    original = Controller._maybe_take_snapshot

    def take(self: Controller) -> None:
        for batch in self.node.disk.log.batches_from(self.node.image.end.offset):
            self.node.image.apply(batch)
        original(self)

    return [(Controller, "_maybe_take_snapshot", take)]


@bug
def open_transaction_is_shown() -> Patches:
    original = Image.apply

    def apply(self: Image, batch: Any) -> None:
        original(self, batch)
        for write in self.held or ():
            self.show(write)
        if self.held:
            self.held.clear()

    return [(Image, "apply", apply)]


@bug
def snapshot_inside_a_transaction() -> Patches:
    original = Controller._maybe_take_snapshot

    def take(self: Controller) -> None:
        with patch.object(self.node.image, "held", None):
            original(self)

    return [(Controller, "_maybe_take_snapshot", take)]


@bug
def open_transaction_of_a_predecessor_is_left_open() -> Patches:
    return [(Controller, "_abort_open_transaction", lambda _self: None)]


@bug
def leader_that_overslept_answers_first() -> Patches:
    """A fault of an earlier version of the core; the simulator found it."""

    def on_request(books: Quorum, event: ev.RequestReceived) -> None:
        core.REQUESTS[type(event.request)](books, event.context, event.request)

    return [(core, "EVENTS", core.EVENTS | {ev.RequestReceived: on_request})]


@bug
def answer_of_the_leader_leaves_the_evidence() -> Patches:
    return [(Quorum, "leader_answers", lambda _self: None)]


@bug
def refused_port_alone_is_evidence() -> Patches:
    """A fault of an earlier version; kube-proxy and listeners that are opened anew refuse for a moment."""
    original = Departure.refused

    def refused(self: Departure, now: int) -> bool:
        self.is_connection_lost = True
        return original(self, now)

    return [(Departure, "refused", refused)]


@bug
def early_elections_have_no_bound() -> Patches:
    """A follower that alone loses its connections to the leader asks the others again after each of them."""

    def may_ask(quorum: Quorum, seen: Departure) -> bool:
        return not quorum.may_not_stand and seen.questions < QUESTIONS_MAX

    return [(follower, "_may_ask_early", may_ask)]


@bug
def vote_is_promised_while_the_leader_is_heard() -> Patches:
    """As a follower of before KIP-996: any voter that was cut off for a while unseats the leader."""
    return [(Quorum, "has_leader", property(lambda self: isinstance(self.state, Leader)))]


@bug
def mark_of_an_empty_disk_is_forgotten_at_the_second_start() -> Patches:
    """A bug of an earlier version: a node with an election state beside its empty log counted as a voter."""

    def mark_if_empty(self: SimulatedDisk) -> bool:
        is_empty = not self.log.end_offset() and not self.log.snapshots()
        self.must_fetch_first = is_empty and self.election == NEVER_ELECTED
        return self.must_fetch_first

    return [(SimulatedDisk, "mark_if_empty", mark_if_empty)]


@bug
def silent_voters_count_as_empty() -> Patches:
    return [(Census, "best_end", lambda _self, _others, _now: EMPTY_END)]
