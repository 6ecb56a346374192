"""One suite for both transports: what the consensus core may expect of them."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import pytest
from kio.schema.errors import ErrorCode

from migrator.errors import InvariantViolation
from migrator.raft.events import Failure
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
    ForeignClusterError,
    PeerTimeoutError,
    RaftHandler,
    RaftTransport,
    TransportError,
    UnreachableError,
)
from migrator.records.uuid import Uuid
from migrator.rpc.quorum_service import ImageDigest, NodeAddress, QuorumDescription, QuorumService, ReplicaProgress
from migrator.rpc.raft_transport import GrpcRaftTransport, PeerAddress
from migrator.rpc.server import GrpcServer
from migrator.rpc.tls import TlsFiles
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport, RaftService
from migrator.wire.schemas import SERVED_APIS
from migrator.wire.server import KafkaListener
from tests.rpc.support.identities import IDENTITIES, voter
from tests.wire.support.babbler import babbling

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

    def describe(self) -> QuorumDescription:
        return QuorumDescription(2, 7, 90, (ReplicaProgress(2, 100), ReplicaProgress(1, 99, 5, 4)))

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


@pytest.fixture(params=[Kafka, Grpc], ids=["kafka", "grpc"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param()
    return found


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


@pytest.mark.parametrize(("request_", "response"), EXCHANGES, ids=lambda each: type(each).__name__)
async def test_every_message_arrives_as_it_was(kind: Kind, request_: RaftRequest, response: RaftResponse) -> None:
    async with kind.serve(answering((request_, response))) as port, connected(kind, port) as transport:
        assert await transport.send(PEER, request_, 10) == response


async def test_an_error_of_the_whole_request_arrives(kind: Kind) -> None:
    refused = VoteResponse(ErrorCode.inconsistent_cluster_id, OK, -1, -1, vote_granted=False)
    async with kind.serve(answering((VOTE, refused))) as port, connected(kind, port) as transport:
        assert await transport.send(PEER, VOTE, 10) == refused


async def test_many_fetches_of_8_mib_one_after_the_other(kind: Kind) -> None:
    request, response = EXCHANGES[4]
    async with kind.serve(answering((request, response))) as port, connected(kind, port) as transport:
        for _ in range(5):
            assert await transport.send(PEER, request, 10) == response


async def test_one_request_is_in_flight_per_peer(kind: Kind) -> None:
    running = most = 0

    async def answer(_: RaftRequest) -> RaftResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return VOTED

    async with kind.serve(answer) as port, connected(kind, port) as transport:
        await asyncio.gather(*(transport.send(PEER, VOTE, 10) for _ in range(20)))
    assert most == 1


async def test_a_peer_that_is_down_is_unreachable(kind: Kind, unused_tcp_port: int) -> None:
    async with connected(kind, unused_tcp_port) as transport:
        with pytest.raises((UnreachableError, PeerTimeoutError)):
            await transport.send(PEER, VOTE, 5)


async def test_a_peer_that_comes_back_is_found(kind: Kind, unused_tcp_port: int) -> None:
    async with connected(kind, unused_tcp_port) as transport:
        with pytest.raises(TransportError):
            await transport.send(PEER, VOTE, 5)
        async with kind.serve(answering((VOTE, VOTED)), unused_tcp_port):
            async with asyncio.timeout(20):
                while True:
                    with contextlib.suppress(TransportError):
                        assert await transport.send(PEER, VOTE, 5) == VOTED
                        break


class Front:
    """A port before a peer's. It breaks its connections, and refuses new ones as the kernel of a dead process does."""

    def __init__(self, behind: int) -> None:
        self._behind = behind
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_peer, to_peer = await asyncio.open_connection("127.0.0.1", self._behind)
        self._writers += [writer, to_peer]
        self._tasks += [asyncio.create_task(self._pipe(*ends)) for ends in ((reader, to_peer), (from_peer, writer))]

    @staticmethod
    async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)

    def break_all(self) -> None:
        """What is established; new connections are still taken."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def die(self) -> None:
        if self._server is not None:
            self._server.close()
        self.break_all()
        await asyncio.gather(*self._tasks)


async def failure(transport: RaftTransport) -> Failure:
    """What a request that fails tells of the peer's process."""
    with pytest.raises(TransportError) as caught:
        await transport.send(PEER, VOTE, 5)
    return caught.value.how


async def test_a_peer_that_was_never_there_only_refuses(kind: Kind, unused_tcp_port: int) -> None:
    async with connected(kind, unused_tcp_port) as transport:
        assert [await failure(transport) for _ in range(2)] == [Failure.REFUSED] * 2


@pytest.mark.parametrize("is_asked", [True, False], ids=["during a request", "between two requests"])
async def test_a_peer_that_dies_breaks_its_connection_and_then_refuses(kind: Kind, *, is_asked: bool) -> None:
    asked = asyncio.Event()

    async def answer(request: RaftRequest) -> RaftResponse:
        if request == VOTE:
            asked.set()
            await asyncio.Event().wait()
        return VOTED

    async with kind.serve(answer) as behind:
        front = Front(behind)
        async with connected(kind, await front.listen()) as transport:
            await transport.send(PEER, EXCHANGES[1][0], 10)
            waits = asyncio.create_task(failure(transport)) if is_asked else None
            if is_asked:
                await asked.wait()
            await front.die()
            found = await waits if waits is not None else await failure(transport)
            assert found is Failure.CONNECTION_LOST
            assert [await failure(transport) for _ in range(2)] == [Failure.REFUSED] * 2


async def test_a_connection_that_the_peer_closes_and_takes_again_fails_nobody(kind: Kind) -> None:
    async with kind.serve(answering((VOTE, VOTED))) as behind:
        front = Front(behind)
        async with connected(kind, await front.listen()) as transport:
            await transport.send(PEER, VOTE, 10)
            front.break_all()
            async with asyncio.timeout(20):
                while True:  # the kernel may tell of it during the request, whose answer is lost then
                    with contextlib.suppress(TransportError):
                        assert await transport.send(PEER, VOTE, 5) == VOTED
                        break
        await front.die()


async def test_a_peer_that_hangs_until_it_is_given_up_has_not_lost_a_connection(kind: Kind) -> None:
    """This side closed it; what is refused afterwards may be anything."""

    async def answer(request: RaftRequest) -> RaftResponse:
        if request == VOTE:
            await asyncio.Event().wait()
        return VOTED

    async with kind.serve(answer) as behind:
        front = Front(behind)
        async with connected(kind, await front.listen()) as transport:
            await transport.send(PEER, EXCHANGES[1][0], 10)
            with pytest.raises(PeerTimeoutError) as caught:
                await transport.send(PEER, VOTE, 0.2)
            assert caught.value.how is Failure.NO_ANSWER
            await front.die()


async def test_who_closes_before_any_answer_was_no_peer() -> None:
    """A proxy that takes connections for a process that is gone."""

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    proxy = await asyncio.start_server(close, "127.0.0.1", 0)
    async with proxy, connected(Kafka(), proxy.sockets[0].getsockname()[1]) as transport:
        assert await failure(transport) is Failure.NO_ANSWER


async def test_a_node_without_an_address_is_unreachable(kind: Kind) -> None:
    async with connected(kind, 1) as transport:
        with pytest.raises(UnreachableError):
            await transport.send(99, VOTE, 5)


async def test_a_slow_peer_is_a_timeout_and_does_not_block_the_next_request(kind: Kind) -> None:
    slow = asyncio.Event()

    async def answer(request: RaftRequest) -> RaftResponse:
        if request == VOTE:
            await slow.wait()
        return VOTED

    async with kind.serve(answer) as port, connected(kind, port) as transport:
        await transport.send(PEER, EXCHANGES[1][0], 10)
        with pytest.raises(PeerTimeoutError):
            await transport.send(PEER, VOTE, 0.1)
        assert await transport.send(PEER, EXCHANGES[1][0], 10) == VOTED


async def test_a_request_that_waits_for_another_has_its_own_time(kind: Kind) -> None:
    slow = asyncio.Event()

    async def answer(_: RaftRequest) -> RaftResponse:
        await slow.wait()
        return VOTED

    async with kind.serve(answer) as port, connected(kind, port) as transport:
        first = asyncio.create_task(transport.send(PEER, VOTE, 10))
        with pytest.raises((UnreachableError, PeerTimeoutError)):
            await transport.send(PEER, VOTE, 0.1)
        slow.set()
        assert await first == VOTED


async def test_closing_fails_what_waits(kind: Kind) -> None:
    arrived, slow = asyncio.Event(), asyncio.Event()

    async def answer(_: RaftRequest) -> RaftResponse:
        arrived.set()
        await slow.wait()
        return VOTED

    async with kind.serve(answer) as port, connected(kind, port) as transport:
        waiting = asyncio.create_task(transport.send(PEER, VOTE, 10))
        await arrived.wait()
        await transport.close()
        with pytest.raises(TransportError):
            await waiting
        with pytest.raises(TransportError):
            await transport.send(PEER, VOTE, 1)


async def test_a_cancelled_request_leaves_the_transport_usable(kind: Kind) -> None:
    arrived, slow = asyncio.Event(), asyncio.Event()

    async def answer(request: RaftRequest) -> RaftResponse:
        if request == VOTE:
            arrived.set()
            await slow.wait()
        return VOTED

    async with kind.serve(answer) as port, connected(kind, port) as transport:
        waiting = asyncio.create_task(transport.send(PEER, VOTE, 10))
        await arrived.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await transport.send(PEER, EXCHANGES[1][0], 10) == VOTED


async def test_a_peer_whose_core_fails_is_an_error_and_lives(kind: Kind) -> None:
    async def answer(request: RaftRequest) -> RaftResponse:
        if request == VOTE:
            raise ValueError("a bug")
        return VOTED

    async with kind.serve(answer) as port, connected(kind, port) as transport:
        with pytest.raises(TransportError):
            await transport.send(PEER, VOTE, 10)
        assert await transport.send(PEER, EXCHANGES[1][0], 10) == VOTED


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">ii", 4, 12345), b"\x00" * 64])
async def test_garbage_is_no_answer(kind: Kind, garbage: bytes) -> None:
    with babbling(garbage) as port:
        async with connected(kind, port) as transport:
            with pytest.raises(TransportError):
                await transport.send(PEER, VOTE, 1)


async def test_a_node_of_another_cluster_is_refused_before_its_message_is_looked_at() -> None:
    """On gRPC by the call's metadata; in the Kafka protocol the core itself compares the cluster id."""
    kind = Grpc()
    seen: list[Any] = []

    async def answer(request: RaftRequest) -> RaftResponse:
        seen.append(request)
        return VOTED

    async with kind.serve(answer, cluster_id="another") as port, connected(kind, port) as transport:
        with pytest.raises(ForeignClusterError):
            await transport.send(PEER, VOTE, 10)
    assert seen == []


async def test_a_violated_invariant_is_told_to_the_node() -> None:
    told: list[InvariantViolation] = []

    async def answer(_: RaftRequest) -> RaftResponse:
        raise InvariantViolation("two leaders")

    server = GrpcServer([QuorumService(CLUSTER, answer, View(), told.append)], IDENTITIES)
    port = server.listen("127.0.0.1", 0, voter(PEER))
    await server.start()
    transport = Grpc().connect(port)
    with pytest.raises(TransportError):
        await transport.send(PEER, VOTE, 10)
    await transport.close()
    await server.close(grace=0)
    assert [str(violation) for violation in told] == ["two leaders"]


async def test_grpc_tells_the_quorum_and_gossips_addresses() -> None:
    view = View()
    server = GrpcServer([QuorumService(CLUSTER, answering(), view)], IDENTITIES)
    port = server.listen("127.0.0.1", 0, voter(PEER))
    await server.start()
    transport = grpc_transport(port)
    try:
        assert await transport.describe(PEER, 10) == view.describe()
        mine = NodeAddress(1, "host-1", 9094, 5, 7)
        assert await transport.discover(PEER, [mine], 10) == (NodeAddress(2, "::1", 9094, 77, 6),)
        await transport.advertise(PEER, mine, 10)
        assert view.gossip == [mine, mine]
    finally:
        await transport.close()
        await server.close(grace=0)


async def test_grpc_tells_what_the_metadata_come_to() -> None:
    server = GrpcServer([QuorumService(CLUSTER, answering(), View())], IDENTITIES)
    port = server.listen("127.0.0.1", 0, voter(PEER))
    await server.start()
    transport = grpc_transport(port)
    try:
        assert (await transport.image_digest(PEER, 40, replay=False, timeout=10)).offset == -1
        assert await transport.image_digest(PEER, 40, replay=True, timeout=10) == ImageDigest(41, 2**127 + 40)
    finally:
        await transport.close()
        await server.close(grace=0)


async def test_grpc_tells_where_leaders_are() -> None:
    view = View()
    heard: list[tuple[int, int, str, int]] = []
    answer = BeginQuorumEpochResponse(OK, OK, 3, 9)
    pairs: list[tuple[RaftRequest, RaftResponse]] = [
        (BeginQuorumEpochRequest(CLUSTER, PEER, 1, 7), answer),
        (EndQuorumEpochRequest(CLUSTER, 1, 8, ()), EndQuorumEpochResponse(OK, OK, 3, 9)),
        (FetchRequest(CLUSTER, 1, 7, 0, 0, 0, 1), FetchResponse(OK, OK, 3, 9, -1, 0)),
    ]
    server = GrpcServer([QuorumService(CLUSTER, answering(*pairs), view)], IDENTITIES)
    port = server.listen("127.0.0.1", 0, voter(PEER))
    await server.start()
    at = PeerAddress(f"127.0.0.1:{port}", frozenset({f"User:CN=voter-{PEER}"}))
    transport = GrpcRaftTransport(
        CLUSTER,
        {PEER: at}.get,
        voter(1),
        told=lambda *told: heard.append(told),
        own_endpoint=lambda: ListenerEndpoint("CONTROLLER", "own", 9093),
    )
    try:
        for request, response in pairs:
            assert await transport.send(PEER, request, 10) == response
    finally:
        await transport.close()
        await server.close(grace=0)
    assert view.leaders == [(1, 7, "own", 9093), (1, 8, "own", 9093)]
    assert heard == [(3, 9, "leader", 3)] * 3


async def test_a_voter_that_moved_is_called_at_its_new_address() -> None:
    principals = frozenset({f"User:CN=voter-{PEER}"})
    known: dict[int, PeerAddress] = {}
    transport = GrpcRaftTransport(CLUSTER, known.get, voter(1))
    try:
        with pytest.raises(UnreachableError, match="no known address"):
            await transport.send(PEER, VOTE, 10)
        for epoch in (100, 200):
            async with Grpc().serve(answering((VOTE, VoteResponse(OK, OK, -1, epoch, vote_granted=False)))) as port:
                known[PEER] = PeerAddress(f"127.0.0.1:{port}", principals)
                assert (await transport.send(PEER, VOTE, 10)).leader_epoch == epoch
        assert len(transport._links) == 1
    finally:
        await transport.close()
