"""Checks around each step of a simulated node, beside those of its single effects."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from migrator.raft import events as ev
from migrator.raft.core import RaftNode
from migrator.raft.messages import FetchRequest, VoteRequest
from migrator.raft.states import Role
from migrator.raft.voter_set import VoterSet
from migrator.raft.votes import majority
from tests.simulation import invariants as rules
from tests.simulation.invariants import check
from tests.simulation.planning import keys

if TYPE_CHECKING:
    from tests.simulation.node import SimulatedNode

FETCH_TIMEOUT_MS = 300
CHECK_QUORUM_MS = 1.5 * FETCH_TIMEOUT_MS


def after_event(node: SimulatedNode, raft: RaftNode) -> None:
    log = node.disk.log
    check(rules.snapshot_covers_log_start, log.start_offset(), log.snapshots())
    check(rules.high_watermark_within_log, raft.high_watermark, log.end_offset())
    membership, is_leader = log.membership(), raft.role is Role.LEADER
    if is_leader:
        # Twice: each voter of a majority may have been heard just after the last time-out began.
        check(rules.cut_off_leader_resigns, silence(node), 2 * CHECK_QUORUM_MS / node.clock_rate + 50)
        committed = raft.leader_high_watermark or 0
        check(rules.removed_leader_resigns, is_leader, node.is_voter, membership.offset, committed)


def voters_of(node: SimulatedNode) -> None:
    """The history of the voters says what snapshot and log say."""
    log = node.disk.log
    check(rules.set_is_what_the_log_says, log.membership(), log.scanned_membership())


def is_behind(node: SimulatedNode, request: FetchRequest) -> bool:
    """Whether the asker's log is the beginning of this one: a leader counts no other Fetch as a sign of life. One that
    has nothing gets a snapshot, if there is any."""
    log, offset = node.disk.log, request.fetch_offset
    if offset == 0:
        return log.start_offset() == 0 and not log.snapshots()
    return log.epoch_before(offset) == request.last_fetched_epoch


def silence(node: SimulatedNode) -> float:
    """How long a leader has not heard a majority of its voters, itself included; 0 if it needs no other voter."""
    others = [key for key in keys(node.voter_set) if key.node_id != node.node_id]
    needed = majority(len(node.voter_set)) - node.is_voter
    if not 0 < needed <= len(others):
        return 0.0
    heard = sorted((node.contacts.get(key, 0.0) for key in others), reverse=True)
    return node.world.now - max(node.leader_since, heard[needed - 1])


def is_cut_off(node: SimulatedNode) -> bool:
    """Whether its silence is reason enough for a leader to resign."""
    return silence(node) * node.clock_rate >= CHECK_QUORUM_MS - 5


def before_event(node: SimulatedNode, event: ev.Event) -> None:
    """What it sees of its leader; and a leader that hands over needs a moment: note what it was asked for."""
    if node.raft is not None:
        node.sightings.before(node.raft, event, node.local_time())
    if isinstance(event, ev.Resign):
        node.leaves_epoch = max(node.leaves_epoch, event.epoch)
    elif isinstance(event, ev.Shutdown):
        node.leaves_epoch = math.inf


def resigned(node: SimulatedNode, epoch: int) -> None:
    was_asked = isinstance(node.hearing, ev.AppendFailed) or node.leaves_epoch in {epoch, math.inf}
    removal, committed_end = node.disk.log.membership().offset, node.world.history.end.offset
    check(rules.leader_finishes_its_removal, node.is_voter, removal, committed_end, was_asked or is_cut_off(node))


def stranger(node: SimulatedNode, event: ev.Event, voters: VoterSet, role: Role, epoch: int, was_cut_off: bool) -> None:
    """A Vote of one that is no voter, and the role and epoch that it found."""
    if not isinstance(event, ev.RequestReceived) or not isinstance(event.request, VoteRequest):
        return
    request = event.request
    if node.raft is None or voters.has(request.candidate_id, request.candidate_directory_id):
        return
    if request.candidate_epoch > epoch:
        node.world.count("votes asked for by strangers")
        if role is Role.LEADER and not was_cut_off:
            node.world.count("strangers at a leader")
            check(rules.strangers_unseat_nobody, epoch, node.raft.epoch)


def change(node: SimulatedNode, voters: VoterSet) -> None:
    """A leader is about to append another set."""
    world, before = node.world, node.disk.log.membership()
    known = keys(node.voter_set)
    now = keys(voters)
    check(rules.sets_differ_by_one, known, now, len(voters.voters))
    has_committed = world.history.has_committed_in(node.epoch_said)
    check(rules.changes_follow_a_commit, has_committed, before.offset, world.history.end.offset)
    added, removed = set(now) - set(known), set(known) - set(now)
    if added or removed:  # another entry for a voter is no step
        oldest = world.now - 2 * FETCH_TIMEOUT_MS / node.clock_rate
        live = sum(key == node.key or node.contacts.get(key, -math.inf) >= oldest for key in now)
        check(rules.live_majority_stays, live, len(now))
    if node.planning.is_of_plan:
        target = world.point_at(node.image.end.offset)
        wanted = None if target is None else target.target
        replaced = {world.nodes[key.node_id].key != key for key in removed}
        if True not in replaced:
            check(rules.steps_lead_to_the_target, [key.node_id for key in added | removed], wanted, bool(added))
        if node.key in removed:
            check(rules.leader_leaves_last, [key.node_id for key in now], wanted)
        if world.history.target_epoch < node.epoch_said:
            world.count("plans resumed by another leader")


def takes_quorum_for_new(node: SimulatedNode) -> None:
    """Every voter has said that its log is empty. A vote that went with a lost disk has elected nobody who is left."""
    check(rules.new_quorum_has_lost_nothing, node.committed_at_boot)
    if node.key in node.world.lost:
        node.world.history.forget_votes(node.key)
    node.disk.must_fetch_first = False


def has_whole_log(node: SimulatedNode) -> None:
    """It has all that a leader had committed, and loses its mark for good."""
    node.world.count("empty disks filled", int(node.disk.must_fetch_first is not None))
    node.world.emptied.discard(node.node_id)
    node.disk.must_fetch_first = None
