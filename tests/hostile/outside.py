"""The doors that have libraries of others in front: HTTP of the metrics and gRPC on the Unix socket, with real
sockets and in real time."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
import grpc.aio
from prometheus_client import Gauge

from migrator.migration.machine.states import State
from migrator.observe.metrics_access import OPEN, AccessFiles
from migrator.observe.metrics_endpoint import MetricsEndpoint
from migrator.rpc.channel import CLIENT_OPTIONS, MAX_REQUEST_BYTES
from migrator.rpc.operator_service import OperatorService, VotersService
from migrator.rpc.operator_socket import SocketDirectory
from migrator.rpc.quorum_service import QuorumService
from migrator.rpc.server import GrpcServer
from migrator.rpc.stubs import operator_pb2
from tests.hostile.doors import Door, Knock, rounds
from tests.hostile.values import TEXTS, Hostile
from tests.node.support.cluster import CLUSTER_ID
from tests.rpc.support.operator_node import PlayedNode
from tests.rpc.support.voters import VotersOfTest

WEIGHTS: Final = {Door.SOCKET: 6, Door.METRICS: 6}
ROUND: Final = rounds(WEIGHTS)
SECONDS: Final = 30.0
"""Patience with one answer, in real time."""
STATUSES: Final = (200, 400, 401, 404, 405, 414, 417, 431, 505)
GET: Final = b"GET /metrics HTTP/1.1\r\nAuthorization: Basic %s\r\n\r\n" % base64.b64encode(b"prometheus:secret")
REFUSALS: Final = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
}
NUMBERS: Final = ("0", "-1", "1", "4294967296", "9223372036854775807", "9" * 400, "1e999", "NaN", "٣")


class OutsideSeat:
    """A metrics endpoint with and one without passwords, and the operator's socket."""

    node: None = None

    def __init__(self, directory: Path, seed: int, turn: int) -> None:
        del seed
        self.coverage: Counter[str] = Counter()
        self.ends: set[tuple[str, int]] = set()
        self._turn = turn
        self._home = directory

    async def start(self) -> None:
        """Open the doors."""
        home = self._home
        passwords = home / "passwords"
        passwords.write_text("prometheus:secret")
        passwords.chmod(0o400)
        gauge = Gauge("planted", "A figure", registry=None)
        self._metrics = [
            MetricsEndpoint("127.0.0.1", 0, [gauge], access=access)
            for access in (OPEN, AccessFiles(passwords=str(passwords)))
        ]
        quorum = QuorumService(CLUSTER_ID, _nobody, _View())
        operator = OperatorService(PlayedNode(State.DUAL_WRITING))
        self._server = GrpcServer([operator, VotersService(VotersOfTest()), quorum])
        self._server.listen_unix(home)
        await self._server.start()
        self._socket = SocketDirectory(home, create=False)
        self._channel = grpc.aio.insecure_channel(self._socket.address, options=CLIENT_OPTIONS)

    async def work(self) -> None:
        """Nobody works here."""

    async def ready(self) -> None:
        """As `start`."""

    async def stop(self) -> None:
        """Close them."""
        for endpoint in self._metrics:
            await asyncio.to_thread(endpoint.close)
        await self._channel.close()
        self._socket.close()
        await self._server.close(grace=0)

    async def knock(self, index: int, random: Random) -> str:
        """One request, and then an honest one; what it was."""
        knock = ROUND[(self._turn + index) % len(ROUND)]
        self.coverage[f"{knock.door.name} {knock.name}"] += 1
        async with asyncio.timeout(SECONDS):
            if knock.door is Door.SOCKET:
                await self._call(random, knock)
            else:
                await self._get(random, knock.name)
        return f"{knock.door.name} {knock.name}"

    async def _call(self, random: Random, knock: Knock) -> None:
        request = Hostile(random, {}, self.ends).proto(knock.schema).SerializeToString()
        if random.random() < 0.05:
            request = random.choice((request[:-1], b"\xff" * 9, request * 2))
        code = await self._code(knock, request)
        is_quorum = knock.schema.DESCRIPTOR.file.name.endswith("quorum.proto")
        if is_quorum and len(request) <= MAX_REQUEST_BYTES:
            assert code is grpc.StatusCode.PERMISSION_DENIED, f"{knock.name} on the operators' socket: {code}"
        too_large = len(request) > MAX_REQUEST_BYTES and code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert code is None or code in REFUSALS or too_large, code
        honest = Knock(Door.SOCKET, "Watch", operator_pb2.WatchRequest)
        assert await self._code(honest, b"") is None

    async def _code(self, knock: Knock, request: bytes) -> grpc.StatusCode | None:
        """The error of a call; None with an answer."""
        file = knock.schema.DESCRIPTOR.file
        (service,) = file.services_by_name.values()
        method = service.methods_by_name[knock.name]
        path = f"/{service.full_name}/{method.name}"
        call: Any
        try:
            if method.server_streaming:
                call = self._channel.unary_stream(path)(request)
                async for _ in call:
                    break
                call.cancel()
            else:
                call = self._channel.unary_unary(path)(request)
                await call
        except grpc.aio.AioRpcError as error:
            found: grpc.StatusCode = error.code()
            return found
        return None

    async def _get(self, random: Random, part: str) -> None:
        endpoint = random.choice(self._metrics)
        answer = await _asked(endpoint.port, _request(random, part))
        for line in answer.split(b"\r\n\r\n")[:-1]:
            if line.startswith(b"HTTP/"):
                assert int(line.split(None, 2)[1]) in (100, *STATUSES), line
        assert b"Traceback" not in answer
        honest = await _asked(endpoint.port, GET)
        assert honest.startswith(b"HTTP/1.0 200"), honest[:200]


async def _asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(OSError):  # an answer may come, and the connection end, before all is sent
            writer.write(request)
            writer.write_eof()
        try:
            return await reader.read()
        except ConnectionError:
            return b""
    finally:
        writer.close()


def _request(random: Random, part: str) -> bytes:
    """Valid HTTP, with one part that nobody would send."""
    text = random.choice((*TEXTS, *NUMBERS)).replace("\r\n", "").replace("\0", "")
    method, path, version = "GET", "/metrics", "HTTP/1.1"
    headers = {"Host": "x", "Authorization": "Basic " + base64.b64encode(b"prometheus:secret").decode()}
    body = b""
    if part == "method":
        method = random.choice(("HEAD", "POST", "OPTIONS", "TRACE", "CONNECT", "get", "G" * 200, "PRI", "<x>"))
    elif part == "path":
        path = random.choice(
            (
                "*",
                "/",
                "//metrics",
                "/metrics/",
                "/metrics?" + text,
                "/%6detrics",
                "http://localhost/metrics",
                "/" + text,
            )
        )
    elif part == "version":
        version = random.choice(
            ("HTTP/0.9", "HTTP/1.0", "HTTP/2.0", "HTTP/1.9999999999", "HTTP/-1.1", "HTTP/1.1.1", "HTTP/x", "")
        )
    elif part == "accept":
        kind = random.choice(("application/openmetrics-text", "text/plain", "*/*", "application/vnd.google.protobuf"))
        headers["Accept"] = (
            f"{kind};version={random.choice((*NUMBERS, '1.0.0', 'broken', ''))};q={text[:2_000]};escaping={text[:99]}"
        )
    elif part == "authorization":
        odd = base64.b64encode(random.choice((b"", b":", b"prometheus:", b"\xff:\xff", text.encode()[:9_000]))).decode()
        headers["Authorization"] = random.choice(("Basic ", "basic  ", "Bearer ", "Digest username=", "")) + odd
    elif part == "headers":
        headers |= {f"X-{number}": text[:100] for number in range(random.choice((1, 90, 200)))}
        headers[random.choice(("Expect", "Connection", "Upgrade", "Transfer-Encoding", "Range"))] = random.choice(
            ("100-continue", "keep-alive", "h2c", "chunked", "bytes=0-9223372036854775807", text[:1_000])
        )
    else:
        headers["Content-Length"] = random.choice(NUMBERS)
        body = random.randbytes(random.choice((0, 1, 100_000)))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} {version}\r\n{head}\r\n".encode() + body


async def _nobody(_request: Any) -> Any:
    raise AssertionError("nobody may get here")


class _View:
    def describe(self) -> Any:
        raise AssertionError("nobody may get here")

    def advertised(self, address: Any) -> Any:
        raise AssertionError("nobody may get here")

    def discover(self, known: Any) -> Any:
        raise AssertionError("nobody may get here")

    def image_digest(self, offset: int, *, replay: bool) -> Any:
        raise AssertionError("nobody may get here")

    def leader_endpoint(self, leader_id: int) -> Any:
        raise AssertionError("nobody may get here")

    def told(self, leader_id: int, epoch: int, host: str, port: int) -> None:
        raise AssertionError("nobody may get here")
