"""How this node reaches its peers, and on what it is reached, from its settings."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.config.endpoints import parse_host_port
from migrator.config.settings import Settings
from migrator.node.either_transport import EitherTransport
from migrator.rpc.channel import TlsFiles, host_port, tls_files
from migrator.rpc.raft_transport import GrpcRaftTransport
from migrator.rpc.transport import RaftTransport
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.raft_codec import Endpoint
from migrator.wire.raft_transport import KafkaRaftTransport
from migrator.wire.security import ListenerSecurity, listener_security
from migrator.wire.server import ListenerLimits

FALLBACK_BACKOFF_MAX_MS = 100
"""A voter that is away is tried over gRPC, then over Kafka's protocol; it must not be kept waiting once it is back."""


def controller_security(settings: Settings) -> ListenerSecurity:
    """Security of the listener that peers and brokers use, the first of ``controller.listener.names``.

    :raises OperatorError: a key can't be used.
    """
    return named_security(settings, settings.controller_listeners[0])


def named_security(settings: Settings, name: str) -> ListenerSecurity:
    """Security of one of our listeners; errors as `controller_security`."""
    return listener_security(
        settings.explicit,
        name,
        settings.protocol_map[name],
        client_mechanism=settings.sasl_mechanism_controller_protocol,
    )


def broker_security(settings: Settings) -> ListenerSecurity:
    """How we log in at the brokers for LeaderAndIsr and its like; errors as `controller_security`."""
    name = settings.broker_rpc_listener
    return listener_security(
        settings.explicit,
        name,
        settings.protocol_map[name],
        client_mechanism=settings.sasl_mechanism_inter_broker_protocol,
    )


def listener_limits(settings: Settings) -> ListenerLimits:
    """Bounds of every listener."""
    return ListenerLimits(
        max_request_bytes=settings.socket_request_max_bytes,
        max_idle_ms=settings.connections_max_idle_ms,
        max_connections=settings.max_connections,
        max_connections_per_ip=settings.max_connections_per_ip,
        backlog=settings.socket_listen_backlog_size,
    )


def voter_endpoints(settings: Settings) -> Mapping[int, Endpoint]:
    """Where each voter's controller listener is, as ``controller.quorum.voters`` says."""
    name = settings.controller_listeners[0]
    return {voter.voter_id: Endpoint(name, voter.host, voter.port) for voter in settings.voters}


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


def grpc_tls(settings: Settings) -> TlsFiles | None:
    """Mutual TLS of gRPC; None when it is not set up.

    :raises OperatorError: only some of the three files are named.
    """
    return tls_files(
        settings.migrator_grpc_tls_certificate_file,
        settings.migrator_grpc_tls_key_file,
        settings.migrator_grpc_tls_ca_file,
    )


def raft_transport(settings: Settings, cluster_id: str, security: ListenerSecurity) -> RaftTransport:
    """The Kafka protocol; with ``migrator.grpc.voters`` gRPC where it is answered."""
    if not settings.grpc_voters:
        return kafka_transport(settings, security)
    peers = {
        voter.voter_id: host_port(voter.host, voter.port)
        for voter in settings.grpc_voters
        if voter.voter_id != settings.node_id
    }
    grpc = GrpcRaftTransport(cluster_id, peers, grpc_tls(settings))
    return EitherTransport(grpc, kafka_transport(settings, security, max_backoff_ms=FALLBACK_BACKOFF_MAX_MS))


def grpc_address(settings: Settings) -> tuple[str, int] | None:
    """Where our gRPC server listens on TCP, if anywhere."""
    return parse_host_port(settings.migrator_grpc_listener) if settings.migrator_grpc_listener else None
