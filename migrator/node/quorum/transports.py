"""Makes this node's transports to its peers from its settings: Kafka's protocol, or gRPC with Kafka's protocol behind
it.

`node.node` calls it at the start. Without ``migrator.grpc.*`` keys only Kafka's protocol is used, so a stock property
file runs unchanged. With ``migrator.grpc.voters`` a peer that does not answer over gRPC is reached over Kafka's
protocol.

`EitherTransport` sends messages of consensus over gRPC to our own nodes, and over the Kafka protocol to stock voters of
the same quorum.

A request that one transport could not deliver goes over the other at once, because a restart may have changed the
voter's program.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from migrator.config.endpoints import parse_host_port
from migrator.config.principals import names_of
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.gossip import Gossip
from migrator.raft.events import Failure
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.transport import RaftTransport, UnreachableError
from migrator.raft.voter_set import DYNAMIC_VERSION
from migrator.rpc.raft_transport import GrpcRaftTransport
from migrator.rpc.tls import Connect, TlsFiles, tls_files
from migrator.wire.client import ClientLimits
from migrator.wire.peer_clients import PeerClients
from migrator.wire.raft_transport import KafkaRaftTransport
from migrator.wire.security import ListenerSecurity

log = logging.getLogger(__name__)


class EitherTransport:
    """A `RaftTransport`: gRPC, unless the peer does not answer there. Any restart of a voter may change its program.

    A request that one of the two could not deliver is sent by the other at once.
    """

    def __init__(self, grpc: GrpcRaftTransport, kafka: KafkaRaftTransport) -> None:
        self.grpc = grpc
        self._kafka = kafka
        self._said: set[int] = set()

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """See `RaftTransport`."""
        deadline = asyncio.get_running_loop().time() + timeout
        first: RaftTransport = self.grpc
        second: RaftTransport = self._kafka
        if self._is_stock(peer):
            first, second = second, first
        try:
            return await first.send(peer, request, timeout)
        except UnreachableError as error:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise
            failed = error
        try:
            response = await second.send(peer, request, left)
        except UnreachableError as error:
            if failed.how is not Failure.NO_ANSWER and error.how is not Failure.CONNECTION_LOST:
                raise failed from None  # this error tells more of the peer's process
            raise
        if second is self._kafka and peer not in self._said:
            self._said.add(peer)
            log.info(
                "Controller %d does not answer over gRPC. It answers over the Kafka protocol, which is used instead",
                peer,
            )
        return response

    def _is_stock(self, peer: int) -> bool:
        """Whether there is a connection over the Kafka protocol, and the peer is not this program."""
        client = self._kafka.client(peer)
        connection = None if client is None else client.connection
        return connection is not None and connection.alive and not connection.features.is_ours

    async def close(self) -> None:
        """See `RaftTransport`."""
        await asyncio.gather(self.grpc.close(), self._kafka.close())


FALLBACK_BACKOFF_MAX_MS = 100
"""The longest back-off to a voter that is tried over gRPC and then over Kafka's protocol: once it is back, it must not
wait long."""


def peer_clients(addresses: Addresses, security: ListenerSecurity) -> PeerClients:
    """Clients of the Kafka protocol to other nodes, for everything except consensus."""
    return PeerClients(addresses.find, f"controller-{addresses.node_id}", security=security)


def kafka_transport(
    settings: Settings,
    addresses: Addresses,
    security: ListenerSecurity,
    *,
    max_backoff_ms: int = ClientLimits().max_backoff_ms,
) -> KafkaRaftTransport:
    """Consensus over the Kafka protocol."""
    return KafkaRaftTransport(
        settings.node_id,
        addresses.find,
        told=addresses.told_by_peer,
        own_endpoints=addresses.own_endpoints,
        security=security,
        limits=ClientLimits(backoff_ms=settings.controller_quorum_retry_backoff_ms, max_backoff_ms=max_backoff_ms),
    )


def grpc_tls(settings: Settings) -> TlsFiles:
    """Mutual TLS of gRPC, with this voter's own certificate.

    :raises OperatorError: the files are not usable, or the certificate belongs to another node.
    """
    files = tls_files(settings)
    own = files.own()
    named = None if own.principal is None else settings.grpc_voter_principals.get(own.principal)
    if named != settings.node_id:
        raise OperatorError(
            f"the certificate is {own.principal or 'without a subject'}, "
            + ("which stands for nobody" if named is None else f"which stands for voter {named}")
            + f", and this is node {settings.node_id}",
            where=f"{settings.source}: migrator.grpc.voter.principals",
            remedy=f"Add {settings.node_id}@{own.principal or 'User:SUBJECT'} on every controller, or give this node "
            "its own certificate",
        )
    return dataclasses.replace(files, principals=names_of(settings.grpc_voter_principals, (settings.node_id,)))


def raft_transport(
    settings: Settings,
    cluster_id: str,
    addresses: Addresses,
    gossip: Gossip,
    security: ListenerSecurity,
    connect_grpc: Connect,
) -> RaftTransport:
    """Consensus over the Kafka protocol; with ``migrator.grpc.voters``, over gRPC with peers that answer there."""
    if not settings.grpc_voters:
        return kafka_transport(settings, addresses, security)
    grpc = GrpcRaftTransport(
        cluster_id,
        gossip.find,
        grpc_tls(settings),
        told=addresses.told_by_peer,
        own_endpoint=lambda: addresses.own() if addresses.kraft_version >= DYNAMIC_VERSION else None,
        connect=connect_grpc,
    )
    return EitherTransport(grpc, kafka_transport(settings, addresses, security, max_backoff_ms=FALLBACK_BACKOFF_MAX_MS))


def grpc_address(settings: Settings) -> tuple[str, int] | None:
    """The TCP address of our gRPC server, if it has one."""
    return parse_host_port(settings.migrator_grpc_listener) if settings.migrator_grpc_listener else None
