"""gRPC between machines: messages in frames, on the simulated network. What is on both ends of it is the product's own:
stubs, services, the doorkeeper, encoded protobuf messages.

As in gRPC, a call is lost with its connection (UNAVAILABLE), ends at the caller's deadline at both ends
(DEADLINE_EXCEEDED), and is cancelled at the server when its caller gives it up; a channel connects when it is used, and
again when its connection was lost. Whoever shows a certificate has its key here.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from migrator.config.endpoints import parse_host_port
from migrator.errors import OperatorError
from migrator.log.errors import StorageError
from migrator.machine import machine
from migrator.rpc.channel import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES
from migrator.rpc.doorkeeper import Doorkeeper
from migrator.rpc.identity import Identities, read_certificate
from migrator.rpc.server import Service
from migrator.rpc.tls import PinnedChannel, TlsFiles, WrongNameError

if TYPE_CHECKING:
    from tests.simulation.whole.machine import SimulatedMachine

_LENGTH = struct.Struct(">I")
Status = grpc.StatusCode
ATTEMPT_SECONDS = 1.0
"""So long a channel tries to connect, then it begins anew: the product's ``grpc.max_reconnect_backoff_ms``."""


class Frames(asyncio.Protocol):
    """One end of a connection. The first frame of each side is its certificate."""

    def __init__(self, own: bytes) -> None:
        self._own = own
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.theirs: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.peer = ""
        self.is_lost = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        host, port = transport.get_extra_info("peername")
        self.peer = f"ipv4:{host}:{port}"
        self.send(self._own)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                return
            frame = pickle.loads(self._buffer[_LENGTH.size : end])  # noqa: S301 - our own
            del self._buffer[:end]
            if self.theirs.done():
                self.arrived(*frame)
            else:
                self.theirs.set_result(frame)

    def send(self, frame: Any) -> None:
        if self._transport is not None and not self.is_lost:
            data = pickle.dumps(frame)
            self._transport.write(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if not self.theirs.done():
            self.theirs.set_exception(ConnectionResetError("closed while certificates were shown"))
            self.theirs.exception()
        self.lost()

    def arrived(self, call: int, *what: Any) -> None:
        """A frame of a call."""

    def lost(self) -> None:
        """The connection is gone."""


# The client's side.


async def connect(address: str, files: TlsFiles, accepted: frozenset[str]) -> PinnedChannel:
    """As `migrator.rpc.tls.connect`."""
    own = files.renewed().certificate
    host, port = parse_host_port(address)
    seen = await _dial(host, port, lambda: Frames(own))
    seen.close()
    certificate = seen.theirs.result()
    theirs = read_certificate(certificate)
    if theirs.principal not in accepted:
        raise WrongNameError(f"the certificate at {address} is {theirs.principal}")
    channel: Any = Channel(host, port, own, certificate)
    return PinnedChannel(channel, min(theirs.not_after, read_certificate(own).not_after))


async def _dial(host: str, port: int, frames: Callable[[], Any]) -> Any:
    """The peer has shown its certificate."""
    _, made = await asyncio.get_running_loop().create_connection(frames, host, port)
    try:
        await asyncio.shield(made.theirs)
    except BaseException:
        made.close()
        raise
    return made


class ClientConnection(Frames):
    """It hands each frame to the call that it is for."""

    def __init__(self, own: bytes) -> None:
        super().__init__(own)
        self.calls: dict[int, Call] = {}

    def arrived(self, call: int, *what: Any) -> None:
        if call in self.calls:
            self.calls[call].arrived(*what)

    def lost(self) -> None:
        for call in list(self.calls.values()):
            call.arrived((Status.UNAVAILABLE, "the connection is lost"))


def _note_error(connecting: asyncio.Task[Any]) -> None:
    """The caller may have given up before the connection failed: then no task needs the error."""
    if not connecting.cancelled():
        connecting.exception()


class Channel:
    """The part of a `grpc.aio.Channel` that the product's stubs use."""

    def __init__(self, host: str, port: int, own: bytes, pinned: bytes) -> None:
        self._at = host, port
        self._own = own
        self._pinned = pinned
        self._connection: ClientConnection | None = None
        self._connecting: asyncio.Task[ClientConnection] | None = None
        self._is_closed = False
        self._numbers = 0
        self.calls: dict[Call, None] = {}

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        async def call(request: Any, timeout: float | None = None, metadata: Any = ()) -> Any:
            made = Call(self, path, request_serializer(request), response_deserializer, timeout, metadata)
            answer = await made.read()
            await made.read()  # its end
            return answer

        return call

    def unary_stream(self, path: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        def call(request: Any, timeout: float | None = None, metadata: Any = ()) -> Call:
            return Call(self, path, request_serializer(request), response_deserializer, timeout, metadata)

        return call

    async def close(self) -> None:
        """Running calls are cancelled."""
        self._is_closed = True
        for call in list(self.calls):
            call.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            self._connection.close()

    @property
    def connected(self) -> ClientConnection | None:
        found = None if self._is_closed else self._connection
        return None if found is None or found.is_lost else found

    async def connect(self) -> ClientConnection:
        """
        :raises AioRpcError: there is none.
        """
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._attempt())
            self._connecting.add_done_callback(_note_error)
        await asyncio.wait([self._connecting])
        error = self._connecting.exception()
        if error is not None:
            raise _failed(Status.UNAVAILABLE, f"failed to connect: {error}")
        found = self._connecting.result()
        if found.theirs.result() != self._pinned:
            found.close()
            raise _failed(Status.UNAVAILABLE, "failed to connect: another certificate")
        self._connection = found
        return found

    async def _attempt(self) -> ClientConnection:
        """Without this, a call to a machine without power would wait for ever."""
        async with asyncio.timeout(ATTEMPT_SECONDS):
            made: ClientConnection = await _dial(*self._at, lambda: ClientConnection(self._own))
            return made

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers


class Call:
    """One call, at its caller's end."""

    def __init__(
        self,
        channel: Channel,
        path: str,
        request: bytes,
        decode: Callable[[bytes], Any],
        timeout: float | None,
        metadata: Any,
    ) -> None:
        self._channel = channel
        self._path = path
        self._request = request
        self._decode = decode
        self._metadata = tuple(metadata)
        self._loop = asyncio.get_running_loop()
        self._deadline = None if timeout is None else self._loop.call_later(timeout, self._expired)
        self._number = channel.next_number()
        self._connection: ClientConnection | None = None
        self._arrived: list[Any] = []
        self._waiter: asyncio.Future[None] | None = None
        channel.calls[self] = None

    async def read(self) -> Any:
        """The next message, `grpc.aio.EOF` after the last.

        :raises AioRpcError: the call has failed.
        """
        if not self._arrived:
            try:
                await self._wait()
            except BaseException:
                self._end()
                raise
        what = self._arrived.pop(0)
        if isinstance(what, bytes):
            if len(what) <= MAX_MESSAGE_BYTES:
                return self._decode(what)
            what = Status.RESOURCE_EXHAUSTED, "the answer is too long"
        self._end()
        if what[0] is Status.OK:
            return grpc.aio.EOF
        raise _failed(*what)

    async def _wait(self) -> None:
        if self._connection is None:
            self._connection = self._channel.connected or await self._connect()
            self._connection.calls[self._number] = self
            left = None if self._deadline is None else self._deadline.when() - self._loop.time()
            self._connection.send((self._number, (self._path, self._metadata, left, self._request)))
        while not self._arrived:
            self._waiter = self._loop.create_future()
            await self._waiter

    async def _connect(self) -> ClientConnection:
        try:
            async with asyncio.timeout_at(None if self._deadline is None else self._deadline.when()):
                return await self._channel.connect()
        except TimeoutError:
            raise _failed(Status.DEADLINE_EXCEEDED, "Deadline Exceeded") from None

    def _expired(self) -> None:
        self._end()
        self.arrived((Status.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def arrived(self, *what: Any) -> None:
        self._arrived += what
        if self._connection is not None and not isinstance(what[-1], bytes):
            self._connection.calls.pop(self._number, None)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def cancel(self) -> None:
        self._end()
        if self._waiter is not None:
            self._waiter.cancel()

    def _end(self) -> None:
        """The server hears of it, unless it has said itself that the call is over."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._channel.calls.pop(self, None)
        if self._connection is not None and self._connection.calls.pop(self._number, None) is not None:
            self._connection.send((self._number, None))

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message


def _failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


# The server's side.


class Server:
    """The part of a `migrator.rpc.server.GrpcServer`, and of a `grpc.aio.Server`, that the product uses."""

    def __init__(self, own_machine: SimulatedMachine, services: Sequence[Service], identities: Identities) -> None:
        self.machine = own_machine
        self._doorkeeper = Doorkeeper(identities)
        self._methods: dict[str, Any] = {}
        self._socket: Any = None
        self._certificate = b""
        self._accepting: asyncio.Task[None] | None = None
        self._connections: dict[ServerConnection, None] = {}
        self.calls: dict[asyncio.Task[None], None] = {}
        self.is_closing = False
        for service in services:
            service.register(self)

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """They are the same as the registered ones."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self._methods |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def listen_unix(self, metadata_directory: Path) -> None:
        """The operator's socket is not simulated."""

    def listen(self, host: str, port: int, tls: TlsFiles) -> int:
        self._certificate = tls.read().certificate
        try:
            self._socket = machine().listen((host, port), socket.AF_INET, 100)
        except OSError as error:
            raise OperatorError(f"this controller cannot listen on {host}:{port}", where="here") from error
        return port

    async def start(self) -> None:
        if self._socket is not None:
            self._accepting = asyncio.create_task(self._accept(), name="grpc-accept")

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._socket)
            _, made = await loop.connect_accepted_socket(lambda: ServerConnection(self, self._certificate), sock)
            self._connections[made] = None

    def gone(self, connection: ServerConnection) -> None:
        self._connections.pop(connection, None)

    async def close(self, grace: float = 0.5) -> None:
        self.is_closing = True
        if self._accepting is not None:
            self._accepting.cancel()
            self._socket.close()
            await asyncio.wait([self._accepting])
        if self.calls:
            await asyncio.wait(list(self.calls), timeout=grace)
        for connection in list(self._connections):
            connection.close()
        for call in list(self.calls):
            call.cancel()
        if self.calls:
            await asyncio.wait(list(self.calls))

    async def serve(self, connection: ServerConnection, number: int, call: tuple[Any, ...]) -> None:
        path, metadata, seconds, request = call
        context = ServicerContext(connection, metadata)
        code, text = Status.OK, ""
        last: tuple[bytes, ...] = ()
        self.machine.world.count(f"gRPC {path.rpartition('/')[2]}")
        try:
            async with asyncio.timeout(seconds):
                last = await self._answer(
                    path, metadata, request, context, lambda data: connection.send((number, data))
                )
        except grpc.aio.AbortError:
            code, text = context.aborted
        except TimeoutError:
            code, text = Status.DEADLINE_EXCEEDED, "Deadline Exceeded"
        except Exception as error:  # noqa: BLE001 - as gRPC does, which logs it
            if not (isinstance(error, StorageError) and self.machine.was_refused):
                self.machine.complaints.append(f"{path}: {traceback.format_exc()}")
            code, text = Status.UNKNOWN, f"Unexpected {type(error)}: {error}"
        connection.send((number, *last, (code, text)))

    async def _answer(
        self, path: str, metadata: Any, request: bytes, context: ServicerContext, send: Callable[[bytes], None]
    ) -> tuple[bytes, ...]:
        """The one message of an answer, which goes with its status; those of a stream are sent when they are there."""

        async def find(details: Any) -> Any:
            return self._methods.get(details.method)

        details: Any = SimpleNamespace(method=path, invocation_metadata=metadata)
        handler = await self._doorkeeper.intercept_service(find, details)
        if handler is None:
            await context.abort(Status.UNIMPLEMENTED, "Method not found!")
        if len(request) > MAX_REQUEST_BYTES:
            await context.abort(Status.RESOURCE_EXHAUSTED, "the request is too long")
        if handler.response_streaming:
            async for response in handler.stream_stream(_only(request), context):
                send(handler.response_serializer(response))
            return ()
        return (handler.response_serializer(await handler.stream_unary(_only(request), context)),)


async def _only(request: bytes) -> AsyncIterator[bytes]:
    yield request


class ServerConnection(Frames):
    """It begins calls, and ends those whose caller is gone."""

    def __init__(self, server: Server, own: bytes) -> None:
        super().__init__(own)
        self._server = server
        self._calls: dict[int, asyncio.Task[None]] = {}

    def arrived(self, call: int, what: Any) -> None:
        if what is None:
            if call in self._calls:
                self._calls[call].cancel()
        elif self._server.is_closing:
            self.send((call, (Status.UNAVAILABLE, "the server stops")))
        else:
            task = asyncio.create_task(self._server.serve(self, call, what), name=f"grpc{what[0]}")
            self._calls[call] = task
            self._server.calls[task] = None
            task.add_done_callback(lambda done: self._ended(call, done))

    def _ended(self, call: int, task: asyncio.Task[None]) -> None:
        del self._calls[call]
        self._server.calls.pop(task, None)

    def lost(self) -> None:
        self._server.gone(self)
        for task in self._calls.values():
            task.cancel()


class ServicerContext:
    """The part of a `grpc.aio.ServicerContext` that the product uses."""

    def __init__(self, connection: ServerConnection, metadata: Any) -> None:
        self._connection = connection
        self._metadata = metadata
        self.aborted: tuple[grpc.StatusCode, str] = Status.OK, ""

    def auth_context(self) -> dict[str, Sequence[bytes]]:
        return {"x509_pem_cert": [self._connection.theirs.result()]}

    def peer(self) -> str:
        return self._connection.peer

    def invocation_metadata(self) -> Any:
        return self._metadata

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.aborted = code, details
        raise grpc.aio.AbortError
