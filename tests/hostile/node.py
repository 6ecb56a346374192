"""A true controller in one process: log on disk, consensus, decisions, the endpoints of its doors; no sockets."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio

from migrator.config.settings import Settings
from migrator.log.metadata_log import MetadataLog
from migrator.node.core import NodeCore, OpenedDirectory
from migrator.node.node import _listeners
from migrator.node.quorum.gossip import Gossip
from migrator.node.quorum.view import NodeQuorumView
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.transport import RaftTransport, UnreachableError
from migrator.rpc.channel import CLUSTER_KEY
from migrator.rpc.quorum_service import QuorumService
from migrator.wire.book import Share
from migrator.wire.decode import decode_body
from migrator.wire.encode import encode_entity
from migrator.wire.envelope import Envelope
from migrator.wire.principal import Principal
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import (
    ENVELOPE,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_type,
    response_type,
)
from migrator.wire.server import KafkaListener
from tests.node.support.cluster import CLUSTER_ID, Cluster, Wires

ADMIN = Principal("User", "admin")
NODE_ID = 1
KEYS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": "secret",
    "early.start.listeners": "CONTROLLER",
}


class AbortedError(Exception):
    """A gRPC method has refused a call with a status."""


class GrpcContext:
    """Of one call on a gRPC service that is called without gRPC."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((CLUSTER_KEY, CLUSTER_ID),)

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        raise AbortedError(code, details)

    def auth_context(self) -> dict[str, Any]:
        return {}

    def peer(self) -> str:
        return "unix:"


class _Wires(Wires):
    def __init__(self, transport: RaftTransport) -> None:
        super().__init__()
        self.transport = transport

    def to(self, node_id: int) -> Any:
        return self.transport


class Errors(logging.Handler):
    """The log line of a task that ends by an unexpected error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(record.exc_info[1])


class Node:
    """Controller 1 of ``voters``; started and stopped as often as one likes, on one directory."""

    def __init__(self, directory: Path, voters: int, transport: RaftTransport, seed: int) -> None:
        self.cluster = Cluster(directory, voters, **KEYS)
        self.cluster.wires = _Wires(transport)
        self.cluster.format()
        self.errors = Errors()
        self._random = Random(seed)
        self.core: NodeCore
        self.listener: KafkaListener
        self.quorum_service: QuorumService

    @property
    def settings(self) -> Settings:
        return self.cluster.settings(NODE_ID)

    def start(self) -> None:
        settings = self.settings
        opened = OpenedDirectory(settings)
        failures, transport = self.cluster.failures, self.cluster.wires.to(NODE_ID)
        self.core = core = NodeCore(settings, opened, transport, on_failure=failures.append, random=self._random)
        core.controller._random = self._random
        core.boot()
        failure: Any = failures.append
        (self.listener,) = _listeners(settings, core.cluster_id, core, failure)
        view = NodeQuorumView(
            core.quorum, core.addresses, Gossip(settings, core.addresses), core.image_proof.image_digest
        )
        self.quorum_service = QuorumService(core.cluster_id, core.quorum.handle, view, failures.append)
        logging.getLogger().addHandler(self.errors)
        core.start()

    async def stop(self) -> None:
        logging.getLogger().removeHandler(self.errors)
        await self.core.close()

    async def ask(self, key: int, version: int, message: Any, client_id: str | None = "hostile") -> Any:
        """A request through the bytes, the endpoint, and the bytes of its answer; kio's response.

        :raises PeerError: the connection would be closed.
        """
        frame = frame_of(key, version, message, client_id)
        header, offset = decode_request_header(frame)
        most = self.listener.callers.max_elements(Share.BROKERS, key, len(frame))
        body: Any = Envelope(frame) if key == ENVELOPE else decode_body(request_type(key, version), frame, offset, most)
        context = RequestContext(key, version, 7, header.client_id, ADMIN, "CONTROLLER", "127.0.0.1")
        response = await self.listener.handler.handle(context, body)
        content = response if isinstance(response, list) else encode_entity(response)
        answer = b"".join(encode_response_header(key, version, 7) + content)
        correlation, offset = decode_response_header(key, version, answer)
        assert correlation == 7
        return decode_body(response_type(key, version), answer, offset)

    def log_on_disk(self) -> MetadataLog:
        """A second reader of the directory; only while the node is stopped."""
        return MetadataLog.open(self.settings.metadata_directory)


def frame_of(key: int, version: int, message: Any, client_id: str | None) -> bytes:
    """A request with its head, as in a frame or an Envelope."""
    header = RequestHeader(key, version, 7, client_id)
    return b"".join(encode_request_header(header) + encode_entity(message))


class Silence:
    """A transport to peers that never answer."""

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        raise UnreachableError("nobody")

    async def close(self) -> None:
        pass


def directory_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Where fsyncs cost little, if this machine has such a place."""
    memory = Path("/dev/shm")  # noqa: S108
    return tempfile.TemporaryDirectory(prefix="hostile-", dir=memory if memory.is_dir() else None)
