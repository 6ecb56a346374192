"""The state that all parts of the core share: epoch, role, log ends, transitions, and the effects of a step.

`election`, `replication`, `follower` and `snapshot` decide; `Quorum` changes the state (``QuorumState`` of Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from migrator.errors import require
from migrator.raft import effects as fx
from migrator.raft import responses, telling, votes
from migrator.raft.census import EMPTY_END, Census, Word
from migrator.raft.config import EPOCH_LIMIT, RaftConfig
from migrator.raft.departure import Departure
from migrator.raft.messages import EpochOffset, RaftRequest, RaftResponse
from migrator.raft.peers import Peers
from migrator.raft.progress import Replicas, ReplicaState
from migrator.raft.states import (
    NEVER,
    SAME_EPOCH,
    TRANSITIONS,
    Candidate,
    ElectionState,
    Follower,
    Leader,
    Prospective,
    Resigned,
    RoleState,
    Unattached,
)
from migrator.raft.storage import LogView
from migrator.raft.voter_set import DYNAMIC_VERSION, ReplicaKey, VoterSet
from migrator.records.uuid import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from random import Random

CHECK_QUORUM_FACTOR = 1.5
"""A leader that hears no majority for this many fetch time-outs resigns (KIP-595, KAFKA-15489)."""


_FOLLOWED_THE_LOST = (
    "leads a quorum whose majority was lost and recovered (migrator quorum recover), and this controller has followed "
    "replicas that were given up then: it has records that only they had committed. Stop those replicas, empty the "
    "metadata directory of this controller, and format it again"
)


class Quorum:
    """The state of one node. Only this class changes role, epoch or high watermark."""

    def __init__(self, config: RaftConfig, log: LogView, stored: ElectionState, random: Random, now_ms: int) -> None:
        self.config = config
        self.node_id = config.node_id
        self.log = log
        self._static = VoterSet.static(config.voters)
        self.membership = log.membership()
        self.random = random
        self.now = now_ms
        self.peers = Peers(config.request_timeout_ms, config.retry_backoff_ms)
        self.effects: list[fx.Effect] = []
        snapshots = log.snapshots()
        self.high_watermark = snapshots[-1].offset if snapshots else log.start_offset()
        """The largest offset that this node knows to be committed; never falls while the process lives."""
        self.synced_end = log.end_offset()
        self.generation = 0
        self.log_changes = False
        """Whether an effect of this step changes the log: until the next step ``log`` still shows the old one."""
        self.finishing: EpochOffset | None = None
        """A downloaded snapshot that the disk is making durable; it outlives the role."""
        self.is_shutting_down = False
        self.must_fetch_first = config.must_fetch_first
        """Whether this disk began empty, and has not yet held everything that a leader had committed. It may have lost
        records that others count as committed because this disk had them."""
        self.census = Census(config.election_timeout_ms)
        self._is_whole = False
        self.departure = Departure()
        """The signs that the process of this epoch's leader has died."""
        self.early_again_at = now_ms
        """The time before which no further early election begins."""
        self.address_deadline: int | None = None
        """The time until which this node waits for addresses of a majority before it stands for election."""
        self.epoch = max(stored.epoch, log.last_epoch())
        self.state = self._state_at_boot(stored)

    def _state_at_boot(self, stored: ElectionState) -> RoleState:
        """Continue in the role in which the last process ended (``QuorumState.initialize``). A leader continues as
        resigned: unsynced records of its epoch may be lost, and their offsets must not be written again in the same
        epoch."""
        deadline = self.election_deadline()
        if stored.epoch < self.epoch:
            return Unattached(deadline)
        if stored.leader_id == self.node_id and self.may_be_needed:
            return Resigned(self.node_id, deadline, tuple(sorted(self.other_voters())), self.other_voters())
        if stored.voted_id == self.node_id and self.may_be_needed:
            return Candidate(deadline, 1, {self.node_id})
        if stored.leader_id in self.other_voters():
            return Follower(stored.leader_id, self.now + self.config.fetch_timeout_ms)
        return Unattached(deadline, stored.leader_id, stored.voted_id, stored.voted_directory_id)

    # Properties

    @property
    def voter_set(self) -> VoterSet:
        """The voters in force: the last set in the log, committed or not; without one, the configured voters."""
        return self._static if self.membership.voters is None else self.membership.voters

    @property
    def voters(self) -> frozenset[int]:
        """The ids of the voters in force."""
        return self.voter_set.ids

    @property
    def is_dynamic(self) -> bool:
        """Whether the voters are in the log and can change (kraft.version 1)."""
        return self.membership.kraft_version >= DYNAMIC_VERSION

    @property
    def has_fixed_voters(self) -> bool:
        """Whether the configuration names the voters (kraft.version 0). A node with an empty disk and only bootstrap
        servers knows no voters yet: it fetches them from the leader."""
        return not self.is_dynamic and bool(self.config.voters)

    @property
    def is_voter(self) -> bool:
        """Whether this node votes; otherwise it is an observer, which only fetches."""
        return self.voter_set.has(self.node_id, self.config.directory_id)

    @property
    def may_be_needed(self) -> bool:
        """Whether this node stands for election: it is a voter, or its removal is not known to be committed. Without
        that record a majority may need this node's log to elect a leader at all (Raft thesis 4.2.2). A removed node
        does not count its own vote."""
        if self.is_barred:
            return False
        if self.is_voter:
            return True
        if self.membership.offset < self.high_watermark:
            return False
        before = self.log.membership_at(self.high_watermark).voters
        return before is not None and before.has(self.node_id, self.config.directory_id)

    @property
    def must_ask_about_disks(self) -> bool:
        """Whether this voter must ask the others about their disks first, because its own disk began empty."""
        return self.must_fetch_first and not self.config.takes_part_empty and self.is_voter

    @property
    def vote_floor(self) -> EpochOffset | None:
        """The end that a candidate's log has to reach for this node's vote; None while no candidate gets it. A voter
        whose disk began empty votes only while all disks began empty, and then as the voter with the longest log."""
        if not self.must_ask_about_disks:
            return self.log_end()
        best, own = self.census.best_end(self.other_voters(), self.now), self.log_end()
        return own if best is not None and votes.is_up_to_date(own, best) else best

    @property
    def is_barred(self) -> bool:
        """Whether this node must not stand for election because its disk began empty."""
        return self.must_ask_about_disks and self.vote_floor != self.log_end()

    @property
    def waits_for(self) -> dict[int, Word]:
        """The reports of the other voters about their disks, while this node is barred from elections; else empty."""
        return self.census.words(self.other_voters(), self.now) if self.is_barred else {}

    @property
    def epochs_are_used_up(self) -> bool:
        """Whether there is no epoch left to stand for election in; see `EPOCH_LIMIT`."""
        return self.epoch + 1 >= EPOCH_LIMIT

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, None while unknown. A leader that has resigned remains the epoch's leader."""
        return self.state.leader_id

    @property
    def log_is_durable(self) -> bool:
        """Whether the whole log is on disk, so that a fetch may claim its end."""
        return not self.log_changes and self.synced_end == self.log.end_offset()

    @property
    def has_leader(self) -> bool:
        """Whether this node leads, or has heard of its leader within the fetch time-out and has no sign of its end."""
        state = self.state
        if isinstance(state, Follower):
            is_missed = state.leader_ended or state.is_doubted or self.departure.is_evident
            return self.now < state.fetch_deadline and not is_missed
        return isinstance(state, Leader)

    def other_voters(self) -> set[int]:
        """The ids of the voters without this node."""
        return set(self.voters - {self.node_id})

    @property
    def may_not_stand(self) -> bool:
        """Whether this node must not begin an election: it stops, epochs are used up, or ``may_stand`` says no."""
        return self.is_shutting_down or self.epochs_are_used_up or not self.config.may_stand()

    def log_end(self) -> EpochOffset:
        """Epoch of the last record and end offset of the log."""
        return EpochOffset(self.log.last_epoch(), self.log.end_offset())

    def election_deadline(self) -> int:
        """The end of a new random election time-out in [t, 2t); NEVER for an observer that cannot become a voter."""
        if not self.is_voter and not self.is_dynamic:
            return NEVER
        timeout = self.config.election_timeout_ms
        return self.now + timeout + self.random.randrange(max(1, timeout))

    # Effects

    def emit(self, effect: fx.Effect) -> None:
        """Add an effect to this step."""
        self.effects.append(effect)

    def may_hear(self, asker: telling.Asker) -> bool:
        """Whether an answer may tell this node's epoch and leader."""
        return telling.may_hear(self.config.recovered(), self.epoch, asker)

    def refuses(self, asker: telling.Asker | ReplicaKey) -> bool:
        """Whether the asker was given up when the majority was lost."""
        return self.config.recovered().refuses(asker.node_id, asker.directory_id)

    def reply(self, context: Hashable, request: RaftRequest, response: RaftResponse) -> None:
        """Answer a request now."""
        self.answer(request, fx.Reply(context, response))

    def answer(self, request: RaftRequest, effect: fx.Reply | fx.ReadLog | fx.ReadSnapshot) -> None:
        """Answer a request. Every answer passes here, and a sender that must not learn the epoch gets it from none."""
        asker = telling.asker_of(request)
        if not self.may_hear(asker):
            is_lost = telling.is_given_up(self.config.recovered(), self.epoch, asker)
            error = telling.GIVEN_UP if is_lost else effect.response.error
            effect = fx.Reply(effect.context, responses.nothing(request, error))
        self.emit(effect)

    def send(self, peer: int, request: RaftRequest) -> None:
        """Send a request to a peer that is ready."""
        self.emit(fx.Send(peer, self.peers.sent(peer, self.now), request))

    def blame(self, peer: int, reason: str) -> None:
        """Report that a peer broke the protocol, and back off from it."""
        self._part_from(peer, f"broke the protocol: {reason}")

    def keep_committed(self, peer: int, reason: str) -> None:
        """Refuse a leader that wants committed records removed. After the recovery of a lost majority that is no fault
        of the leader: this node followed the replicas that were given up."""
        if telling.may_lack_a_recovery(self.config.recovered(), self.epoch):
            self._part_from(peer, _FOLLOWED_THE_LOST)
        else:
            self.blame(peer, reason)

    def _part_from(self, peer: int, reason: str) -> None:
        self.peers.back_off(peer, self.now)
        self.emit(fx.BlamePeer(peer, reason))

    def append(self, effect: fx.Append | fx.AppendLeaderChange | fx.AppendVoters) -> None:
        """Append to the log, and request the fsync: records count only after it."""
        self.log_changes = True
        self.emit(effect)
        self.emit(fx.RequestSync(self.generation))

    def rewrite(self, effect: fx.TruncateTo | fx.InstallSnapshot, durable_end: int) -> None:
        """Truncate or replace the log. The reports of earlier fsyncs no longer count: they concern the old log."""
        self.log_changes = True
        self.generation += 1
        self.synced_end = durable_end
        self.emit(effect)
        self.emit(fx.RequestSync(self.generation))

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark. A lower offset changes nothing."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.emit(fx.AdvanceHighWatermark(offset))

    def log_is_whole(self) -> None:
        """Everything that a leader has committed is on this node's disk."""
        self.must_fetch_first = False
        if not self._is_whole:
            self._is_whole = True
            self.emit(fx.LogIsWhole())

    def take_census(self) -> None:
        """A voter has said something of its disk. When all disks are empty, the quorum is new, and this node need not
        fetch first."""
        if (
            self.must_ask_about_disks
            and self.log_end() == self.census.best_end(self.other_voters(), self.now) == EMPTY_END
        ):
            self.must_fetch_first = False
            self.emit(fx.QuorumIsNew())

    def prolong(self, follower: Follower) -> None:
        """Begin the fetch time-out anew: the leader is alive, or a slow disk here kept this node from fetching."""
        if not follower.leader_ended:
            follower.fetch_deadline = self.now + self.config.fetch_timeout_ms

    def leader_answers(self) -> None:
        """The leader's process answered, so earlier signs of its end no longer count."""
        self.departure = Departure()

    # Transitions

    def become_unattached(self, epoch: int, leader_id: int | None = None) -> None:
        """Go to an epoch without a leader to follow. A voter keeps its election deadline, so that candidates with
        higher epochs do not delay it. A successor keeps its place in the order. An early election has no deadline."""
        is_early = isinstance(self.state, Prospective) and self.state.early_of is not None
        if isinstance(self.state, Candidate | Prospective | Unattached) and not is_early:
            deadline = self.state.election_deadline
        elif isinstance(self.state, Follower) and self.state.leader_ended:
            deadline = self.state.fetch_deadline
        else:
            deadline = self.election_deadline()
        self._become(epoch, Unattached(deadline, leader_id), ElectionState(epoch, leader_id))

    def vote_for(self, candidate_id: int, directory_id: Uuid) -> None:
        """Give the vote of this epoch. It is durable before the answer is sent. The election time-out begins anew."""
        self._become(
            self.epoch,
            Unattached(self.election_deadline(), None, candidate_id, directory_id),
            ElectionState(self.epoch, None, candidate_id, directory_id),
        )

    def become_prospective(self) -> None:
        """Begin to ask for pre-votes. Nothing changes on disk: epoch, leader and vote stay."""
        before = self.state
        require(self.may_be_needed, f"node {self.node_id} is no voter and can't stand for election")
        retries = before.retries if isinstance(before, Candidate | Prospective) else 0
        after = Prospective(self.election_deadline(), retries, {self.node_id}, leader_id=before.leader_id)
        if isinstance(before, Candidate):
            after.voted_id, after.voted_directory_id = self.node_id, self.config.directory_id
        elif isinstance(before, Unattached | Prospective):
            after.voted_id, after.voted_directory_id = before.voted_id, before.voted_directory_id
        self._become(self.epoch, after, None)

    def ask_early(self, follower: Follower, patience_ms: int) -> None:
        """Ask all but the leader for pre-votes before the fetch time-out: the leader's process seems to have died."""
        leader_id, deadline = follower.leader_id, self.now + patience_ms
        asks = Prospective(deadline, 0, {self.node_id}, {leader_id}, leader_id, early_of=follower)
        self._become(self.epoch, asks, None)

    def give_up_prospects(self, before: Prospective) -> None:
        """No majority would vote for this node now: return to the state before, and ask the leader again."""
        if before.early_of is not None:
            follower = before.early_of
            follower.download = None
            self._become(self.epoch, follower, None)
            self.peers.back_off(follower.leader_id, self.now, before.election_deadline - self.now)
            return
        deadline, leader_id = self.election_deadline(), before.leader_id
        after: RoleState
        if leader_id is None or leader_id == self.node_id:
            after = Unattached(deadline, leader_id, before.voted_id, before.voted_directory_id)
        else:
            after = Follower(leader_id, deadline, is_doubted=True)
        self._become(self.epoch, after, None)

    def leave_election(self, before: Prospective | Candidate | Resigned) -> None:
        """End the election of a node that knows that it is removed. It asks the others for the leader. The vote that it
        gave in this epoch stays given."""
        voted_id: int | None = None
        directory_id = ZERO_UUID
        if isinstance(before, Candidate):
            voted_id, directory_id = self.node_id, self.config.directory_id
        elif isinstance(before, Prospective):
            voted_id, directory_id = before.voted_id, before.voted_directory_id
        after = Unattached(self.election_deadline(), before.leader_id, voted_id, directory_id)
        self._become(self.epoch, after, None)

    def become_candidate(self) -> None:
        """Stand for election in the next epoch, with this node's own vote."""
        require(self.may_be_needed, f"node {self.node_id} is no voter and can't stand for election")
        require(not self.epochs_are_used_up, f"epoch {self.epoch} is the last one")
        retries = self.state.retries + 1 if isinstance(self.state, Candidate | Prospective) else 1
        epoch = self.epoch + 1
        stored = ElectionState(epoch, None, self.node_id, self.config.directory_id)
        self._become(epoch, Candidate(self.election_deadline(), retries, {self.node_id}), stored)

    def become_follower(self, epoch: int, leader_id: int) -> None:
        """Follow the elected leader of an epoch."""
        require(leader_id != self.node_id, f"node {self.node_id} can't follow itself")
        self.address_deadline = None
        follower = Follower(leader_id, self.now + self.config.fetch_timeout_ms)
        self._become(epoch, follower, ElectionState(epoch, leader_id))

    def become_leader(self) -> None:
        """Become the elected leader. That is durable before the first record of the epoch, so that this node does not
        lead the same epoch again after a restart."""
        require(isinstance(self.state, Candidate), "only a candidate becomes leader")
        granting = tuple(sorted(self.state.granted)) if isinstance(self.state, Candidate) else ()
        timeout = self.config.fetch_timeout_ms
        leader = Leader(
            leader_id=self.node_id,
            start_offset=self.log.end_offset(),
            replicas=Replicas(
                {id_: ReplicaState(id_, self.voter_set.key(id_).directory_id, self.now) for id_ in self.other_voters()}
            ),
            check_quorum_deadline=self.now + int(timeout * CHECK_QUORUM_FACTOR),
            begin_deadline=self.now,
        )
        self._become(self.epoch, leader, ElectionState(self.epoch, self.node_id))
        # The voter set that the directories were formatted with is not in the log yet: the first leader writes it.
        is_formatted_set = self.is_dynamic and self.membership.offset < 0
        bootstrap = self.membership if is_formatted_set else None
        self.append(fx.AppendLeaderChange(self.epoch, self.node_id, tuple(sorted(self.voters)), granting, bootstrap))

    def become_resigned(self, successors: tuple[int, ...]) -> None:
        """Stop leading within the epoch. Nothing is persisted: after a restart its leader is resigned anyway."""
        self._become(
            self.epoch, Resigned(self.node_id, self.election_deadline(), successors, self.other_voters()), None
        )

    def _become(self, epoch: int, state: RoleState, stored: ElectionState | None) -> None:
        before, after = self.state, state
        roles = (before.role, after.role)
        require(after.role in TRANSITIONS[before.role], f"no transition from {before.role.value} to {after.role.value}")
        require(
            epoch > self.epoch or (epoch == self.epoch and roles in SAME_EPOCH),
            f"epoch {self.epoch} to {epoch} on the way from {before.role.value} to {after.role.value}",
        )
        known = (before.role, self.epoch, before.leader_id)
        self.epoch, self.state = epoch, state
        if (known[1], known[2]) != (epoch, after.leader_id):
            self.departure = Departure()
        if stored is not None:
            self.emit(fx.PersistElectionState(stored))
        if known != (after.role, epoch, after.leader_id):
            self.emit(fx.RoleChanged(after.role, epoch, after.leader_id))
        self.peers.forget_all()
        if isinstance(before, Leader):
            self._send_away(before)

    def _send_away(self, leader: Leader) -> None:
        """Answer the waiting fetches of a former leader, so that the replicas ask elsewhere."""
        for fetch in leader.parking.take_all():
            self.reply(fetch.context, fetch.request, responses.fetch(self, ErrorCode.not_leader_or_follower))
