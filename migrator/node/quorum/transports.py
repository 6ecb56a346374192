"""How this node reaches its peers, and on what it is reached, from its settings."""

from __future__ import annotations

import dataclasses

from migrator.config.endpoints import parse_host_port
from migrator.config.principals import names_of
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.node.quorum.either_transport import EitherTransport
from migrator.raft.transport import RaftTransport
from migrator.rpc.channel import host_port
from migrator.rpc.raft_transport import GrpcRaftTransport, PeerAddress
from migrator.rpc.tls import TlsFiles, tls_files
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.listener_settings import voter_endpoints
from migrator.wire.raft_transport import KafkaRaftTransport
from migrator.wire.security import ListenerSecurity

FALLBACK_BACKOFF_MAX_MS = 100
"""A voter that is away is tried over gRPC, then over Kafka's protocol; it must not be kept waiting once it is back."""


def peer_clients(settings: Settings, security: ListenerSecurity) -> dict[int, KafkaClient]:
    """The Kafka protocol to every other voter, for what is not consensus: registrations, and their ApiVersions."""
    return {
        voter: KafkaClient(at.host, at.port, f"controller-{settings.node_id}", security=security)
        for voter, at in voter_endpoints(settings).items()
        if voter != settings.node_id
    }


def kafka_transport(
    settings: Settings, security: ListenerSecurity, *, max_backoff_ms: int = ClientLimits().max_backoff_ms
) -> KafkaRaftTransport:
    """Consensus over the Kafka protocol."""
    peers = {voter: at for voter, at in voter_endpoints(settings).items() if voter != settings.node_id}
    own = voter_endpoints(settings).get(settings.node_id)
    limits = ClientLimits(backoff_ms=settings.controller_quorum_retry_backoff_ms, max_backoff_ms=max_backoff_ms)
    return KafkaRaftTransport(
        settings.node_id, peers, own_endpoints=() if own is None else (own,), security=security, limits=limits
    )


def grpc_tls(settings: Settings) -> TlsFiles:
    """Mutual TLS of gRPC, with a certificate that is this voter's own.

    :raises OperatorError: the files cannot be used, or the certificate is somebody else's.
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


def raft_transport(settings: Settings, cluster_id: str, security: ListenerSecurity) -> RaftTransport:
    """The Kafka protocol; with ``migrator.grpc.voters`` gRPC where it is answered."""
    if not settings.grpc_voters:
        return kafka_transport(settings, security)
    peers = {
        voter.voter_id: PeerAddress(
            host_port(voter.host, voter.port), names_of(settings.grpc_voter_principals, (voter.voter_id,))
        )
        for voter in settings.grpc_voters
        if voter.voter_id != settings.node_id
    }
    grpc = GrpcRaftTransport(cluster_id, peers, grpc_tls(settings))
    return EitherTransport(grpc, kafka_transport(settings, security, max_backoff_ms=FALLBACK_BACKOFF_MAX_MS))


def grpc_address(settings: Settings) -> tuple[str, int] | None:
    """Where our gRPC server listens on TCP, if anywhere."""
    return parse_host_port(settings.migrator_grpc_listener) if settings.migrator_grpc_listener else None
