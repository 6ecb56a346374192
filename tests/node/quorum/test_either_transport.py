"""A voter is reached over gRPC where it answers there, and over the Kafka protocol where it does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from migrator.node.quorum.transports import EitherTransport
from migrator.parts.processes import free_port
from migrator.raft.messages import RaftRequest, RaftResponse, VoteRequest, VoteResponse
from migrator.raft.transport import RaftHandler, TransportError
from migrator.wire.api_versions import OUR_FEATURE, OUR_FEATURE_RANGE, Features
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import NO_PRE_VOTES, KafkaRaftTransport, RaftService
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import SERVED_APIS
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS
from tests.rpc.support.transports import OK, PEER, VOTE, Grpc, grpc_transport

PRE_VOTE = VoteRequest("cluster", PEER, 5, 1, 4, 100, pre_vote=True)

OVER_GRPC, OVER_KAFKA = 100, 200
"""Leader epochs, by which the answers are told apart."""


def answer(epoch: int) -> RaftHandler:
    async def respond(_request: RaftRequest) -> RaftResponse:
        return VoteResponse(OK, OK, -1, epoch, vote_granted=True)

    return respond


class Peer:
    """A voter on two fixed ports, on each of which it may or may not listen."""

    def __init__(self, kafka_port: int, grpc_port: int) -> None:
        self.kafka_port = kafka_port
        self.grpc_port = grpc_port
        self.transport = EitherTransport(
            grpc_transport(grpc_port),
            KafkaRaftTransport(1, {PEER: ListenerEndpoint("CONTROLLER", "127.0.0.1", kafka_port)}.get),
        )

    @asynccontextmanager
    async def serves(self, *, kafka: bool = False, grpc: bool = False, is_ours: bool = False) -> AsyncIterator[None]:
        features = Features({OUR_FEATURE: OUR_FEATURE_RANGE} if is_ours else {}, {})
        async with AsyncExitStack() as stack:
            if kafka:
                service = RaftService(answer(OVER_KAFKA), lambda _: None)
                listener = KafkaListener("CONTROLLER", service, features=lambda: features)
                await listener.start("127.0.0.1", self.kafka_port)
                stack.push_async_callback(listener.close, grace=0)
            if grpc:
                await stack.enter_async_context(Grpc().serve(answer(OVER_GRPC), self.grpc_port))
            yield

    async def way(self, timeout: float = 10.0) -> int:
        """How a request was answered."""
        response = await self.transport.send(PEER, VOTE, timeout)
        return response.leader_epoch

    async def way_in_the_end(self, wanted: int) -> None:
        """gRPC leaves a port alone for a second after a connection that failed, as one does that a busy machine does
        not make in time."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.way() != wanted:
                await asyncio.sleep(0.05)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    found = Peer(free_port(), free_port())
    yield found
    await found.transport.close()


async def test_grpc_is_used_where_it_is_answered(peer: Peer) -> None:
    async with peer.serves(kafka=True, grpc=True, is_ours=True):
        await peer.way_in_the_end(OVER_GRPC)


async def test_a_stock_voter_takes_the_place_of_ours_and_goes_again(peer: Peer) -> None:
    async with peer.serves(kafka=True, grpc=True, is_ours=True):
        await peer.way_in_the_end(OVER_GRPC)
    async with peer.serves(kafka=True):
        assert await peer.way() == OVER_KAFKA
        assert await peer.way() == OVER_KAFKA
    with pytest.raises(TransportError):
        await peer.way()
    async with peer.serves(kafka=True, grpc=True, is_ours=True):
        await peer.way_in_the_end(OVER_GRPC)


async def test_ours_is_reached_over_grpc_again_once_it_listens_there(peer: Peer) -> None:
    async with peer.serves(kafka=True, is_ours=True):
        assert await peer.way() == OVER_KAFKA
        async with peer.serves(grpc=True):
            await peer.way_in_the_end(OVER_GRPC)


async def test_a_port_that_swallows_everything_delays_only_the_first_request(peer: Peer) -> None:
    """A firewall does this. gRPC gives up on the connection before the request's time is over."""
    with socket.create_server(("127.0.0.1", peer.grpc_port)):
        async with peer.serves(kafka=True):
            assert await peer.way() == OVER_KAFKA
            assert await peer.way() == OVER_KAFKA


async def pre_vote(port: int) -> VoteResponse:
    return await asked_over_kafka(port, PRE_VOTE)


async def asked_over_kafka(port: int, request: VoteRequest) -> VoteResponse:
    transport = KafkaRaftTransport(1, {PEER: ListenerEndpoint("CONTROLLER", "127.0.0.1", port)}.get)
    try:
        response = await transport.send(PEER, request, 10.0)
    finally:
        await transport.close()
    assert isinstance(response, VoteResponse)
    return response


async def test_a_peer_that_knows_pre_votes_is_asked_for_one() -> None:
    asked: list[bool] = []

    async def respond(request: RaftRequest) -> RaftResponse:
        assert isinstance(request, VoteRequest)
        asked.append(request.pre_vote)
        return VoteResponse(OK, OK, -1, OVER_KAFKA, vote_granted=True)

    listener = KafkaListener("CONTROLLER", RaftService(respond, lambda _: None), apis=SERVED_APIS)
    port = await listener.start("127.0.0.1", 0)
    try:
        assert (await pre_vote(port)).vote_granted
    finally:
        await listener.close(grace=0)
    assert asked == [True]


async def test_whoever_asks_for_a_vote_writes_what_kafka_3_9_writes() -> None:
    """Also to a peer that knows pre-votes: quorums with configured voters speak as they always have."""
    versions: list[tuple[bool, int]] = []

    class Noting(RaftService):
        async def handle(self, context: RequestContext, body: Any) -> Any:
            versions.append((getattr(body.topics[0].partitions[0], "pre_vote", False), context.api_version))
            return await super().handle(context, body)

    listener = KafkaListener("CONTROLLER", Noting(answer(OVER_KAFKA), lambda _: None), apis=SERVED_APIS)
    port = await listener.start("127.0.0.1", 0)
    try:
        for request in (PRE_VOTE, replace(PRE_VOTE, candidate_epoch=6, pre_vote=False)):
            await asked_over_kafka(port, request)
    finally:
        await listener.close(grace=0)
    assert versions == [(True, 2), (False, 1)]


async def test_of_a_peer_of_kafka_3_9_it_is_known_that_it_knows_none() -> None:
    listener = KafkaListener("CONTROLLER", RaftService(answer(OVER_KAFKA), lambda _: None))
    port = await listener.start("127.0.0.1", 0)
    try:
        assert await pre_vote(port) == NO_PRE_VOTES
    finally:
        await listener.close(grace=0)


async def test_of_a_peer_that_is_not_there_nothing_is_known() -> None:
    """Or a node that is cut off would stand for election at once, and raise the epoch (KIP-996)."""
    with pytest.raises(TransportError):
        await pre_vote(free_port())
