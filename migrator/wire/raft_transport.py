"""The consensus core's messages over the Kafka protocol: to peers, and from peers and brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from migrator.errors import PeerError
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.transport import PeerTimeoutError, RaftHandler, TransportError, UnreachableError
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.connection import RequestContext
from migrator.wire.raft_codec import (
    RAFT_APIS,
    InvalidRaftRequestError,
    ListenerEndpoint,
    decode_raft_request,
    decode_raft_response,
    encode_raft_request,
    encode_raft_response,
    error_response,
)
from migrator.wire.security import PLAINTEXT, ListenerSecurity

LEARNED_MAX = 100
"""Controllers known at most, whatever peers tell."""


class KafkaRaftTransport:
    """A `RaftTransport`: one connection and one request in flight per peer, on its controller listener.

    :param peers: node id -> where it is.
    :param own_endpoints: our controller listeners, which we tell voters when we lead.
    :param learns: whether to reach controllers at addresses that others tell (KIP-853), too.
    """

    def __init__(
        self,
        node_id: int,
        peers: Mapping[int, ListenerEndpoint],
        *,
        own_endpoints: tuple[ListenerEndpoint, ...] = (),
        security: ListenerSecurity = PLAINTEXT,
        limits: ClientLimits | None = None,
        learns: bool = False,
    ) -> None:
        self._own_endpoints = own_endpoints
        self._learns = learns
        self._connect: Callable[[str, int], KafkaClient] = partial(
            KafkaClient, client_id=f"raft-client-{node_id}", security=security, limits=limits
        )
        self._clients = {peer: self._connect(at.host, at.port) for peer, at in peers.items()}

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """The peer's answer, which has the type that belongs to the request's (see `RaftTransport`)."""
        client = self._clients.get(peer)
        if client is None:
            raise UnreachableError(f"node {peer} has no known address")
        api_key, ours = RAFT_APIS[type(request)]
        try:
            async with asyncio.timeout(timeout):
                version = await client.highest_version(api_key, ours, timeout)
                body = encode_raft_request(request, version, self._own_endpoints)
                response = await client.request(body, timeout)
        except TimeoutError as error:
            raise PeerTimeoutError(f"node {peer} did not answer within {timeout} s") from error
        if self._learns:
            self._learn(response)
        try:
            return decode_raft_response(response)
        except PeerError as error:
            raise TransportError(f"node {peer}: {error}") from error

    def _learn(self, response: Any) -> None:
        for node in getattr(response, "node_endpoints", ()):
            if node.node_id not in self._clients and len(self._clients) < LEARNED_MAX:
                self._clients[node.node_id] = self._connect(node.host, node.port)

    def client(self, peer: int) -> KafkaClient | None:
        """The connection to a peer, whose ApiVersions tell whether it is ready to migrate."""
        return self._clients.get(peer)

    async def close(self) -> None:
        """Drop every connection; requests that wait fail with `TransportError` (see `RaftTransport`)."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))


class RaftService:
    """The receiving side, for a listener's handler.

    :param handler: the core's runner.
    :param leader_endpoint: where a node's controller listener is, told to peers and brokers.
    """

    def __init__(self, handler: RaftHandler, leader_endpoint: Callable[[int], ListenerEndpoint | None]) -> None:
        self._handler = handler
        self._leader_endpoint = leader_endpoint

    async def handle(self, context: RequestContext, body: Any) -> Any:
        """The response to a request of one of `RAFT_APIS`' keys."""
        try:
            request = decode_raft_request(body)
        except InvalidRaftRequestError as error:
            return error_response(context.api_key, context.api_version, error.error)
        response = await self._handler(request)
        return encode_raft_response(response, context.api_version, self._leader_endpoint)
