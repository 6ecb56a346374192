"""The changes of voters that a leader can be asked for (KIP-853), and its refusal. Values only.

`membership` carries them out. All but `UpgradeVoters` concern one voter. A change is accepted only while no other one
is uncommitted: otherwise two majorities might not share a voter.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.errors import MigratorError
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.control import DynamicVoter
from migrator.values import value


@value
class AddVoter:
    """Make a voter of an observer that has caught up (AddRaftVoter)."""

    voter: DynamicVoter


@value
class RemoveVoter:
    """Make an observer of a voter (RemoveRaftVoter)."""

    key: ReplicaKey


@value
class UpdateVoter:
    """Change the endpoints or the supported kraft.versions of a voter (UpdateRaftVoter)."""

    voter: DynamicVoter


@value
class UpgradeVoters:
    """Write the configured voters into the log, with kraft.version 1. From then on they can change."""

    voters: VoterSet


VoterChange = AddVoter | RemoveVoter | UpdateVoter | UpgradeVoters


@value
class Refusal:
    """Kafka's error code, and a sentence for people.

    ``lacking_records``: how many more records the leader's log needs before the change can be asked for again.
    """

    error: ErrorCode
    message: str
    lacking_records: int = 0


class VotersNotChangedError(MigratorError):
    """The voters stay as they are."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
