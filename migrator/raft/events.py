"""The events that the node gives to the core, one in each `core.RaftNode.step`.

They report what happened outside: time, a message, an fsync, a failure, an operator's order. The package's docstring
has the contract. Events about a request carry its correlation or context; the core ignores an answer that it no longer
expects, so late and doubled events do no harm.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, auto

from migrator.raft.messages import EpochOffset, RaftRequest, RaftResponse
from migrator.raft.voter_changes import VoterChange
from migrator.values import value


@value
class Tick:
    """The time of ``deadline()`` has come. A `Tick` at any other time does no harm."""


@value
class RequestReceived:
    """A peer, an observer or a client asks; ``context`` is the node's own handle for the reply."""

    context: Hashable
    request: RaftRequest


@value
class ResponseReceived:
    """The answer to the `Send` with this correlation. A late or doubled one is ignored."""

    peer: int
    correlation: int
    response: RaftResponse


class Failure(Enum):
    """The reason, known to the transport, why a request gets no answer."""

    NO_ANSWER = auto()
    """No answer in time, no way to the peer, or an answer that cannot be read. The peer's process may live."""
    CONNECTION_LOST = auto()
    """The peer's side closed a connection on which it had answered before."""
    REFUSED = auto()
    """The peer's machine says that nobody listens at the peer's address."""


@value
class RequestFailed:
    """The `Send` with this correlation will not be answered."""

    peer: int
    correlation: int
    how: Failure = Failure.NO_ANSWER


@value
class Propose:
    """Append whole ``batches`` as the leader of ``epoch``; the offsets in them are ignored.

    Nothing is appended when this node no longer leads that epoch, or is about to resign. `RoleChanged` has said so, or
    will.
    """

    epoch: int
    batches: bytes


@value
class ChangeVoters:
    """Change the voters, as the leader. `AppendVoters` or `VotersRefused` is among the effects of this very step."""

    change: VoterChange


@value
class LogSynced:
    """The log is durable up to ``end_offset``; ``generation`` is that of the latest `RequestSync` it covers."""

    end_offset: int
    generation: int


@value
class AppendFailed:
    """The last `Append`, `AppendVoters` or `AppendLeaderChange` found no room; the log ends where it ended before."""


@value
class SnapshotFinished:
    """The snapshot of `FinishSnapshot` is on disk under its name, durable, and among ``log.snapshots()``."""

    snapshot_id: EpochOffset


@value
class SnapshotFailed:
    """The snapshot that is being downloaded could not be written; its parts are gone."""

    snapshot_id: EpochOffset


@value
class Resign:
    """Give up leadership of ``epoch`` in favour of ``successor``, or of the most caught-up voter when None.

    Nothing is appended from now on. `RoleChanged` comes when that voter has the whole log, at the latest after half an
    election time-out.
    """

    epoch: int
    successor: int | None = None


@value
class Shutdown:
    """Hand leadership over and prepare to stop. `ReadyToStop` follows; the node decides how long it waits for that."""


Event = (
    Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | Propose
    | ChangeVoters
    | LogSynced
    | AppendFailed
    | SnapshotFinished
    | SnapshotFailed
    | Resign
    | Shutdown
)
