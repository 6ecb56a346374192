"""Bugs on purpose in what concerns changing voters, numbered as in the list of known mistakes (KIP-853, KIP-642)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from migrator.errors import require
from migrator.raft import core, election, learning, membership, messages, planner, replication, votes
from migrator.raft.messages import VoteRequest
from migrator.raft.progress import Replicas, ReplicaState
from migrator.raft.quorum import Quorum
from migrator.raft.states import Leader
from migrator.raft.voter_changes import AddVoter, RemoveVoter
from migrator.raft.voter_set import VoterHistory, VoterSet
from migrator.records.uuid import Uuid
from tests.simulation.batches import Batch, Target
from tests.simulation.disk import SimulatedLog
from tests.simulation.image import Image
from tests.simulation.planning import Planning

Patches = list[tuple[object, str, object]]
VOTER_BUGS: dict[str, Callable[[], Patches]] = {}


def bug(plant: Callable[[], Patches]) -> Callable[[], Patches]:
    """Register a bug under its function's name."""
    VOTER_BUGS[plant.__name__] = plant
    return plant


def _without(*rules: Any) -> Patches:
    left = {kind: tuple(rule for rule in known if rule not in rules) for kind, known in membership.BEFORE.items()}
    return [(membership, "BEFORE", left)]


@bug
def v01_change_before_a_commit_of_the_own_epoch() -> Patches:
    original = membership._last_set_is_committed

    def is_committed(books: Quorum, leader: Leader, change: Any) -> Any:
        return original(books, replace(leader, high_watermark=books.high_watermark), change)

    own = membership._own_epoch_is_committed
    left = {
        kind: tuple(is_committed if rule is original else rule for rule in known if rule is not own)
        for kind, known in membership.BEFORE.items()
    }
    return [(membership, "BEFORE", left)]


@bug
def v02_change_over_an_uncommitted_one() -> Patches:
    """Also what is left of bug 20 in the core: a change whose asker went away is forgotten while it is pending."""
    return _without(membership._last_set_is_committed)


@bug
def v03_set_is_kept_after_truncation() -> Patches:
    return [(VoterHistory, "truncate_to", lambda _self, _offset: None)]


@bug
def v04_records_after_a_truncation_are_not_read() -> Patches:
    """What stock replicas do until they start again."""
    original, read_voters = SimulatedLog._note, SimulatedLog.read_voters
    highest: WeakKeyDictionary[SimulatedLog, int] = WeakKeyDictionary()

    def note(self: SimulatedLog, batch: Batch) -> None:
        if batch.base_offset >= highest.get(self, 0):
            original(self, batch)
        highest[self] = max(highest.get(self, 0), batch.end_offset)

    def boot(self: SimulatedLog) -> None:
        highest.pop(self, None)
        read_voters(self)

    return [(SimulatedLog, "_note", note), (SimulatedLog, "read_voters", boot)]


@bug
def v05_set_is_in_force_when_committed() -> Patches:
    original = membership.follow_log

    def follow_log(books: Quorum) -> None:
        original(books)
        books.membership = books.log.membership_at(max(books.high_watermark, 3))

    return [(membership, "follow_log", follow_log)]


def _commit(books: Quorum, leader: Leader, ends: list[int | None]) -> None:
    offset = votes.committed_offset(ends)
    if offset is not None and offset > leader.start_offset and offset > (leader.high_watermark or 0):
        leader.high_watermark = offset
        books.advance_high_watermark(offset)
        replication.answer_parked(books, leader)


@bug
def v06_old_majority_commits() -> Patches:
    def update(books: Quorum, leader: Leader) -> None:
        voters = books.log.membership_at(books.high_watermark).voters or books.voter_set
        known = leader.replicas.voters
        followers = {voter: known[voter].end_offset if voter in known else None for voter in voters.ids}
        _commit(books, leader, [books.synced_end if v == books.node_id else end for v, end in followers.items()])

    return [(replication, "update_high_watermark", update)]


@bug
def v07_leader_that_removes_itself_counts_itself() -> Patches:
    def update(books: Quorum, leader: Leader) -> None:
        ends = [replication._durable_end(books, leader, voter) for voter in books.voters - {books.node_id}]
        _commit(books, leader, [*ends, books.synced_end])

    return [(replication, "update_high_watermark", update)]


@bug
def v08_removed_leader_resigns_before_the_commit() -> Patches:
    return [(replication, "is_removed", lambda books, _leader: not books.is_voter)]


@bug
def v08_removed_leader_never_resigns() -> Patches:
    return [(replication, "is_removed", lambda _books, _leader: False)]


@bug
def v09_directory_of_voters_is_ignored() -> Patches:
    return [(VoterSet, "has", lambda self, node_id, _directory: node_id in self.ids)]


@bug
def v10_one_voter_takes_the_place_of_another() -> Patches:
    original = membership.changed

    def changed(voters: VoterSet, change: Any) -> VoterSet:
        after = original(voters, change)
        is_swap = isinstance(change, AddVoter) and len(after) > len(voters) > 1
        return after.without(max(voters.ids)) if is_swap else after

    return [(membership, "changed", changed)]


@bug
def v11_two_voters_at_once() -> Patches:
    original = membership.changed

    def changed(voters: VoterSet, change: Any) -> VoterSet:
        after = original(voters, change)
        return after.without(max(after.ids)) if isinstance(change, RemoveVoter) and len(after) > 1 else after

    return [(membership, "changed", changed)]


@bug
def v12_snapshot_has_the_newest_set() -> Patches:
    return [(SimulatedLog, "membership_at", lambda self, _end_offset: self.membership())]


@bug
def v13_voters_in_snapshots_are_ignored_at_boot() -> Patches:
    def read_voters(self: SimulatedLog) -> None:
        self._voters = VoterHistory(self.bootstrap)
        for batch in self.batches:
            self._note(batch)

    return [(SimulatedLog, "read_voters", read_voters)]


@bug
def v14_target_is_in_no_snapshot() -> Patches:
    original = Image.to_bytes
    return [(Image, "to_bytes", lambda self: bytes(4) + original(self)[4:])]


@bug
def v15_uncommitted_target_is_acted_on() -> Patches:
    def target(self: Planning) -> tuple[int, ...] | None:
        found = self.node.image.target
        for batch in self.node.disk.log.batches_from(self.node.image.end.offset):
            for record in batch.records:
                found = record.nodes if isinstance(record, Target) else found
        return found

    return [(Planning, "target", target)]


@bug
def v16_cancelled_plan_goes_on() -> Patches:
    last: WeakKeyDictionary[Planning, tuple[int, ...]] = WeakKeyDictionary()

    def target(self: Planning) -> tuple[int, ...] | None:
        found = self.node.image.target
        if found is not None:
            last[self] = found
        return last.get(self)

    return [(Planning, "target", target)]


@bug
def v17_silent_node_is_added() -> Patches:
    original = planner.seen

    def seen(*args: Any) -> planner.Replica:
        return replace(original(*args), is_live=True, is_caught_up=True)

    return [(planner, "seen", seen)]


@bug
def v18_last_live_majority_is_removed() -> Patches:
    return [(planner, "_is_safe", lambda _view, _voters: True)]


@bug
def v19_late_answer_to_begin_ends_the_leader() -> Patches:
    def handle(books: Quorum, peer: int, _response: Any) -> None:
        require(peer in books.voters, f"unexpected acknowledgement from {peer}, which is no voter")

    return [(core, "RESPONSES", core.RESPONSES | {messages.BeginQuorumEpochResponse: handle})]


@bug
def v21_leader_leaves_first() -> Patches:
    def order(view: planner.PlannerView, key: Any) -> tuple[object, ...]:
        return key != view.own, key.node_id

    others = property(lambda self: self.to_remove)
    return [(planner, "_leaving_order", order), (planner.Plan, "others_to_remove", others)]


@bug
def v22_vote_of_a_stranger_unseats_a_leader() -> Patches:
    def may_stand(_books: Quorum, _request: VoteRequest) -> bool:
        return True

    return [(election, "_may_stand", may_stand)]


@bug
def v23_other_disk_counts_before_it_is_added() -> Patches:
    original = Replicas.find

    def find(self: Replicas, replica_id: int, directory_id: Uuid, now: int, end_offset: int) -> ReplicaState | None:
        return self.voters.get(replica_id) or original(self, replica_id, directory_id, now, end_offset)

    return [(Replicas, "find", find)]


@bug
def candidate_waits_for_addresses_for_ever() -> Patches:
    original = election._waits_for_addresses

    def waits(books: Quorum) -> bool:
        return original(books) or books.address_deadline is not None

    return [(election, "_waits_for_addresses", waits)]


@bug
def candidate_waits_anew_at_each_look() -> Patches:
    original = election._waits_for_addresses

    def waits(books: Quorum) -> bool:
        books.address_deadline = None
        return original(books)

    return [(election, "_waits_for_addresses", waits)]


@bug
def removed_voter_stands_no_more_although_it_is_needed() -> Patches:
    """A fault of an earlier version of the core; the simulator found it."""
    return [(Quorum, "may_be_needed", Quorum.is_voter)]


@bug
def observer_stays_with_the_bootstrap_servers() -> Patches:
    """What an earlier version of the core did; the simulator found it (KAFKA-19354 in stock)."""
    return [(learning, "_go_back_to_leader", lambda *_args: None)]


@bug
def empty_node_follows_nobody() -> Patches:
    """A fault of an earlier version of the core; the simulator found it."""
    return [(Quorum, "has_fixed_voters", property(lambda self: not self.is_dynamic))]
