"""Blind events for the core: what is really sent, in any order and number, and what nobody of the quorum would send.

With ``forges`` no message can be trusted, and only one thing is asked: no controller is stopped by it. Without, all
messages are those that the nodes have sent, late, doubled or lost, and the quorum has to stay safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft import messages as m
from migrator.raft.messages import EpochOffset
from migrator.raft.recovery import EPOCH_STEP
from migrator.raft.refused import Recovered
from migrator.raft.states import Role
from migrator.raft.voter_changes import AddVoter, RemoveVoter, UpdateVoter, UpgradeVoters
from migrator.raft.voter_set import DYNAMIC_VERSION, Membership, ReplicaKey, VoterSet
from migrator.records.uuid import ZERO_UUID, Uuid
from tests.raft.support.cluster import CLUSTER_ID, Cluster, Member
from tests.simulation.batches import BatchStore
from tests.simulation.planning import entry

EVENTS = 300
ERRORS = tuple(ErrorCode)
NONE = ErrorCode.none
DISKS = (ZERO_UUID, Uuid(b"some other disk."))


class BlindMember(Member):
    """Its snapshots are finished when somebody says so, and a batch that does not fit is refused."""

    def blind(self) -> None:
        self.finishing: list[fx.FinishSnapshot] = []
        self.high = -1
        """The highest high watermark of this life."""

    def _take(self, effect: fx.Append) -> None:
        known = self.cluster.batches.decode(effect.batches)
        for number, batch in enumerate(known):
            if not self.log.fits(batch) or batch.epoch > self.raft.epoch:
                if number == 0:
                    self._soon.append(ev.AppendFailed())
                return
            self.log.append(batch)

    def _hold(self, effect: fx.FinishSnapshot) -> None:
        self.finishing.append(effect)

    def _advance(self, effect: fx.AdvanceHighWatermark) -> None:
        assert effect.offset > self.high, "a high watermark rises"
        self.high = effect.offset

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        **Member._HANDLERS,
        fx.Append: _take,
        fx.FinishSnapshot: _hold,
        fx.AdvanceHighWatermark: _advance,
    }


class BlindQuorum:
    """One seed."""

    def __init__(self, seed: int, *, forges: bool) -> None:
        self.random = random = Random(seed)
        self.forges = forges
        voters, observers = random.randint(1, 5), random.randint(0, 1)
        dynamic = random.random() < 0.6
        self.cluster = cluster = Cluster(
            voters,
            observers,
            dynamic=dynamic,
            disks=random.random() < 0.5,
            asks_for_pre_votes=random.random() < 0.5,
            asks_for_pre_votes_once_dynamic=random.random() < 0.5,
        )
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[Any, ...]] = {}
        self.taken: dict[EpochOffset, Membership] = {}
        """The voters of each snapshot, also when its maker has deleted it before another node has it whole."""
        for node_id, member in cluster.members.items():
            member.__class__ = BlindMember
            self._settle(member, node_id)

    def _settle(self, member: Any, node_id: int) -> None:
        random, cluster = self.random, self.cluster
        if random.random() < 0.3 and self.forges:
            lost = frozenset({ReplicaKey(1 + node_id % len(cluster.members), random.choice(DISKS)), cluster[1].key})
            known = Recovered(
                lost - {member.key}, random.randint(0, 3), random.randint(0, 9), random.choice((0, 2**31 - 1))
            )
            member.config = replace(member.config, recovered=lambda: known)
        if random.random() < 0.2:
            member.config = replace(member.config, must_fetch_first=random.random() < 0.5 and node_id != 1)
        member.blind()
        member.boot()

    def run(self) -> None:
        """:raises AssertionError: a rule is broken. :raises InvariantViolation: a node was stopped."""
        acts = [self._deliver] * 8 + [self._calm] * 6 + [self._tick] * 3 + [self._lose, self._double, self._propose]
        acts += [self._change, self._disk, self._disk, self._resign, self._snapshot, self._reboot, self._propose]
        forged = [self._forge_request, self._forge_answer, self._forge_answer, self._forge_snapshot]
        acts += forged if self.forges else []
        for _ in range(EVENTS):
            self.random.choice(acts)()
            self._check()

    # What really happens

    def _some(self) -> Any:
        return self.random.choice(list(self.cluster.members.values()))

    def _deliver(self, turn: int = 2) -> None:
        queue = self.cluster.queue
        if queue:
            queue.rotate(self.random.randint(-turn, turn))
            envelope = queue.popleft()
            source, target = (self._node(end) for end in (envelope.source, envelope.target))
            if source != target and target in self.cluster.members:
                self.cluster.hand_over_message(envelope)

    def _calm(self) -> None:
        """Deliver sent messages in order, for a moment."""
        for _ in range(12):
            self._deliver(turn=0)

    @staticmethod
    def _node(number: int) -> int:
        """The node that has this number for somebody: bootstrap servers have negative ones."""
        return number if number > 0 else -1 - number

    def _lose(self) -> None:
        if self.cluster.queue:
            envelope = self.cluster.queue.popleft()
            if isinstance(envelope.body, m.RaftRequest):
                how = self.random.choice(tuple(ev.Failure))
                failed = ev.RequestFailed(envelope.target, envelope.correlation, how)
                self.cluster[envelope.source].step(failed)

    def _double(self) -> None:
        if self.cluster.queue:
            self.cluster.queue.append(self.random.choice(list(self.cluster.queue)))

    def _tick(self) -> None:
        member = self._some()
        due = member.raft.deadline()
        if due is not None and self.random.random() < 0.7:
            self.cluster.now = max(self.cluster.now, min(due, self.cluster.now + 3_000))
        member.step(ev.Tick())

    def _propose(self) -> None:
        member = self._some()
        batch = self.cluster.batches.make(member.log.end_offset(), member.raft.epoch, (0,) * self.random.randint(1, 3))
        member.step(ev.Propose(member.raft.epoch - self.random.choice((0, 0, 0, 1)), BatchStore.encode([batch])))

    def _change(self) -> None:
        member, other = self._some(), self._some()
        key = self.random.choice((other.key, other.key, ReplicaKey(other.node_id, DISKS[1])))
        voters = VoterSet.of(entry(each.key) for each in self.cluster.members.values())
        changes = (
            AddVoter(entry(key)),
            RemoveVoter(key),
            RemoveVoter(key),
            UpdateVoter(entry(key)),
            UpgradeVoters(voters),
        )
        member.step(ev.ChangeVoters(self.random.choice(changes)))

    def _disk(self) -> None:
        member = self._some()
        act = self.random.randrange(5)
        if act == 0:
            member.holds_syncs = not member.holds_syncs and self.random.random() < 0.3
        elif act == 1:
            member.step(ev.AppendFailed())
        elif member.finishing and act == 2:
            self._finish(member, member.finishing.pop(0))
        else:
            member.finish_syncs()

    def _finish(self, member: Any, effect: fx.FinishSnapshot) -> None:
        data = member._parts.pop(effect.snapshot_id, b"")
        if self.random.random() < 0.2:
            member.step(ev.SnapshotFailed(effect.snapshot_id))
            return
        member.disk.snapshots[effect.snapshot_id] = data
        member.log.add_snapshot(effect.snapshot_id, self._membership_at(member, effect.snapshot_id))
        member.step(ev.SnapshotFinished(effect.snapshot_id))

    def _membership_at(self, member: Any, snapshot_id: EpochOffset) -> Membership:
        """As the snapshot's maker had it; of a forged one, anything."""
        if snapshot_id in self.taken:
            return self.taken[snapshot_id]
        if not self.random.randrange(3) or not member.raft.membership.kraft_version:
            return Membership()
        keys = [each.key for each in self.cluster.members.values() if self.random.random() < 0.5]
        keys = [key for key in keys if key != member.key or self.random.random() < 0.3]
        return Membership(DYNAMIC_VERSION, VoterSet.of(map(entry, keys)), max(0, snapshot_id.offset - 1))

    def _snapshot(self) -> None:
        member = self._some()
        ends = [b.end_offset for b in member.log.batches if b.end_offset <= member.raft.high_watermark]
        if ends and not member.finishing:
            end = self.random.choice(ends)
            there = member.log.membership_at(end)
            self.taken[member.take_snapshot(end)] = there

    def _resign(self) -> None:
        member = self._some()
        event: ev.Event = ev.Resign(member.raft.epoch, self.random.choice((None, 1, 2)))
        member.step(ev.Shutdown() if self.random.random() < 0.03 else event)

    def _reboot(self) -> None:
        member = self._some()
        if self.random.random() < 0.5:
            member.finishing.clear()
            member._parts.clear()
            member.high = -1
            member.lose_power()

    # What nobody of the quorum would send

    def _epoch(self) -> int:
        near = self._some().raft.epoch + self.random.randint(-1, 2)
        return self.random.choice((near, near, near, near, -1, 0, 2**31 - 1, EPOCH_STEP + 9, 2**31 - 2**16 - 1))

    def _offset(self) -> int:
        near = self._some().log.end_offset() + self.random.randint(-3, 3)
        return self.random.choice((near, near, near, -1, 0, 2**62, 2**63 - 1))

    def _id(self) -> int:
        return self.random.choice((*self.cluster.members, *self.cluster.members, -1, -2, 99))

    def _directory(self) -> Uuid:
        return self.random.choice((*(each.key.directory_id for each in self.cluster.members.values()), *DISKS))

    def _end(self) -> EpochOffset:
        return EpochOffset(self._epoch(), self._offset())

    def _request(self) -> m.RaftRequest:
        cluster_id = self.random.choice((CLUSTER_ID, CLUSTER_ID, CLUSTER_ID, None, "another"))
        epoch, node, directory = self._epoch(), self._id(), self._directory()
        other, another = self._id(), self._directory()
        kinds: tuple[m.RaftRequest, ...] = (
            m.VoteRequest(
                cluster_id,
                other,
                epoch,
                node,
                self._epoch(),
                self._offset(),
                directory,
                another,
                self.random.random() < 0.5,
            ),
            m.BeginQuorumEpochRequest(cluster_id, other, node, epoch, another),
            m.EndQuorumEpochRequest(
                cluster_id, node, epoch, (other, self._id()), self.random.choice(((), (another, directory)))
            ),
            m.FetchRequest(
                cluster_id, node, epoch, self._offset(), self._epoch(), self.random.choice((0, 500, -1)), 99, directory
            ),
            m.FetchSnapshotRequest(cluster_id, node, epoch, self._end(), self._offset(), 99, directory),
        )
        return self.random.choice(kinds)

    def _forge_request(self) -> None:
        member, request = self._some(), self._request()
        member.step(ev.RequestReceived(("forged", object()), request))

    def _forge_answer(self) -> None:
        """To a request that waits for one, mostly; of the type that belongs to it, as the transports see to."""
        member = self._some()
        sends = [effect for effect in member.effects[-30:] if isinstance(effect, fx.Send)]
        if sends:
            send = self.random.choice(sends)
            correlation = send.correlation + self.random.choice((0, 0, 0, 0, 1))
            member.step(ev.ResponseReceived(send.peer, correlation, self._answer(send.request)))

    def _forge_snapshot(self) -> None:
        """A leader that sends a follower to a snapshot that nobody has, and gives it, too."""
        member = self._some()
        leader_id = member.raft.leader_id
        if member.raft.role is not Role.FOLLOWER or leader_id is None or leader_id not in member.asked:
            return
        told = (NONE, NONE, leader_id, member.raft.epoch)
        end = EpochOffset(member.raft.epoch, member.log.end_offset() + self.random.randint(1, 5))
        for found in (
            m.FetchResponse(*told, 0, 0, snapshot_id=end),
            m.FetchSnapshotResponse(*told, end, 5, 0, b"12345"),
        ):
            member.step(ev.ResponseReceived(leader_id, member.asked[leader_id], found))

    def _answer(self, request: m.RaftRequest) -> m.RaftResponse:
        random = self.random
        top = random.choice((NONE,) * 9 + (random.choice(ERRORS),))
        error = random.choice((NONE,) * 5 + (random.choice(ERRORS),))
        leader, epoch = self._id(), self._epoch()
        if isinstance(request, m.VoteRequest):
            return m.VoteResponse(top, error, random.choice((leader, -1, -1)), epoch, random.random() < 0.7)
        if isinstance(request, m.BeginQuorumEpochRequest):
            return m.BeginQuorumEpochResponse(top, error, leader, epoch)
        if isinstance(request, m.EndQuorumEpochRequest):
            return m.EndQuorumEpochResponse(top, error, leader, epoch)
        if isinstance(request, m.FetchRequest):
            place: dict[str, Any] = random.choice(({}, {}, {"diverging": self._end()}, {"snapshot_id": self._end()}))
            if not place and random.random() < 0.5:
                place = {"records": BatchStore.encode(self._some().log.batches[-random.randint(1, 3) :])}
            return m.FetchResponse(top, error, leader, epoch, self._offset(), 0, **place)
        size = random.choice((5, 5, 9, -1, 0))
        position = random.choice((request.position, request.position, 0, 7))
        snapshot_id = random.choice((request.snapshot_id, request.snapshot_id, self._end()))
        return m.FetchSnapshotResponse(
            top, error, leader, epoch, snapshot_id, size, position, random.choice((b"12345", b""))
        )

    # The rules

    def _check(self) -> None:
        for node_id, member in self.cluster.members.items():
            raft = member.raft
            assert raft.epoch == max(member.disk.election.epoch, member.log.last_epoch()), "an epoch is on disk"
            if self.forges:
                continue
            if raft.role is Role.LEADER:
                assert self.leaders.setdefault(raft.epoch, node_id) == node_id, "an epoch has one leader"
            assert raft.high_watermark <= member.log.end_offset(), "a high watermark is within the log"
            for batch in member.log.batches:
                if batch.end_offset <= raft.high_watermark:
                    there = (batch.end_offset, batch.epoch, batch.records)
                    assert self.committed.setdefault(batch.base_offset, there) == there, "the same record everywhere"
