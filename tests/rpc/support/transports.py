"""Both transports of consensus, each with a peer on a real port that answers as a test wants.

A test takes the transport as a parameter, so gRPC and Kafka's protocol must behave the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from kio.schema.errors import ErrorCode

from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OwnLog,
    RaftRequest,
    RaftResponse,
    VoteRequest,
    VoteResponse,
)
from migrator.raft.transport import (
    RaftHandler,
    RaftTransport,
)
from migrator.records.uuid import Uuid
from migrator.rpc.quorum_service import ImageDigest, NodeAddress, QuorumService
from migrator.rpc.raft_transport import GrpcRaftTransport, PeerAddress
from migrator.rpc.server import GrpcServer
from migrator.rpc.tls import TlsFiles
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport, RaftService
from migrator.wire.schemas import SERVED_APIS
from migrator.wire.server import KafkaListener
from tests.rpc.support.identities import IDENTITIES, voter

CLUSTER = "qYoMEZXcS_SKP2PzAl8-WA"
PEER = 2
DIRECTORY = Uuid(bytes(range(16)))
OK = ErrorCode.none
BATCHES = bytes(range(256)) * 32 * 1024  # 8 MiB

EXCHANGES: list[tuple[RaftRequest, RaftResponse]] = [
    (VoteRequest(CLUSTER, 2, 7, 1, 6, 1234, DIRECTORY, DIRECTORY), VoteResponse(OK, OK, -1, 7, vote_granted=True)),
    (
        VoteRequest(None, 2, 7, 1, 6, 2**40),
        VoteResponse(OK, ErrorCode.fenced_leader_epoch, 3, 8, vote_granted=False),
    ),
    (BeginQuorumEpochRequest(CLUSTER, 2, 1, 7, DIRECTORY), BeginQuorumEpochResponse(OK, OK, 1, 7)),
    (EndQuorumEpochRequest(CLUSTER, 1, 7, (3, 2), (DIRECTORY, DIRECTORY)), EndQuorumEpochResponse(OK, OK, -1, 8)),
    (
        FetchRequest(CLUSTER, 1, 7, 100, 6, 500, 8 << 20, DIRECTORY),
        FetchResponse(OK, OK, 2, 7, 100, 0, records=BATCHES),
    ),
    (FetchRequest(CLUSTER, 1, 7, 100, 6, 500, 8 << 20), FetchResponse(OK, OK, 2, 7, -1, 0)),
    (
        FetchRequest(CLUSTER, 1, 7, 100, 5, 500, 8 << 20),
        FetchResponse(OK, OK, 2, 7, 90, 0, diverging=EpochOffset(5, 80)),
    ),
    (
        FetchRequest(CLUSTER, 1, 7, 0, 0, 0, 8 << 20),
        FetchResponse(OK, OK, 2, 7, 90, 50, snapshot_id=EpochOffset(5, 80)),
    ),
    (
        FetchSnapshotRequest(CLUSTER, 1, 7, EpochOffset(5, 80), 4096, 8 << 20, DIRECTORY),
        FetchSnapshotResponse(OK, OK, 2, 7, EpochOffset(5, 80), 9 << 20, 4096, BATCHES),
    ),
    (
        FetchSnapshotRequest(CLUSTER, 1, 7, EpochOffset(5, 80), 0, 1),
        FetchSnapshotResponse(OK, ErrorCode.snapshot_not_found, 2, 7, EpochOffset(-1, -1), 0, 0, b""),
    ),
    *(
        (
            VoteRequest(CLUSTER, 2, 7, 1, 0, 0, DIRECTORY, DIRECTORY, pre_vote=True),
            VoteResponse(OK, OK, -1, 7, vote_granted=False, own_log=own),
        )
        for own in (None, OwnLog(EpochOffset(0, 0), must_fetch_first=True), OwnLog(EpochOffset(6, 2**40), False))
    ),
]

VOTE, VOTED = EXCHANGES[0]


class View:
    """The quorum's view of one node."""

    def __init__(self) -> None:
        self.gossip: list[NodeAddress] = []
        self.leaders: list[tuple[int, int, str, int]] = []

    def advertised(self, address: NodeAddress) -> None:
        self.gossip.append(address)

    def discover(self, known: Sequence[NodeAddress]) -> Sequence[NodeAddress]:
        self.gossip.extend(known)
        return (NodeAddress(2, "::1", 9094, 77, 6),)

    def image_digest(self, offset: int, *, replay: bool) -> ImageDigest:
        return ImageDigest(offset + 1, 2**127 + offset) if replay else ImageDigest(-1)

    def leader_endpoint(self, leader_id: int) -> ListenerEndpoint | None:
        return ListenerEndpoint("CONTROLLER", "leader", leader_id) if leader_id > 0 else None

    def told(self, leader_id: int, epoch: int, host: str, port: int) -> None:
        self.leaders.append((leader_id, epoch, host, port))


class Kind(Protocol):
    """One of the two transports, as the suite sees it."""

    def serve(self, answer: RaftHandler, port: int = 0) -> contextlib.AbstractAsyncContextManager[int]:
        """A peer that answers so; its port."""

    def connect(self, port: int) -> RaftTransport:
        """A transport that knows this one peer."""


class Kafka:
    @contextlib.asynccontextmanager
    async def serve(self, answer: RaftHandler, port: int = 0) -> AsyncIterator[int]:
        handler = RaftService(answer, lambda _: ListenerEndpoint("CONTROLLER", "127.0.0.1", 9093))
        listener = KafkaListener("CONTROLLER", handler, apis=SERVED_APIS)
        bound = await listener.start("127.0.0.1", port)
        try:
            yield bound
        finally:
            await listener.close(grace=0)

    def connect(self, port: int) -> RaftTransport:
        return KafkaRaftTransport(1, {PEER: ListenerEndpoint("CONTROLLER", "127.0.0.1", port)}.get)


class Grpc:
    @contextlib.asynccontextmanager
    async def serve(self, answer: RaftHandler, port: int = 0, cluster_id: str = CLUSTER) -> AsyncIterator[int]:
        server = GrpcServer([QuorumService(cluster_id, answer, View())], IDENTITIES)
        bound = server.listen("127.0.0.1", port, voter(PEER))
        await server.start()
        try:
            yield bound
        finally:
            await server.close(grace=0)

    def connect(self, port: int) -> RaftTransport:
        return grpc_transport(port)


def grpc_transport(port: int, files: TlsFiles | None = None) -> GrpcRaftTransport:
    """Voter 1's, to voter 2 on that port."""
    at = PeerAddress(f"127.0.0.1:{port}", frozenset({f"User:CN=voter-{PEER}"}))
    return GrpcRaftTransport(CLUSTER, {PEER: at}.get, files or voter(1))


@contextlib.asynccontextmanager
async def connected(kind: Kind, port: int) -> AsyncIterator[RaftTransport]:
    transport = kind.connect(port)
    try:
        yield transport
    finally:
        await transport.close()


def answering(*pairs: tuple[RaftRequest, RaftResponse]) -> RaftHandler:
    async def answer(request: RaftRequest) -> RaftResponse:
        (response,) = (response for known, response in pairs if known == request)
        return response

    return answer
