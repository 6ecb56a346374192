"""Room for answers: who waits, who has to go, and that nothing of an answer stays when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Hashable, Iterator
from typing import Any

import pytest

from migrator.observe.logins import LoginBook
from migrator.wire.book import SMALL_BYTES, Caller, Part, Share, Stage
from migrator.wire.callers import Trusted
from migrator.wire.client import KafkaClient
from migrator.wire.encode import encode_entity
from migrator.wire.principal import Principal
from migrator.wire.quotas import ConnectionQuotas
from migrator.wire.requests import REQUEST
from migrator.wire.schemas import RequestHeader, build, encode_request_header, request_type, response_type
from migrator.wire.security import PLAINTEXT, ListenerSecurity
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS
from tests.raw_frames import sized
from tests.wire.test_tls import SERVER, security

HEARTBEAT = 63
BIG = 8 * 2**20
"""Much more than the sockets of a connection hold."""
LIMIT = 3 * BIG + SMALL_BYTES
"""Of three such answers with their heads."""
ANSWERS = (Part.REST, Stage.ANSWERING)


class Bytes(bytearray):
    """Bytes that tell when they are gone."""


class Handler:
    """Answers clients that are called "big" with `BIG` bytes, after their place; all others at once."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Bytes]] = []

    async def handle(self, context: Any, _: Any) -> Any:
        answer = build(response_type(HEARTBEAT, context.api_version), is_fenced=True)
        if context.client_id != "big":
            return answer
        await REQUEST.get().reserve(BIG)
        chunk = Bytes(BIG)
        self.made.append(weakref.ref(chunk))
        return [chunk]

    @property
    def alive(self) -> int:
        return sum(made() is not None for made in self.made)


class Each(Trusted):
    """Every connection is a caller of this share."""

    def __init__(self, share: Share) -> None:
        self.share = share

    def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
        del principal, host
        return Caller(self.share, key)


@contextlib.asynccontextmanager
async def serving(
    security: ListenerSecurity = PLAINTEXT, share: Share = Share.STRANGERS
) -> AsyncIterator[tuple[KafkaListener, Handler, int]]:
    quotas = ConnectionQuotas()
    for room in quotas.book.rooms.values():
        room.limit = LIMIT
    handler, callers = Handler(), Each(share)
    listener = KafkaListener(
        "CONTROLLER", handler, security=security, quotas=quotas, callers=callers, logins=LoginBook()
    )
    port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, handler, port
    finally:
        await listener.close(grace=0)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """An ended object is freed at once: the collector of cycles may come late."""
    gc.disable()
    yield
    gc.enable()


def big_request() -> bytes:
    header = encode_request_header(RequestHeader(HEARTBEAT, 1, 1, "big"))
    return sized(b"".join(header + encode_entity(build(request_type(HEARTBEAT, 1)))))


def unread(port: int, requests: int = 3) -> socket.socket:
    """A connection that asks and reads nothing."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.connect(("127.0.0.1", port))
    found.sendall(big_request() * requests)
    return found


async def ask(port: int, name: str, security: ListenerSecurity = PLAINTEXT) -> None:
    client = KafkaClient("127.0.0.1", port, name, security=security)
    try:
        if name == "big":
            request = build(request_type(HEARTBEAT, 1))
            frame, _ = await client.request_encoded(HEARTBEAT, 1, encode_entity(request), PATIENCE_SECONDS)
            assert len(frame) > BIG
        else:
            assert (await client.request(build(request_type(HEARTBEAT, 1)), PATIENCE_SECONDS)).is_fenced
    finally:
        await client.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.usefixtures("no_collector")
async def test_many_who_read_nothing_hold_no_more_than_the_room_and_keep_nobody_from_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (listener, handler, port):
        room = listener.quotas.book.rooms[ANSWERS]
        sockets = [unread(port) for _ in range(30)]
        try:
            await ask(port, "small")
            for _ in range(3):
                await ask(port, "big")
            assert room.cut_off > 0
            assert room.most <= LIMIT
            assert handler.alive <= LIMIT // BIG
        finally:
            for each in sockets:
                each.close()
        await until(lambda: len(listener._connections) == 0)
        assert (room.held, room.is_contested) == (0, False)
        assert handler.alive == 0
    assert "did not read its answer, and other clients waited" in caplog.text


@pytest.mark.usefixtures("no_collector")
async def test_no_answer_outlives_a_connection_that_ends_while_it_is_written() -> None:
    """The reason of its end has come through the writing, and holds on to all that it came through."""
    async with serving() as (listener, handler, port):
        room = listener.quotas.book.rooms[ANSWERS]
        sockets = [unread(port, requests=6) for _ in range(10)]
        await until(lambda: len(handler.made) == 3 and room.is_contested)
        for each in sockets:
            each.close()
        await until(lambda: len(listener._connections) == 0)
        assert room.held == 0
        assert handler.alive == 0


@pytest.mark.usefixtures("no_collector")
async def test_a_connection_that_waits_for_its_next_request_holds_no_answer() -> None:
    async with serving() as (listener, handler, port):
        client = KafkaClient("127.0.0.1", port, "big")
        request = encode_entity(build(request_type(HEARTBEAT, 1)))
        await client.request_encoded(HEARTBEAT, 1, request, PATIENCE_SECONDS)
        await until(lambda: handler.alive == 0)
        assert len(listener._connections) == 1
        assert listener.quotas.book.rooms[ANSWERS].held == 0
        await client.close()


@pytest.mark.parametrize("protocol", ["TLS", "in clear"])
async def test_an_answer_has_room_until_the_socket_has_all_of_it(protocol: str) -> None:
    """With TLS the socket has it only when what was encrypted has left this process."""
    server = security(SERVER, more={"ssl.client.auth": "requested"}) if protocol == "TLS" else PLAINTEXT
    async with serving(server) as (listener, _, port):
        room = listener.quotas.book.rooms[ANSWERS]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context if protocol == "TLS" else None, limit=SMALL_BYTES
        )
        writer.write(big_request())
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        left = size
        (connection,) = listener._connections.values()
        while left:
            left -= len(await reader.read(min(left, SMALL_BYTES)))
            transport = connection.stream._transport
            assert transport is not None
            assert room.held or not transport.get_write_buffer_size()
        await until(lambda: room.held == 0)
        writer.close()
