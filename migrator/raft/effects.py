"""The effects: the actions that the node has to perform after a step, in the order of the list.

`core.RaftNode.step` returns them, and `migrator.node.quorum.runner` performs them; the simulation does the same on
models. The package's docstring has the contract: which effects are durable before the next one, and which failures stop
the process. An effect is a frozen value: it refers to no state of the core that could change before it is performed.
"""

from __future__ import annotations

from collections.abc import Hashable

from migrator.raft.messages import EpochOffset, FetchResponse, FetchSnapshotResponse, RaftRequest, RaftResponse
from migrator.raft.states import ElectionState, Role
from migrator.raft.voter_changes import Refusal
from migrator.raft.voter_set import Membership, VoterSet
from migrator.values import value


@value
class PersistElectionState:
    """Write ``quorum-state``. Durable (file, rename and directory) before the next effect."""

    state: ElectionState


@value
class RoleChanged:
    """Role, epoch or leader has changed; ``leader_id`` is None while no leader is known.

    A node that led before drops the image of its uncommitted records and fails the requests that wait for a commit.
    """

    role: Role
    epoch: int
    leader_id: int | None


@value
class AppendLeaderChange:
    """Append the control batch that opens the leader's epoch, at the log's end (KIP-595 LeaderChangeMessage).

    ``bootstrap``: kraft.version and voters that follow in the same batch, when no log names them yet (KIP-853).
    """

    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]
    bootstrap: Membership | None = None


@value
class AppendVoters:
    """Append a control batch with the whole voter set, and before it the kraft.version when that changes (KIP-853)."""

    epoch: int
    voters: VoterSet
    kraft_version: int | None = None


@value
class VotersRefused:
    """Answer to `ChangeVoters`: nothing was appended."""

    refusal: Refusal


@value
class MembershipChanged:
    """Other voters, or another kraft.version, are in force since the effects of the step before were performed."""

    membership: Membership


@value
class AddressesMissing:
    """This node would stand for election, but lacks the addresses of these voters, and without them there is no
    majority (KIP-642). It waits until ``deadline`` (on the clock of `step`) and then stands anyway. It reports this
    once until a majority has addresses or a leader is followed. A `Tick` makes it look again earlier."""

    voters: tuple[int, ...]
    deadline: int


@value
class Append:
    """Append batches as they are. From a leader they start at the log's end; the node verifies that, and their
    checksums, and reports `AppendFailed` when they are damaged. An incomplete last batch, where the bytes of a stock
    leader ended, is left out; the next fetch begins with it.

    ``own_epoch``: the batches are this node's own (`Propose`), and it leads that epoch. They get their offsets, from
    the log's end on, and the epoch when this effect is performed.
    """

    batches: bytes
    own_epoch: int | None = None


@value
class TruncateTo:
    """Remove every record at ``offset``, where a batch begins, and above. Durable before the next effect."""

    offset: int


@value
class RequestSync:
    """Fsync the log in the background, then report `LogSynced`. Each truncation begins a new ``generation``."""

    generation: int


@value
class AdvanceHighWatermark:
    """Everything before ``offset`` is committed, for ever. On a follower it is also durable here."""

    offset: int


@value
class QuorumIsNew:
    """Every voter has said that its log is empty, so this disk has lost no committed record. Write that into the mark
    of the empty disk, durably, before the next effect: from then on this node votes."""


@value
class LogIsWhole:
    """Everything that a leader has committed is on this disk, for the first time in this process. Remove the mark of an
    empty disk, durably, before the next effect: from then on this disk counts in majorities."""


@value
class Send:
    """Send a request to a peer (by node id); ``correlation`` is the core's own number."""

    peer: int
    correlation: int
    request: RaftRequest


@value
class Reply:
    """Answer the request of ``context``."""

    context: Hashable
    response: RaftResponse


@value
class ReadLog:
    """Answer a fetch: ``response`` with ``records`` set to whole batches from ``offset`` on, at most ``max_bytes`` or
    the amount that the node reads in one turn, but at least one batch; none when ``offset`` is the end."""

    context: Hashable
    response: FetchResponse
    offset: int
    max_bytes: int


@value
class ReadSnapshot:
    """Answer with ``size`` and ``data`` of the snapshot that ``response`` names, from its ``position`` on.

    At most ``max_bytes``, but at least one byte.
    A position at or beyond the size gets POSITION_OUT_OF_RANGE, a snapshot deleted meanwhile SNAPSHOT_NOT_FOUND.
    """

    context: Hashable
    response: FetchSnapshotResponse
    max_bytes: int


@value
class WriteSnapshotChunk:
    """Write a part of a snapshot that is being downloaded; position 0 begins it anew, others continue it."""

    snapshot_id: EpochOffset
    position: int
    data: bytes


@value
class FinishSnapshot:
    """All parts are written: verify, fsync and rename in the background, then report the outcome.

    That is `SnapshotFinished` or `SnapshotFailed`; until then no other snapshot is downloaded.
    """

    snapshot_id: EpochOffset


@value
class InstallSnapshot:
    """Replace the whole log by a finished snapshot: start and end offset become its end offset.

    Durable before the next effect. The image is loaded from it; readers never see a state between.
    """

    snapshot_id: EpochOffset


@value
class BlamePeer:
    """A peer's message was ignored, in most cases because it broke the protocol. The node logs the reason and drops the
    connection.

    :ivar reason: follows the peer's name.
    """

    peer: int
    reason: str


@value
class ReadyToStop:
    """The node may stop now. It follows `Shutdown` when another leader is known, or none is needed."""


Effect = (
    PersistElectionState
    | RoleChanged
    | AppendLeaderChange
    | AppendVoters
    | VotersRefused
    | MembershipChanged
    | AddressesMissing
    | Append
    | TruncateTo
    | RequestSync
    | AdvanceHighWatermark
    | QuorumIsNew
    | LogIsWhole
    | Send
    | Reply
    | ReadLog
    | ReadSnapshot
    | WriteSnapshotChunk
    | FinishSnapshot
    | InstallSnapshot
    | BlamePeer
    | ReadyToStop
)
