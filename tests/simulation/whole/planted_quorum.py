"""Bugs on purpose: consensus, in the whole program."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from migrator.node.quorum import runner
from migrator.node.quorum.storage import NodeStorage
from migrator.node.quorum.voter_changes import VoterChanges
from migrator.raft import election, follower, membership, replication, votes
from migrator.raft.departure import Departure
from migrator.raft.peers import Peers
from migrator.raft.quorum import Quorum
from migrator.raft.replication import FetchPosition
from migrator.raft.states import Follower, Leader
from tests.simulation.whole.planting import ALONE, ELECTIONS, Patches, bug


@bug(controllers=5, cut_rate=1)
def half_is_a_majority() -> Patches:
    """Two halves elect a leader each (Elasticsearch 2488: discovery.zen.minimum_master_nodes)."""
    return [(votes, "majority", lambda voters: voters // 2)]


@bug(chaos_seconds=20, writes=4, cut_rate=0.4, kill_rate=0.5)
def vote_without_log_check() -> Patches:
    """A leader that lacks what is committed (MongoDB's protocol version 0, Jepsen 2.6.7)."""
    return [(votes, "is_up_to_date", lambda _candidate, _ours: True)]


@bug(sync_ms_max=20, writes=20)
def leader_counts_unsynced() -> Patches:
    """The leader counts itself before its own fsync (Kafka 3.9 does; its quorum then relies on the others' disks)."""
    original = replication._durable_end

    def durable_end(books: Any, leader: Any, voter: int) -> int | None:
        return books.log.end_offset() if voter == books.node_id else original(books, leader, voter)

    return [(replication, "_durable_end", durable_end)]


@bug(sync_ms_max=20, writes=20)
def follower_tells_what_is_not_on_its_disk() -> Patches:
    """A fetch says that everything before its offset is here for good (Redis-Raft, NATS JetStream: Jepsen)."""
    return [(Quorum, "log_is_durable", property(lambda self: not self.log_changes))]


@bug(cut_rate=1, kill_rate=0.5)
def vote_is_not_persisted() -> Patches:
    """After a restart the same node votes again in the same epoch (Raft, figure 2; ZOOKEEPER-2307)."""
    return [(NodeStorage, "persist_election_state", lambda _self, _state: None)]


@bug(cut_rate=0.5)
def stale_candidates_get_votes_of_this_epoch() -> Patches:
    """The last candidate that asks gets the vote, also after another one (Raft, figure 2)."""
    original = election._grant

    def grant(books: Any, request: Any) -> bool:
        if hasattr(books.state, "voted_id"):
            books.state.voted_id = None
        return original(books, request)

    return [(election, "_grant", grant)]


@bug(controllers=5, writes=20, delay_ms_max=40, kill_rate=0.3, **ALONE)
def records_of_older_epochs_are_committed_by_counting() -> Patches:
    """Committed, and then replaced by another leader (logcabin 44; canonical/raft 220; Raft, figure 8). Each answer to
    a fetch holds one batch, so that followers get the records of older epochs before the first one of this epoch."""

    def update_high_watermark(quorum: Quorum, leader: Leader) -> None:
        ends = [replication._durable_end(quorum, leader, voter) for voter in quorum.voters]
        offset = votes.committed_offset(ends)
        if offset is None or offset <= (leader.high_watermark or 0):
            return
        leader.high_watermark = offset
        quorum.advance_high_watermark(offset)
        replication.answer_parked(quorum, leader)

    return [(replication, "update_high_watermark", update_high_watermark), (runner, "_most", lambda *_: 1)]


@bug(dynamic="yes", observers=2, **ELECTIONS)
def observers_count_for_a_majority() -> Patches:
    """Observers count for commits (learners of etcd and TiKV: both must be left out)."""

    def update_high_watermark(quorum: Quorum, leader: Leader) -> None:
        ends = [replication._durable_end(quorum, leader, voter) for voter in quorum.voters]
        known = [end for end in ends if end is not None]
        known += [entry.end_offset for entry in leader.replicas.observers.values() if entry.end_offset >= 0]
        needed = votes.majority(len(quorum.voters))
        offset = sorted(known, reverse=True)[needed - 1] if len(known) >= needed else None
        if offset is None or offset <= leader.start_offset or offset <= (leader.high_watermark or 0):
            return
        leader.high_watermark = offset
        quorum.advance_high_watermark(offset)
        replication.answer_parked(quorum, leader)

    return [(replication, "update_high_watermark", update_high_watermark)]


@bug(**ALONE)
def logs_are_compared_by_their_length_alone() -> Patches:
    """Other records at the same offsets stay for ever (KIP-101: KAFKA-1211)."""

    def locate(log: Any, offset: int, _last_epoch: int) -> FetchPosition:
        end = log.end_offset()
        found = log.end_of_epoch(log.last_epoch())
        return FetchPosition() if offset <= end else FetchPosition(diverging=found)

    return [(replication, "locate", locate)]


@bug(**ALONE)
def truncation_goes_too_far() -> Patches:
    """Committed records are cut, too (KAFKA-7897: very large truncations after an election)."""
    original = follower.truncation_offset
    return [(follower, "truncation_offset", lambda log, end: max(log.start_offset(), original(log, end) - 3))]


@bug(cut_rate=1, loss=0.2, hang_rate=1, delay_ms_max=40)
def answer_counts_whatever_it_answers() -> Patches:
    """An answer that comes late is taken for the one to the request after it, its twin (etcd 17081: messages that are
    not meant for whoever waits)."""

    def answered(self: Peers, peer: int, _correlation: int) -> bool:
        known = self._peers.get(peer)
        if known is None:
            return False
        known.correlation, known.is_away = None, False
        return True

    return [(Peers, "answered", answered)]


@bug(chaos_seconds=8, minority_stays_dead="yes")
def follower_waits_for_its_leader_for_ever() -> Patches:
    """No voter stands for election when the leader is gone (KAFKA-15489's other half; hangs of many systems)."""

    def prolong(self: Quorum, state: Follower) -> None:
        state.fetch_deadline = self.now + 3_600_000

    return [(Quorum, "prolong", prolong), (Departure, "is_evident", property(lambda _self: False))]


@bug(dynamic="yes", observers=0, change_rate=20, operators=4, controllers=5, cut_rate=1, chaos_seconds=12)
def voters_change_before_the_last_change_is_committed() -> Patches:
    """Two majorities without a common voter (Raft's thesis, 4.1, and the mail of July 2015; atomix/copycat 23). The
    controller's own guard, one request at a time, is away, too."""
    rules = {
        change: tuple(
            rule
            for rule in checks
            if rule not in {membership._own_epoch_is_committed, membership._last_set_is_committed}
        )
        for change, checks in membership.BEFORE.items()
    }

    @asynccontextmanager
    async def only_one(_self: VoterChanges) -> AsyncIterator[None]:
        yield

    return [(membership, "BEFORE", rules), (VoterChanges, "_only_one", only_one)]


@bug(reset_rate=6, sync_ms_max=300, writes=20, chaos_seconds=20)
def answer_of_the_leader_leaves_the_evidence() -> Patches:
    return [(Quorum, "leader_answers", lambda _self: None)]


@bug(kill_rate=0.5, stop_rate=0.5, chaos_seconds=12)
def refused_port_alone_is_evidence() -> Patches:
    """What this program had: kube-proxy, and listeners that are opened anew, refuse for a moment."""
    original = Departure.refused

    def refused(self: Departure, now: int) -> bool:
        self.is_connection_lost = True
        return original(self, now)

    return [(Departure, "refused", refused)]


@bug(minority_stays_dead="yes")
def everybody_has_to_answer() -> Patches:
    """No voter leads while one voter is down."""
    return [(votes, "majority", lambda voters: voters)]
