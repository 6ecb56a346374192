"""What may be asked of a leader about its voters, one voter at a time (KIP-853), and why it may refuse."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.errors import MigratorError
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.control import DynamicVoter
from migrator.values import value


@value
class AddVoter:
    """Let a replica vote that has caught up as an observer (AddRaftVoter)."""

    voter: DynamicVoter


@value
class RemoveVoter:
    """Let a voter observe only (RemoveRaftVoter)."""

    key: ReplicaKey


@value
class UpdateVoter:
    """Note other endpoints or kraft.versions of a voter (UpdateRaftVoter)."""

    voter: DynamicVoter


@value
class UpgradeVoters:
    """Take the configured voters into the log, with kraft.version 1: from then on they can change."""

    voters: VoterSet


VoterChange = AddVoter | RemoveVoter | UpdateVoter | UpgradeVoters


@value
class Refusal:
    """Kafka's error code, and a sentence for people.

    ``lacking_records``: after so many more records in the leader's log the change may be asked for again.
    """

    error: ErrorCode
    message: str
    lacking_records: int = 0


class VotersNotChangedError(MigratorError):
    """The voters stay as they are."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
