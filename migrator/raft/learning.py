"""Decides what a node believes of an epoch and a leader that a message names (``KafkaRaftClient`` 3.9).

The handlers of requests call `is_plausible` and `learn`; `core.RaftNode` calls `absorb` for each response. A higher
epoch is taken over, and its leader is followed. The epoch never falls, and an epoch has one leader: an implausible
message changes neither. A new leader with the id of a replica that was given up with a lost majority is not believed
while another leader is heard (docs/adr/0024-a-lost-majority.md).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.raft.config import may_follow
from migrator.raft.messages import RaftResponse
from migrator.raft.quorum import Quorum
from migrator.raft.states import Follower, Unattached


def is_plausible(quorum: Quorum, epoch: int, leader_id: int | None) -> bool:
    """Whether a message may name this epoch and leader. Configured voters are the only possible leaders, and an epoch
    has one leader.

    A message may also name this node as the leader of an epoch that it does not know: it may have lost its disk.
    """
    if not may_follow(quorum.epoch, epoch):
        return False
    if leader_id is None or epoch < quorum.epoch:
        return True
    if leader_id not in quorum.voters and quorum.has_fixed_voters:
        return False  # not with voters in the log: this node's set may be too old to have the leader
    if epoch > quorum.epoch and _is_doubtful(quorum, leader_id):
        return False
    return epoch > quorum.epoch or quorum.leader_id in {None, leader_id}


def _is_doubtful(quorum: Quorum, leader_id: int) -> bool:
    """Whether the replicas that were given up may have elected this leader: messages name it by its id alone.

    A sole voter has the newest voter set, and only members of that set can lead. The set of another node may be older,
    and the id may belong to a new replica on another disk: so the leader is believed once the known leader is silent.
    """
    if not quorum.config.recovered().has_lost(leader_id):
        return False
    knows_all = quorum.is_voter and not quorum.other_voters()
    return quorum.has_leader or (knows_all and leader_id not in quorum.voters)


def learn(quorum: Quorum, epoch: int, leader_id: int | None) -> None:
    """Go to the epoch of a message if it is higher, and follow its leader if there is one to follow."""
    can_follow = leader_id is not None and leader_id != quorum.node_id
    if epoch > quorum.epoch:
        if leader_id is not None and can_follow:
            quorum.become_follower(epoch, leader_id)
        else:
            quorum.become_unattached(epoch, leader_id)
    elif epoch == quorum.epoch and leader_id is not None and can_follow and _has_nobody_to_follow(quorum):
        quorum.become_follower(epoch, leader_id)


def _has_nobody_to_follow(quorum: Quorum) -> bool:
    """Whether this node follows no leader. Since its start it may know the epoch's leader without following it, when
    its log does not have that leader among the voters."""
    return quorum.leader_id is None or isinstance(quorum.state, Unattached)


def _go_back_to_leader(quorum: Quorum, epoch: int, leader_id: int | None) -> None:
    """An observer has asked a bootstrap server after its leader was silent, and hears that the same leader still leads:
    it asks the leader again. Stock observers up to 4.1 may ask the bootstrap servers for ever (KAFKA-19354)."""
    state = quorum.state
    if (
        isinstance(state, Follower)
        and not quorum.may_be_needed
        and (epoch, leader_id) == (quorum.epoch, state.leader_id)
    ):
        quorum.peers.forget_overdue(state.leader_id, quorum.now)
        if not quorum.has_leader:
            quorum.prolong(state)
            state.is_doubted = True  # the bootstrap server may be wrong: until the leader answers, others get our vote


def absorb(quorum: Quorum, peer: int, response: RaftResponse) -> bool:
    """Learn from a response.

    :returns: whether its own handler has to see it: it has no error, and belongs to this node's epoch.
    """
    if response.top_error != ErrorCode.none:
        quorum.peers.back_off(peer, quorum.now)
        return False
    epoch, leader_id = response.leader_epoch, response.leader_id if response.leader_id >= 0 else None
    if epoch < quorum.epoch or response.error == ErrorCode.unknown_leader_epoch:
        quorum.peers.back_off(peer, quorum.now)
        return False
    if not is_plausible(quorum, epoch, leader_id):
        quorum.blame(peer, f"names {leader_id} as the leader of epoch {epoch}, which it can't be")
        return False
    was_of_our_epoch = epoch == quorum.epoch
    learn(quorum, epoch, leader_id)
    if peer < 0:
        quorum.peers.back_off(peer, quorum.now)
        _go_back_to_leader(quorum, epoch, leader_id)
        return False  # a bootstrap server has a made-up id, and is asked for the leader only
    if response.error != ErrorCode.none:
        quorum.peers.back_off(peer, quorum.now)
        return False
    return was_of_our_epoch
