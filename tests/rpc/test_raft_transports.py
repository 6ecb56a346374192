"""One suite for both transports: what the consensus core may expect of them."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.errors import InvariantViolation
from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    RaftRequest,
    RaftResponse,
    VoteResponse,
)
from migrator.raft.transport import (
    ForeignClusterError,
    PeerTimeoutError,
    TransportError,
    UnreachableError,
)
from migrator.rpc.quorum_service import ImageDigest, NodeAddress, QuorumService
from migrator.rpc.raft_transport import GrpcRaftTransport, PeerAddress
from migrator.rpc.server import GrpcServer
from migrator.wire.raft_codec import ListenerEndpoint
from tests.node.support.slow_link import slow_link
from tests.patience import PATIENCE_SECONDS
from tests.rpc.support.identities import IDENTITIES, voter
from tests.rpc.support.transports import (
    CLUSTER,
    EXCHANGES,
    OK,
    PEER,
    VOTE,
    VOTED,
    Grpc,
    Kind,
    View,
    answering,
    connected,
    grpc_transport,
)
from tests.wire.support.babbler import babbling


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


async def test_a_peer_far_away_is_reached(kind: Kind) -> None:
    """The way to another continent takes longer than an attempt to connect may take at home."""
    async with (
        kind.serve(answering((VOTE, VOTED))) as behind,
        slow_link(behind, 0.15) as far,
        connected(kind, far.port) as transport,
    ):
        assert await transport.send(PEER, VOTE, 10) == VOTED


async def test_a_peer_that_is_down_is_unreachable(kind: Kind, unused_tcp_port: int) -> None:
    async with connected(kind, unused_tcp_port) as transport:
        with pytest.raises((UnreachableError, PeerTimeoutError)):
            await transport.send(PEER, VOTE, 5)


async def test_a_peer_that_comes_back_is_found(kind: Kind, unused_tcp_port: int) -> None:
    async with connected(kind, unused_tcp_port) as transport:
        with pytest.raises(TransportError):
            await transport.send(PEER, VOTE, 5)
        async with kind.serve(answering((VOTE, VOTED)), unused_tcp_port):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    with contextlib.suppress(TransportError):
                        assert await transport.send(PEER, VOTE, 5) == VOTED
                        break


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


async def test_grpc_gossips_addresses() -> None:
    view = View()
    server = GrpcServer([QuorumService(CLUSTER, answering(), view)], IDENTITIES)
    port = server.listen("127.0.0.1", 0, voter(PEER))
    await server.start()
    transport = grpc_transport(port)
    try:
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
        assert (await transport.image_digest(PEER, 40, replay=False, timeout=PATIENCE_SECONDS)).offset == -1
        assert await transport.image_digest(PEER, 40, replay=True, timeout=PATIENCE_SECONDS) == ImageDigest(
            41, 2**127 + 40
        )
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
