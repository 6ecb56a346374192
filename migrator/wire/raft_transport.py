"""Sends and receives the consensus core's messages over the Kafka protocol.

`QuorumRunner` sends through `KafkaRaftTransport`; the endpoint gives requests to `RaftService`. One request is in
flight for each peer. A peer of Kafka 3.9 knows no pre-votes; the transport answers in its place that it does not. With
voters in the log an answer never names a leader without an address, because a stock node would end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    RaftRequest,
    RaftResponse,
    VoteRequest,
    VoteResponse,
)
from migrator.raft.transport import PeerTimeoutError, RaftHandler, TransportError
from migrator.raft.voter_set import DYNAMIC_VERSION
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.peer_clients import FindEndpoint, PeerClients
from migrator.wire.raft_codec import (
    PRE_VOTE_VERSIONS,
    PRE_VOTES_SINCE,
    RAFT_APIS,
    InvalidRaftRequestError,
    ListenerEndpoint,
    decode_raft_request,
    decode_raft_response,
    encode_raft_request,
    encode_raft_response,
    error_response,
)
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import FETCH, FETCH_SNAPSHOT
from migrator.wire.security import PLAINTEXT, ListenerSecurity

Told = Callable[[int, int, str, int], None]
"""Called with the leader that a peer names: its node id, the epoch, and its host and port."""


def ignore(_node_id: int, _epoch: int, _host: str, _port: int) -> None:
    """Do nothing: the default, which ignores the leaders' addresses that peers name."""


NO_PRE_VOTES = VoteResponse(ErrorCode.unsupported_version, ErrorCode.none, -1, -1, vote_granted=False)
"""The answer in place of a peer of Kafka 3.9, which knows no pre-votes."""


class KafkaRaftTransport:
    """A `RaftTransport`: one connection and one request in flight per peer, on its controller listener.

    :param find: the present address of a peer.
    :param told: called with the leader endpoints that peers name (KIP-853).
    :param own_endpoints: this node's controller listeners, which it sends to the voters when it leads.
    """

    def __init__(
        self,
        node_id: int,
        find: FindEndpoint,
        *,
        told: Told = ignore,
        own_endpoints: tuple[ListenerEndpoint, ...] = (),
        security: ListenerSecurity = PLAINTEXT,
        limits: ClientLimits | None = None,
    ) -> None:
        self._told = told
        self._own_endpoints = own_endpoints
        self._clients = PeerClients(find, f"raft-client-{node_id}", security=security, limits=limits)

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """See `RaftTransport`."""
        api_key, ours = RAFT_APIS[type(request)]
        is_pre_vote = isinstance(request, VoteRequest) and request.pre_vote
        client = await self._clients.get(peer)
        try:
            async with asyncio.timeout(timeout):
                version = await client.highest_version(api_key, PRE_VOTE_VERSIONS if is_pre_vote else ours, timeout)
                if is_pre_vote and version < PRE_VOTES_SINCE:
                    return NO_PRE_VOTES  # only if the peer is connected: a node that is cut off must not raise epochs
                body = encode_raft_request(request, version, self._own_endpoints)
                response = await client.request(body, timeout)
        except TimeoutError as error:
            raise PeerTimeoutError(f"node {peer} did not answer within {timeout} s") from error
        try:
            decoded = decode_raft_response(response)
        except PeerError as error:
            raise TransportError(f"node {peer}: {error}") from error
        for node in getattr(response, "node_endpoints", ()):
            self._told(node.node_id, decoded.leader_epoch, node.host, node.port)
        return decoded

    def client(self, peer: int) -> KafkaClient | None:
        """The client of a peer, if there is one. Its ApiVersions say whether the peer is ready to migrate."""
        return self._clients.held(peer)

    async def close(self) -> None:
        """See `RaftTransport`."""
        await self._clients.close()


READS_VOTERS_SINCE = {FETCH: 17, FETCH_SNAPSHOT: 1}
"""The first versions that software sends which can read voters in the log. Brokers before 3.9 end on such records."""


class RaftService:
    """The receiving side, for a listener's handler.

    :param handler: the core's runner.
    :param find: the controller listener of a node, for answers to peers and brokers.
    :param told: called with the addresses of leaders that announce themselves.
    :param listener: the name of the listener on which leaders are reached.
    :param kraft_version: the present kraft.version in the log.
    """

    def __init__(
        self,
        handler: RaftHandler,
        find: FindEndpoint,
        *,
        told: Told = ignore,
        listener: str = "",
        kraft_version: Callable[[], int] = lambda: 0,
    ) -> None:
        self._handler = handler
        self._find = find
        self._told = told
        self._listener = listener
        self._kraft_version = kraft_version

    async def handle(self, context: RequestContext, body: Any) -> Any:
        """The response to a request of one of `RAFT_APIS`' keys."""
        key, version = context.api_key, context.api_version
        try:
            request = decode_raft_request(body)
        except InvalidRaftRequestError as error:
            return error_response(key, version, error.error)
        if version < READS_VOTERS_SINCE.get(key, 0) and self._kraft_version() >= DYNAMIC_VERSION:
            return error_response(key, version, ErrorCode.unsupported_version)
        if isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            for at in getattr(body, "leader_endpoints", ()):
                if at.name == self._listener:
                    self._told(request.leader_id, request.leader_epoch, at.host, at.port)
        response = await self._handler(request)
        if response.leader_id >= 0 and self._kraft_version() >= DYNAMIC_VERSION:
            response = self._without_unknown_leader(response)
        return encode_raft_response(response, version, self._find)

    def _without_unknown_leader(self, response: RaftResponse) -> RaftResponse:
        """Leave out a leader without a known address: a stock node ends when an answer names a leader that is not in
        its voter set, without the leader's address."""
        return response if self._find(response.leader_id) is not None else replace(response, leader_id=-1)
