"""What every request and response teaches: a higher epoch, or the leader of this one (KafkaRaftClient 3.9)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.raft.config import may_follow
from migrator.raft.messages import RaftResponse
from migrator.raft.quorum import Quorum
from migrator.raft.states import Follower, Unattached


def is_plausible(quorum: Quorum, epoch: int, leader_id: int | None) -> bool:
    """Whether a message of another node may name this epoch and leader: a voter (as long as these are configured), and
    the one that we know, if we do.

    That this very node leads an epoch it has not heard of is plausible too: it may have lost its disk.
    """
    if not may_follow(quorum.epoch, epoch):
        return False
    if leader_id is None or epoch < quorum.epoch:
        return True
    if leader_id not in quorum.voters and quorum.has_fixed_voters:
        return False  # with voters in the log, ours may be older than those that have elected the leader
    if epoch > quorum.epoch and _is_doubtful(quorum, leader_id):
        return False
    return epoch > quorum.epoch or quorum.leader_id in {None, leader_id}


def _is_doubtful(quorum: Quorum, leader_id: int) -> bool:
    """Whether those who were given up may have elected this leader among themselves: messages name it by its id alone.

    A sole voter has the newest set, and whoever is not in it cannot lead. Another node's set may be older, and the id
    may be there again with another disk: so that one is believed as soon as the leader that we have is silent.
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
    """The leader of the epoch may be known and yet not followed, since the boot, when our log does not name it."""
    return quorum.leader_id is None or isinstance(quorum.state, Unattached)


def _go_back_to_leader(quorum: Quorum, epoch: int, leader_id: int | None) -> None:
    """Whoever has asked the bootstrap servers after a silence of its leader, and hears that this one leads still, asks
    the leader again; up to 4.1 stock observers can stay with the bootstrap servers for ever (KAFKA-19354)."""
    state = quorum.state
    if (
        isinstance(state, Follower)
        and not quorum.may_be_needed
        and (epoch, leader_id) == (quorum.epoch, state.leader_id)
    ):
        quorum.peers.forget_overdue(state.leader_id, quorum.now)
        if not quorum.has_leader:
            quorum.prolong(state)
            state.is_doubted = True  # others know it by hearsay, too: it keeps nobody from our vote before it answers


def absorb(quorum: Quorum, peer: int, response: RaftResponse) -> bool:
    """Learn from a response.

    :returns: whether it is of this epoch and without an error, so that it is for its own handler.
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
        return False  # a bootstrap server: whoever listens there is asked for the leader, and for nothing else
    if response.error != ErrorCode.none:
        quorum.peers.back_off(peer, quorum.now)
        return False
    return was_of_our_epoch
