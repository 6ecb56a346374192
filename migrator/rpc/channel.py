"""The bounds of gRPC connections, on both sides: sizes of messages, numbers of calls and connections, times.

Every client and server of this room takes its options from here. A server keeps its bounds before it knows who calls. A
change of a size has to fit both sides, also those of an earlier release.
"""

from __future__ import annotations

from typing import Any

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The limit of a response in bytes. A Fetch response has at most 8 MiB of records, or one batch of at most 8 MiB; the
rest is reserve."""
MAX_REQUEST_BYTES = 64 * 1024
"""Far above every request of the services; the longest one has an operator's reason."""
CLUSTER_KEY = "migrator-cluster-id"

HANDSHAKE_MS = 10_000
IDLE_MS = 600_000
"""The same default as Kafka's ``connections.max.idle.ms``."""
MAX_CONNECTIONS = 1_000
"""The most connections, so that they do not use up the file descriptors of log, ZooKeeper and Kafka listener."""

MAX_CALLS = 2_000
"""The limit of calls in progress of all callers together; `migrator.rpc.doorkeeper` has a limit for each caller."""

OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


ATTEMPT_MS = 100
"""Milliseconds for an attempt to connect to a server that is near."""


def client_options(attempt_ms: int = ATTEMPT_MS) -> tuple[tuple[str, int], ...]:
    """Options of a channel.

    :param attempt_ms: for an attempt to connect (TCP, TLS, SETTINGS); when it is over, a call that waits fails.
    """
    return (
        *OPTIONS,
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", attempt_ms),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        # An address by descriptor names another directory when the number is used again: never share its connection.
        ("grpc.use_local_subchannel_pool", 1),
    )


CLIENT_OPTIONS = client_options()


def server_options(handshake_ms: int = HANDSHAKE_MS, connections: int = MAX_CONNECTIONS) -> tuple[tuple[str, int], ...]:
    """Limits of a server: before the caller's identity is known, and after.

    :param handshake_ms: for TLS and the first bytes of HTTP/2; gRPC's own bound is two minutes.
    """
    return (
        *OPTIONS,
        ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        # Else the window of a connection grows as fast as it is filled: a certificate without any right held 45 MiB a
        # connection with requests that are refused.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.max_concurrent_streams", 100),
        ("grpc.server_handshake_timeout_ms", handshake_ms),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_connection_idle_ms", IDLE_MS),
    )


def host_port(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def metadata_value(metadata: Any, key: str) -> str | None:
    """The text of a call's metadata under ``key``."""
    for name, text in metadata or ():
        if name == key:
            return text if isinstance(text, str) else text.decode("utf-8", "replace")
    return None
