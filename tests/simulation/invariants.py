"""The rules that must hold after every event: small pure functions over what was seen, numbered as in Raft and KRaft.

Each returns whether it holds; its docstring says what it demands. `check` turns a breach into a `Violation`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import Membership, ReplicaKey, VoterSet
from tests.simulation.batches import Batch
from tests.simulation.history import Point


class Violation(Exception):  # noqa: N818 - it is what the simulator looks for, not an error of it
    """A rule is broken: its name, what it demands and the facts."""

    def __init__(self, rule: str, demand: str, facts: object) -> None:
        super().__init__(f"{rule}: {demand} {facts}")
        self.rule = rule


def check(rule: Callable[..., bool], *facts: object) -> None:
    """:raises Violation: when ``rule(*facts)`` is false."""
    if not rule(*facts):
        raise Violation(rule.__name__, " ".join((rule.__doc__ or "").split()), facts)


# 1. Elections


def one_leader_per_epoch(first_leader: ReplicaKey, node: ReplicaKey) -> bool:
    """Election safety (Raft 5.2): an epoch has at most one leader, across restarts."""
    return first_leader == node


def one_vote_per_epoch(first_candidate: ReplicaKey, candidate: ReplicaKey) -> bool:
    """A voter gives at most one vote in an epoch, across restarts (Raft 5.2)."""
    return first_candidate == candidate


def leader_has_a_majority(votes: int, voters: int) -> bool:
    """A leader has the votes of a majority in its own epoch (Raft 5.2)."""
    return 2 * votes > voters


def epochs_never_fall(before: int, after: int) -> bool:
    """A node's epoch never falls, across restarts: what it said in an epoch is durable first."""
    return after >= before


def barred_never_lead(is_barred: bool) -> bool:
    """A candidate that the hook refuses gets no vote and so never leads."""
    return not is_barred


def new_quorum_has_lost_nothing(committed_at_boot: int) -> bool:
    """No voter takes the quorum for new if anything had been committed when its process began."""
    return committed_at_boot == 0


def leader_is_missed_for_a_reason(is_over: bool, is_evident: bool) -> bool:
    """A follower asks for an election, or promises its vote for one, only if its leader has ended its epoch or has not
    answered for a fetch time-out, or if since the leader's last answer an established connection to it broke and new
    ones were refused twice. So a leader that a majority follows is not unseated by an early election.

    A process that began as no follower has had no answer: its log may not name the leader as a voter. When the others
    refuse its own question, it follows the leader that its disk names, by hearsay, and keeps nobody from its vote
    before that one answers, as when it was unattached."""
    return is_over or is_evident


def one_early_election_in_a_fetch_time_out(since_ms: float, timeout_ms: int) -> bool:
    """A follower whose connections to a live leader break again and again asks the others at most once in each fetch
    time-out, so it does not keep them busy (ADR 46)."""
    return since_ms >= timeout_ms


def one_fetch_at_a_time(is_over: bool) -> bool:
    """A follower fetches again only when its last fetch is answered or its time is over: one answer is never taken for
    the answer to another fetch."""
    return is_over


# 2, 3. Logs


def voters_are_in_the_log(named_at: int, end: int) -> bool:
    """Who votes is in the log: when it is cut, so is a voter set that was not committed."""
    return named_at < end


def leader_only_appends(is_leader: bool) -> bool:
    """A leader never removes from its log or replaces it (Raft 5.3)."""
    return not is_leader


def logs_match(first: tuple[int, int], written: tuple[int, int]) -> bool:
    """Log matching (Raft 5.3): the same offset and epoch hold the same records, after the same predecessor."""
    return first == written


# 4, 5. Committed records


def leader_is_complete(committed_end: EpochOffset, log_end: int, epoch_there: int | None, log_start: int) -> bool:
    """Leader completeness (Raft 5.4): a new leader's log holds every record that was committed in an earlier epoch."""
    return committed_end.offset <= log_start or (committed_end.offset <= log_end and epoch_there == committed_end.epoch)


def same_record_everywhere(committed: Batch | None, applied: Batch) -> bool:
    """State machine safety (Raft 5.4.3): every node applies the same record at an offset."""
    return committed is not None and committed.key == applied.key


def committed_is_on_majority(copies: int, voters: int) -> bool:
    """What counts as committed is on the disks (fsynced) of a majority of the voters that were in force when the high
    watermark moved (R4 where voters change), always; of a wiped disk what it had counts."""
    return 2 * copies > voters


# 6. High watermark


def high_watermark_rises(before: int, after: int) -> bool:
    """A node's high watermark never falls while its process lives."""
    return after > before


def high_watermark_within_log(high_watermark: int, log_end: int) -> bool:
    """A high watermark is never beyond the log's end."""
    return high_watermark <= log_end


def leader_commits_own_epoch(epoch: int, epoch_of_last_committed: int | None) -> bool:
    """A leader commits older epochs' records only with one of its own behind them (Raft 5.4.2, Figure 8)."""
    return epoch_of_last_committed == epoch


# 7. Loss


def no_truncation_of_committed(removed: Collection[tuple[int, int]], committed: Collection[tuple[int, int]]) -> bool:
    """No committed record is ever truncated."""
    return not set(removed) & set(committed)


def truncates_above_high_watermark(offset: int, high_watermark: int) -> bool:
    """No node truncates below the high watermark that it knows."""
    return offset >= high_watermark


def acknowledged_is_visible(acknowledged: Collection[int], visible: Collection[int]) -> bool:
    """A write whose client got its answer is there for ever."""
    return set(acknowledged) <= set(visible)


# 8. Snapshots


def snapshot_is_committed(snapshot_id: EpochOffset, high_watermark: int) -> bool:
    """A snapshot never reaches beyond the high watermark."""
    return snapshot_id.offset <= high_watermark


def snapshot_is_replay(snapshot_id: EpochOffset, digest: int, point: Point | None) -> bool:
    """A snapshot equals the replay of the log up to its end, and is never taken inside a transaction."""
    return point is not None and (snapshot_id.epoch, digest, False) == (point.epoch, point.digest, point.in_transaction)


def snapshot_covers_log_start(start: int, snapshots: Sequence[EpochOffset]) -> bool:
    """A log that doesn't begin at 0 begins at the end of a snapshot that is there."""
    return start == 0 or any(snapshot.offset == start for snapshot in snapshots)


# 9. Image


def image_shows_whole_transactions(digest: int, point: Point | None) -> bool:
    """No reader sees a part of a transaction, or anything else than the committed log up to the image's offset says."""
    return point is not None and digest == point.digest


# 11. Isolation


def cut_off_leader_resigns(silence_ms: float, bound_ms: float) -> bool:
    """Check quorum: a leader that a majority does not reach resigns, so it serves no old data."""
    return silence_ms <= bound_ms


# Liveness, only after everything has healed


def progress_after_healing(elapsed_ms: float, bound_ms: float) -> bool:
    """Once faults end, all nodes soon follow one leader, have a new write committed and (R10) the last
    plan has ended."""
    return elapsed_ms <= bound_ms


# The core's contract


def every_request_gets_one_answer(is_known: bool) -> bool:
    """A request that a node heard gets exactly one answer (or none when its process ended)."""
    return is_known


# Voters that change (KIP-853); R1 to R11 of the sheet about dynamic quorums. R6, only the replica of that very disk
# counts, is in the counting of votes and copies: by key. R10, a plan ends, is part of `progress_after_healing`.


def sets_differ_by_one(before: Collection[ReplicaKey], after: Collection[ReplicaKey], entries: int) -> bool:
    """R1: consecutive sets differ by one replica at most, and name each id once."""
    return len(set(before) ^ set(after)) <= 1 and len({key.node_id for key in after}) == entries and entries > 0


def changes_follow_a_commit(has_committed: bool, last_change: int, committed_end: int) -> bool:
    """R2: no change before the leader's epoch has committed anything, nor over a change that is not committed."""
    return has_committed and 0 <= last_change < committed_end


def set_is_what_the_log_says(in_force: Membership, scanned: Membership) -> bool:
    """R3: the set in force is that of the last record about voters in snapshot and log."""
    return in_force == scanned


def snapshot_has_the_voters_of_its_offset(voters: VoterSet | None, point: Point | None) -> bool:
    """R3: a snapshot names the voters that the committed log names up to its offset, not later ones."""
    return point is not None and (None if voters is None else tuple(voters.voters)) == point.voters


def leader_leaves_last(left: Collection[int], target: Collection[int] | None) -> bool:
    """A plan takes its leader out of the set when nothing else is left to do."""
    return target is not None and set(left) == set(target)


def core_goes_by_the_log(core: VoterSet, log: VoterSet) -> bool:
    """R3: the core counts the voters that the log named when the step began."""
    return core == log


def removed_leader_resigns(leads: bool, is_voter: bool, removal: int, high_watermark: int) -> bool:
    """R5: a leader outside its set leads on until that set is committed, and not a step longer."""
    return is_voter or not leads or removal >= high_watermark


def leader_finishes_its_removal(is_voter: bool, removal: int, committed_end: int, has_a_reason: bool) -> bool:
    """R5: a leader that removes itself does not resign before that is committed, unless for another reason."""
    return is_voter or removal < committed_end or has_a_reason


def only_voters_stand(is_voter: bool, removal: int, high_watermark: int) -> bool:
    """R6: a node that stands for election or leads is a voter, on this disk, by its own log; or its removal is not
    known to be committed."""
    return is_voter or removal >= high_watermark


def targets_agree(target: tuple[int, ...] | None, committed: tuple[int, ...] | None) -> bool:
    """R7: at one offset all images have the same target."""
    return target == committed


def live_majority_stays(live: int, voters: int) -> bool:
    """R8: of the next voters, those that are live now are a majority."""
    return 2 * live > voters


def steps_lead_to_the_target(changed: Collection[int], target: tuple[int, ...] | None, is_add: bool) -> bool:
    """R9: a step of a plan leads to the target that is committed now."""
    return target is not None and all((node in target) == is_add for node in changed)


def waits_for_addresses_are_bounded(is_told: bool, lacks_majority: bool, left_ms: int, limit_ms: int) -> bool:
    """Whose addresses are missing is said once, only of a majority, and waited for at most one election time-out."""
    return not is_told and lacks_majority and left_ms <= limit_ms


def strangers_unseat_nobody(epoch_before: int, epoch_after: int) -> bool:
    """R11: a leader that a majority hears goes to no other epoch for one that is no voter of its set."""
    return epoch_before == epoch_after
