"""The recovery of a single surviving voter when the majority of the voters in the log is permanently lost.

Stock Kafka has nothing like it. The survivor's log is kept, and gets a record that names the survivor as the only
voter, in an epoch far above any epoch that it knows (docs/adr/0024-a-lost-majority.md).
"""

from __future__ import annotations

from collections.abc import Collection

from migrator.errors import OperatorError
from migrator.raft.config import EPOCH_LIMIT
from migrator.raft.voter_set import DYNAMIC_VERSION, Membership, ReplicaKey, VoterSet
from migrator.raft.votes import majority
from migrator.values import value

EPOCH_STEP = 1_000_000
"""The recovery adds this to the survivor's epoch, because the lost voters may have seen higher epochs. One election a
second would need 11 days to use it up."""


@value
class RecoveryPlan:
    """The records and files to write. ``lost``: the replicas that are refused for ever; ``offset``: that of the new
    record."""

    before: VoterSet
    after: VoterSet
    lost: tuple[ReplicaKey, ...]
    epoch: int
    offset: int


def plan_recovery(
    membership: Membership, survivor: ReplicaKey, confirmed: Collection[ReplicaKey], epoch: int, end_offset: int
) -> RecoveryPlan:
    """The record that makes the survivor the only voter, and the replicas that are refused from then on.

    :param confirmed: the voters whose disks are wiped, as the operator says.
    :param epoch: the highest epoch in the survivor's log and election state.
    :param end_offset: the end of the survivor's log.
    :raises OperatorError: a recovery is not possible, or not needed.
    """
    voters = membership.voters
    if membership.kraft_version < DYNAMIC_VERSION or voters is None:
        raise OperatorError(
            "the voters are those of controller.quorum.voters (kraft.version 0), not of the log",
            where="quorum",
            remedy="Stop all controllers. Name only this controller in controller.quorum.voters of every controller "
            "and broker, and start this controller",
        )
    if not voters.has(survivor.node_id, survivor.directory_id):
        raise OperatorError(
            f"controller {survivor} is not one of the voters {_text(_keys(voters))}",
            where="quorum",
            remedy="Run the command on a voter that is left",
        )
    others = tuple(key for key in _keys(voters) if key.node_id != survivor.node_id)
    unknown = sorted(map(str, set(confirmed) - set(others)))
    if unknown:
        raise OperatorError(
            f"{', '.join(unknown)} is no other voter; the others are {_text(others)}",
            where="--lost",
            remedy="Write the id and the directory id of the voter as they are in the log",
        )
    missing = tuple(key for key in others if key not in set(confirmed))
    if len(missing) + 1 >= majority(len(voters)):
        raise OperatorError(
            f"a majority of the voters {_text(_keys(voters))} is not confirmed as lost",
            where="--lost",
            remedy=f"Start {_text(missing)}: this controller and they elect a leader. Nothing is lost then. If their "
            "directories are lost for good, name each with --lost"
            if missing
            else "Start this controller: it is the only voter and needs nobody else",
        )
    if missing:
        raise OperatorError(
            f"{_text(missing)} is not confirmed as wiped, and only one log can go on",
            where="--lost",
            remedy="Run the command on the voter with the longest log. Wipe all others, and name each with --lost",
        )
    if epoch + EPOCH_STEP >= EPOCH_LIMIT:
        raise OperatorError(
            f"no epoch is left above {epoch}",
            where="quorum",
            remedy="Restore the directory from a copy with a lower epoch",
        )
    own = VoterSet.of(voter for voter in voters.voters if voter.voter_id == survivor.node_id)
    return RecoveryPlan(voters, own, others, epoch + EPOCH_STEP, end_offset)


def _keys(voters: VoterSet) -> tuple[ReplicaKey, ...]:
    return tuple(voters.key(voter.voter_id) for voter in voters.voters)


def _text(keys: Collection[ReplicaKey]) -> str:
    return ", ".join(map(str, keys))
