"""Changes of the voters: the leader's checks and records, and the work of every node when the voters have changed.

The voters change one at a time, so that each majority of the old set shares a voter with each majority of the new one.
The new set counts from its append on (Raft thesis 4.1; KIP-853). The order of the checks is that of Kafka 3.9
(``AddVoterHandler``, ``RemoveVoterHandler``, ``UpdateVoterHandler``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import replication
from migrator.raft.events import ChangeVoters
from migrator.raft.quorum import Quorum
from migrator.raft.states import Follower, Leader, Unattached
from migrator.raft.voter_changes import AddVoter, Refusal, RemoveVoter, UpdateVoter, UpgradeVoters, VoterChange
from migrator.raft.voter_set import DYNAMIC_VERSION, ReplicaKey, VoterSet
from migrator.records.uuid import ZERO_UUID

CAUGHT_UP_WITHIN_MS = 3_600_000
"""An observer may become a voter when it has fetched within this time and has been at the log's end once
(``LeaderState.isReplicaCaughtUp``)."""

TIMED_OUT = "Request timed out "
"""Kafka begins a refusal with this when it ends by itself. Refusals that Kafka has, too, are in Kafka's words."""
TRY_AGAIN = " Try again."
"""A refusal that only this program has ends with this when it ends by itself."""

Rule = Callable[[Quorum, Leader, Any], Refusal | None]


def _key(change: AddVoter | UpdateVoter) -> ReplicaKey:
    return ReplicaKey(change.voter.voter_id, change.voter.voter_directory_id)


def _keys(quorum: Quorum) -> str:
    return f"[{', '.join(str(quorum.voter_set.key(voter_id)) for voter_id in sorted(quorum.voters))}]"


def _aborted(change: AddVoter | UpdateVoter) -> str:
    return f"Aborted {'add' if isinstance(change, AddVoter) else 'update'} voter operation for {_key(change)}"


def _own_epoch_is_committed(_quorum: Quorum, leader: Leader, _change: VoterChange) -> Refusal | None:
    """Without this rule two leaders could each append a change to the same old set, and these two new sets might share
    no majority (the fault in Raft's thesis, found in 2015)."""
    if leader.high_watermark is None:
        waiting = "waiting for leader to establish HWM and fence previous voter changes"
        return Refusal(ErrorCode.request_timed_out, TIMED_OUT + waiting)
    return None


def _is_dynamic(quorum: Quorum, _leader: Leader, change: VoterChange) -> Refusal | None:
    if quorum.is_dynamic:
        return None
    doing = {AddVoter: "adding", RemoveVoter: "removing"}.get(type(change), "updating")
    message = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
    return Refusal(ErrorCode.unsupported_version, message)


def _last_set_is_committed(quorum: Quorum, leader: Leader, _change: VoterChange) -> Refusal | None:
    """Ask the log: it may hold a set that the core notes only in the next step."""
    offset = quorum.log.membership().offset
    committed = leader.high_watermark or 0
    if 0 <= offset < committed:
        return None
    waiting = f"waiting for voters to commit the latest voter change at {offset} with HWM {committed}"
    return Refusal(ErrorCode.request_timed_out, TIMED_OUT + waiting)


def _is_after_every_shown_end(quorum: Quorum, leader: Leader, change: VoterChange) -> Refusal | None:
    """A running stock voter (3.9, 4.1) ignores records about voters below the highest end that its log ever had. So the
    record has to come after every end that a voter has shown, even if that voter's log differs from ours."""
    keys = {(voter.voter_id, voter.voter_directory_id) for voter in changed(quorum.voter_set, change).voters}
    shown = max(
        (entry.shown_end for entry in leader.replicas.all() if (entry.replica_id, entry.shown_directory) in keys),
        default=-1,
    )
    lacking = shown - quorum.log.end_offset()
    if lacking <= 0:
        return None
    what = f"A voter has shown a log up to offset {shown}. The leader's log has to get there first.{TRY_AGAIN}"
    return Refusal(ErrorCode.request_timed_out, what, lacking_records=lacking)


def _listeners_have_names(_quorum: Quorum, _leader: Leader, change: AddVoter | UpdateVoter) -> Refusal | None:
    """A record with a nameless listener ends Kafka's process, at each start anew (``ListenerName.normalised``). A name
    of characters that Java's ``String.trim`` removes counts as none."""
    voter = change.voter
    if all(any(character > " " for character in at.name) for at in voter.endpoints):
        return None
    return Refusal(ErrorCode.invalid_request, f"A listener of voter {voter.voter_id} has no name.")


def _is_new(quorum: Quorum, _leader: Leader, change: AddVoter) -> Refusal | None:
    if change.voter.voter_id not in quorum.voters:
        return None
    return Refusal(
        ErrorCode.duplicate_voter,
        f"The voter id for {_key(change)} is already part of the set of voters {_keys(quorum)}. Remove it before the "
        "same id joins with another disk.",
    )


def _is_not_given_up(quorum: Quorum, _leader: Leader, change: AddVoter) -> Refusal | None:
    if not quorum.refuses(_key(change)):
        return None
    return Refusal(
        ErrorCode.invalid_request,
        f"{_key(change)} was given up when the majority was lost (migrator quorum recover). Empty its directory and "
        "format it again: with a new directory id it can join.",
    )


def _range_fits(quorum: Quorum, _leader: Leader, change: AddVoter | UpdateVoter) -> Refusal | None:
    can, version = change.voter.k_raft_version_feature, quorum.membership.kraft_version
    if can.min_supported_version <= version <= can.max_supported_version:
        return None
    span = f"(min: {can.min_supported_version}, max: {can.max_supported_version})"
    return Refusal(
        ErrorCode.invalid_request,
        f"{_aborted(change)} since the kraft.version range {span} doesn't support the finalized version {version}",
    )


def _has_caught_up(quorum: Quorum, leader: Leader, change: AddVoter) -> Refusal | None:
    key = (change.voter.voter_id, change.voter.voter_directory_id)
    found = leader.replicas.observers.get(key)
    if found is not None and found.last_caught_up_ms >= 0 and quorum.now - found.last_fetch_ms < CAUGHT_UP_WITHIN_MS:
        return None
    return Refusal(ErrorCode.request_timed_out, f"{_aborted(change)} since it is lagging behind")


def _may_go(quorum: Quorum, _leader: Leader, change: RemoveVoter) -> Refusal | None:
    key = change.key
    is_there = key.node_id in quorum.voters and quorum.voter_set.key(key.node_id) == key
    if is_there and len(quorum.voters) > 1:
        return None
    why = "It is the only voter" if is_there else "It is no voter on that disk"
    return Refusal(
        ErrorCode.voter_not_found, f"Cannot remove voter {key} from the set of voters {_keys(quorum)}. {why}."
    )


def _is_there(quorum: Quorum, _leader: Leader, change: UpdateVoter) -> Refusal | None:
    voter = change.voter
    if quorum.voter_set.has(voter.voter_id, voter.voter_directory_id):
        return None
    return Refusal(ErrorCode.voter_not_found, f"Node {voter.voter_id} is no voter on that disk.")


def _is_static(quorum: Quorum, _leader: Leader, _change: UpgradeVoters) -> Refusal | None:
    if not quorum.is_dynamic:
        return None
    version = quorum.membership.kraft_version
    return Refusal(ErrorCode.invalid_update_version, f"The voters are in the log already: kraft.version is {version}.")


def _names_the_configured(quorum: Quorum, _leader: Leader, change: UpgradeVoters) -> Refusal | None:
    if change.voters.ids == quorum.voters:
        return None
    return Refusal(
        ErrorCode.invalid_request, f"The voters are {sorted(quorum.voters)}, not {sorted(change.voters.ids)}."
    )


def _all_can_change(_quorum: Quorum, leader: Leader, change: UpgradeVoters) -> Refusal | None:
    for voter in change.voters.voters:
        can, entry = voter.k_raft_version_feature, leader.replicas.voters.get(voter.voter_id)
        if not can.min_supported_version <= DYNAMIC_VERSION <= can.max_supported_version:
            what = f"supports kraft.version {can.min_supported_version} to {can.max_supported_version}"
        elif voter.voter_directory_id == ZERO_UUID:
            what = "has not told the id of its directory: it has to fetch from this leader first"
        elif entry is not None and entry.shown_directory != voter.voter_directory_id:
            what = "has another directory than a moment ago"
        elif not voter.endpoints:
            what = "has no address"
        else:
            continue
        return Refusal(ErrorCode.invalid_update_version, f"Voter {voter.voter_id} {what}.")
    return None


ALWAYS: tuple[Rule, ...] = (_own_epoch_is_committed, _is_dynamic, _last_set_is_committed, _is_after_every_shown_end)
BEFORE: dict[type, tuple[Rule, ...]] = {
    AddVoter: (_listeners_have_names, _is_not_given_up, *ALWAYS, _is_new),
    RemoveVoter: (*ALWAYS, _may_go),
    UpdateVoter: (_listeners_have_names, *ALWAYS, _range_fits, _is_there),
    UpgradeVoters: (
        _own_epoch_is_committed,
        _is_static,
        _names_the_configured,
        _all_can_change,
        _is_after_every_shown_end,
    ),
}
"""The checks before the new voter is asked for its versions."""
AFTER: dict[type, tuple[Rule, ...]] = {AddVoter: (_range_fits, _has_caught_up)}
"""The checks after the new voter has answered which versions it supports."""


def why_not(quorum: Quorum, change: VoterChange) -> Refusal | None:
    """Why a change is refused, by the checks of `BEFORE`; None when it is not."""
    return _first_refusal(quorum, change, BEFORE[type(change)])


def change_voters(quorum: Quorum, event: ChangeVoters) -> None:
    """Append the changed set, or refuse."""
    change, kind = event.change, type(event.change)
    refusal = _first_refusal(quorum, change, BEFORE[kind] + AFTER.get(kind, ()))
    if refusal is not None:
        quorum.emit(fx.VotersRefused(refusal))
    else:
        version = DYNAMIC_VERSION if isinstance(change, UpgradeVoters) else None
        quorum.append(fx.AppendVoters(quorum.epoch, changed(quorum.voter_set, change), version))
        if isinstance(quorum.state, Leader):
            replication.answer_parked(quorum, quorum.state)


def changed(voters: VoterSet, change: VoterChange) -> VoterSet:
    if isinstance(change, RemoveVoter):
        return voters.without(change.key.node_id)
    if isinstance(change, UpgradeVoters):
        return change.voters
    return voters.with_voter(change.voter)


def _first_refusal(quorum: Quorum, change: VoterChange, rules: tuple[Rule, ...]) -> Refusal | None:
    leader = quorum.state
    if not isinstance(leader, Leader) or leader.handover is not None or quorum.is_shutting_down:
        return Refusal(ErrorCode.not_leader_or_follower, "This controller does not lead.")
    return next((refusal for rule in rules if (refusal := rule(quorum, leader, change)) is not None), None)


# The work of every node


def follow_log(quorum: Quorum) -> None:
    """Note the voters that the log names now. Each step begins with this."""
    found = quorum.log.membership()
    if found is quorum.membership:
        return
    was_voter, quorum.membership = quorum.is_voter, found
    quorum.emit(fx.MembershipChanged(found))
    state = quorum.state
    if isinstance(state, Leader):
        state.replicas.reconfigure(quorum.voter_set, quorum.node_id, quorum.now)
        state.fetched &= quorum.voters
        replication.watch_majority(quorum, state)  # until now this node was the sole voter, without check quorum
    elif quorum.is_voter and not was_voter and isinstance(state, Follower | Unattached):
        _begin_to_vote(quorum, state)


def _begin_to_vote(quorum: Quorum, state: Follower | Unattached) -> None:
    """An observer that became a voter begins the wait of a voter: its deadline as an observer means something else."""
    if isinstance(state, Unattached):
        state.election_deadline = quorum.election_deadline()
    else:
        quorum.prolong(state)
