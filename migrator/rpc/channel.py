"""How gRPC connections are made and bounded, on both sides."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from migrator.errors import OperatorError
from migrator.values import value

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A Fetch carries up to 8 MiB, or one batch that may not be bigger either; twice that is no mistake of ours."""
CLUSTER_KEY = "migrator-cluster-id"

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)
CLIENT_OPTIONS = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # An address by descriptor names another directory when the number is used again: never share its connection.
    ("grpc.use_local_subchannel_pool", 1),
)
SERVER_OPTIONS = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_concurrent_streams", 100),
)

SOCKET_DIRECTORY = "operator"
SOCKET_NAME = "operator.sock"


@value
class TlsFiles:
    """PEM files of ``migrator.grpc.tls.*``: ours, and the CA whose peers we accept; all three are needed."""

    certificate: Path
    key: Path
    authority: Path

    def server(self) -> grpc.ServerCredentials:
        """Mutual TLS, our side.

        :raises OperatorError: a file cannot be read.
        """
        pair = _read(self.key, "key"), _read(self.certificate, "certificate")
        return grpc.ssl_server_credentials([pair], _read(self.authority, "ca"), require_client_auth=True)

    def client(self) -> grpc.ChannelCredentials:
        """Mutual TLS towards a peer.

        :raises OperatorError: a file cannot be read.
        """
        return grpc.ssl_channel_credentials(
            _read(self.authority, "ca"), _read(self.key, "key"), _read(self.certificate, "certificate")
        )


def tls_files(certificate: str, key: str, authority: str) -> TlsFiles | None:
    """From the three settings; None when none is set.

    :raises OperatorError: only some of them are.
    """
    given = certificate, key, authority
    if not any(given):
        return None
    if not all(given):
        raise OperatorError(
            "only some of the certificate, key and CA files are set",
            where="migrator.grpc.tls.*",
            remedy="Set migrator.grpc.tls.certificate.file, .key.file and .ca.file, or none of them",
        )
    return TlsFiles(Path(certificate), Path(key), Path(authority))


def open_channel(address: str, tls: TlsFiles | None) -> grpc.aio.Channel:
    """A channel that connects when it is first used, and again by itself."""
    if tls is None:
        return grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)
    return grpc.aio.secure_channel(address, tls.client(), options=CLIENT_OPTIONS)


def host_port(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def refuse_open_address(host: str, tls: TlsFiles | None) -> None:
    """Nobody but this machine may speak to us in clear.

    :raises OperatorError: ``host`` is reachable from elsewhere and there is no TLS.
    """
    if tls is None and not _is_loopback(host):
        raise OperatorError(
            f"{host or 'every interface'} is reachable from other machines, and TLS is not set up",
            where="migrator.grpc.listener",
            remedy="Set migrator.grpc.tls.certificate.file, .key.file and .ca.file, or use 127.0.0.1",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SocketDirectory:
    """The directory of the operator's socket, open only to its owner.

    A path of a socket may not exceed some hundred bytes, metadata directories may: the socket is reached through a
    descriptor of its directory.
    """

    def __init__(self, metadata_directory: Path, *, create: bool) -> None:
        """
        :raises OSError: the directory cannot be made or opened.
        """
        self.path = metadata_directory / SOCKET_DIRECTORY
        if create:
            self.path.mkdir(mode=0o700, exist_ok=True)
            self.path.chmod(0o700)
            (self.path / SOCKET_NAME).unlink(missing_ok=True)
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)

    @property
    def address(self) -> str:
        """For gRPC, in this process."""
        return f"unix:/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._descriptor)


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OperatorError(
            f"cannot read {path}: {error.strerror}", where=f"migrator.grpc.tls.{what}.file", remedy="Name a PEM file"
        ) from error


def metadata_value(metadata: Any, key: str) -> str | None:
    """The text of a call's metadata under ``key``."""
    for name, text in metadata or ():
        if name == key:
            return text if isinstance(text, str) else text.decode("utf-8", "replace")
    return None
