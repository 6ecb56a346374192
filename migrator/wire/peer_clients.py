"""One Kafka client per peer, at the peer's present address.

Transports and tasks of a node share `PeerClients`. The address is looked up before each use, so a peer that has moved
gets a new connection. The number of connections is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from migrator.raft.transport import UnreachableError
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.security import PLAINTEXT, ListenerSecurity

CLIENTS_MAX = 100
"""The most open clients. Beyond this number the least recently used one is closed."""

FindEndpoint = Callable[[int], ListenerEndpoint | None]
"""The controller listener of a node; None when it is unknown."""


class PeerClients:
    """Clients by node id. When a peer has moved, its client is replaced by one for the new address.

    :param find: called before each use.
    """

    def __init__(
        self,
        find: FindEndpoint,
        client_id: str,
        *,
        security: ListenerSecurity = PLAINTEXT,
        limits: ClientLimits | None = None,
    ) -> None:
        self._find = find
        self._client_id = client_id
        self._security = security
        self._limits = limits
        self._clients: dict[int, KafkaClient] = {}
        """The least recently used client comes first."""

    async def get(self, peer: int) -> KafkaClient:
        """The client of a peer.

        :raises UnreachableError: its address is unknown.
        """
        at, client = self._find(peer), self._clients.pop(peer, None)
        if at is None:
            if client is not None:
                await client.close()
            raise UnreachableError(f"node {peer} has no known address")
        moved = None
        if client is None or (client.host, client.port) != (at.host, at.port):
            moved = client
            client = KafkaClient(at.host, at.port, self._client_id, security=self._security, limits=self._limits)
        self._clients[peer] = client
        if moved is not None:
            await moved.close()
        if len(self._clients) > CLIENTS_MAX:
            await self._clients.pop(next(iter(self._clients))).close()
        return client

    def held(self, peer: int) -> KafkaClient | None:
        """The client of a peer, if this node has one. Its connection has the peer's API versions and features."""
        return self._clients.get(peer)

    async def close(self) -> None:
        """Drop every connection permanently; waiting requests fail with `TransportError`."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))
