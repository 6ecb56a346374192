"""Clients by node id, at addresses that change."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    RaftRequest,
    RaftResponse,
    VoteRequest,
    VoteResponse,
)
from migrator.raft.transport import UnreachableError
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.wire.peer_clients import CLIENTS_MAX, PeerClients
from migrator.wire.principal import ANONYMOUS
from migrator.wire.raft_codec import ListenerEndpoint, decode_raft_response, encode_raft_request
from migrator.wire.raft_transport import KafkaRaftTransport, RaftService
from migrator.wire.requests import RequestContext
from migrator.wire.server import KafkaListener

PEER = 2
OK = ErrorCode.none
CLUSTER = "qYoMEZXcS_SKP2PzAl8-WA"
VOTE = VoteRequest(CLUSTER, PEER, 7, 1, 6, 100)
DISK = Uuid(b"d" * 16)


@asynccontextmanager
async def voter(epoch: int, leader_id: int = -1, find: Any = lambda _: None) -> AsyncIterator[int]:
    async def answer(_request: RaftRequest) -> RaftResponse:
        return VoteResponse(OK, OK, leader_id, epoch, vote_granted=False)

    listener = KafkaListener("CONTROLLER", RaftService(answer, find))
    port = await listener.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await listener.close(grace=0)


async def test_a_peer_that_moved_is_asked_at_its_new_address() -> None:
    known: dict[int, ListenerEndpoint] = {}
    transport = KafkaRaftTransport(1, known.get)
    try:
        with pytest.raises(UnreachableError, match="no known address"):
            await transport.send(PEER, VOTE, 10)
        async with voter(100) as old, voter(200) as new:
            known[PEER] = ListenerEndpoint("CONTROLLER", "127.0.0.1", old)
            assert (await transport.send(PEER, VOTE, 10)).leader_epoch == 100
            first = transport.client(PEER)
            assert first is not None
            known[PEER] = ListenerEndpoint("CONTROLLER", "127.0.0.1", new)
            assert (await transport.send(PEER, VOTE, 10)).leader_epoch == 200
            assert first.connection is None, "the old connection is dropped"
            held = transport.client(PEER)
            assert held is not None
            assert held.port == new
    finally:
        await transport.close()


async def test_only_so_many_clients_are_kept() -> None:
    clients = PeerClients(lambda node: ListenerEndpoint("CONTROLLER", "127.0.0.1", 1 + node), "test")
    first = await clients.get(0)
    for node in range(1, CLIENTS_MAX):
        await clients.get(node)
    assert await clients.get(0) is first
    await clients.get(CLIENTS_MAX)
    assert clients.held(0) is first
    assert clients.held(1) is None, "it was used least recently"
    await clients.close()


async def test_who_leads_and_where_is_heard_of_a_peers_answer() -> None:
    heard: list[tuple[int, int, str, int]] = []
    async with voter(7, 3, lambda _: ListenerEndpoint("CONTROLLER", "three", 9093)) as port:
        at = ListenerEndpoint("CONTROLLER", "127.0.0.1", port)
        transport = KafkaRaftTransport(1, {PEER: at}.get, told=lambda *told: heard.append(told))
        try:
            await transport.send(PEER, VOTE, 10)
        finally:
            await transport.close()
    assert heard == [(3, 7, "three", 9093)]


class Node:
    """The receiving side of one node at kraft.version 1 that knows where node 3 is, and nobody else."""

    def __init__(self, response: RaftResponse, kraft_version: int = 1) -> None:
        self.heard: list[tuple[int, int, str, int]] = []
        self.asked: list[RaftRequest] = []
        self._response = response
        self._service = RaftService(
            self._answer,
            {3: ListenerEndpoint("CONTROLLER", "three", 9093)}.get,
            told=lambda *told: self.heard.append(told),
            listener="CONTROLLER",
            kraft_version=lambda: kraft_version,
        )

    async def _answer(self, request: RaftRequest) -> RaftResponse:
        self.asked.append(request)
        return self._response

    async def ask(self, request: RaftRequest, version: int, *endpoints: ListenerEndpoint) -> Any:
        body = encode_raft_request(request, version, endpoints)
        context = RequestContext(body.__api_key__, version, 1, None, ANONYMOUS, "CONTROLLER", "127.0.0.1")
        return await self._service.handle(context, body)


FETCH = FetchRequest(CLUSTER, 4, 7, 0, 0, 0, 1 << 20, DISK)
FETCHED = FetchResponse(OK, OK, 3, 7, 0, 0, records=b"x" * 100)


async def test_a_leader_whose_endpoint_nobody_knows_is_not_named() -> None:
    """It would end a stock peer whose voter set lacks that leader."""
    for leader_id, named in ((3, 3), (4, -1)):
        response = decode_raft_response(await Node(VoteResponse(OK, OK, leader_id, 7, vote_granted=False)).ask(VOTE, 1))
        assert (response.leader_id, response.leader_epoch) == (named, 7)
    static = Node(VoteResponse(OK, OK, 4, 7, vote_granted=False), kraft_version=0)
    assert decode_raft_response(await static.ask(VOTE, 1)).leader_id == 4


@pytest.mark.parametrize("version", range(13, 18))
async def test_who_cannot_read_voters_in_the_log_gets_no_part_of_it(version: int) -> None:
    node = Node(FETCHED)
    response = decode_raft_response(await node.ask(FETCH, version))
    assert isinstance(response, FetchResponse)
    if version < 17:
        assert (response.top_error, response.records) == (ErrorCode.unsupported_version, b"")
        assert not node.asked, "nor does it count as an observer"
    else:
        assert (response.top_error, response.records) == (OK, FETCHED.records)
    static = decode_raft_response(await Node(FETCHED, kraft_version=0).ask(FETCH, version))
    assert isinstance(static, FetchResponse)
    assert static.records == FETCHED.records


async def test_a_leader_says_where_it_is_and_only_the_listener_of_peers_counts() -> None:
    node = Node(BeginQuorumEpochResponse(OK, OK, 3, 7))
    other, ours = ListenerEndpoint("OTHER", "other", 1), ListenerEndpoint("CONTROLLER", "new", 2)
    await node.ask(BeginQuorumEpochRequest(CLUSTER, 1, 3, 7, DISK), 1, other, ours)
    await node.ask(EndQuorumEpochRequest(CLUSTER, 3, 8, (1,)), 1, ours)
    await node.ask(BeginQuorumEpochRequest(CLUSTER, 1, 3, 9), 0, ours)
    await node.ask(BeginQuorumEpochRequest(CLUSTER, 1, 3, 10), 1, other)
    assert node.heard == [(3, 7, "new", 2), (3, 8, "new", 2)]
    assert node.asked[0] == BeginQuorumEpochRequest(CLUSTER, 1, 3, 7, DISK)


def test_preferred_successors_are_named_with_their_directories() -> None:
    body = encode_raft_request(EndQuorumEpochRequest(CLUSTER, 3, 8, (1, 2), (DISK, ZERO_UUID)), 1)
    named = body.topics[0].partitions[0].preferred_candidates
    assert [(each.candidate_id, each.candidate_directory_id) for each in named] == [
        (1, uuid.UUID(bytes=DISK)),
        (2, None),
    ]
