"""Room for answers: who waits, who has to go, and that nothing of an answer stays when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from migrator.observe.logins import LoginBook
from migrator.wire.answers import ANSWER, SMALL_BYTES, Answer, AnswerRoom
from migrator.wire.client import KafkaClient
from migrator.wire.encode import encode_entity
from migrator.wire.quotas import ConnectionQuotas, ProcessLimits
from migrator.wire.schemas import RequestHeader, build, encode_request_header, request_type, response_type
from migrator.wire.security import PLAINTEXT, ListenerSecurity
from migrator.wire.server import KafkaListener, ListenerLimits
from tests.patience import PATIENCE_SECONDS
from tests.raw_frames import sized
from tests.wire.test_strangers import plain
from tests.wire.test_tls import BROKER, SERVER, security

HEARTBEAT = 63
BIG = 8 * 2**20
"""Much more than the sockets of a connection hold."""
LIMIT = 3 * BIG + SMALL_BYTES
"""Of three such answers with their heads."""


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
        await ANSWER.get().reserve(BIG)
        chunk = Bytes(BIG)
        self.made.append(weakref.ref(chunk))
        return [chunk]

    @property
    def alive(self) -> int:
        return sum(made() is not None for made in self.made)


@contextlib.asynccontextmanager
async def serving(
    security: ListenerSecurity = PLAINTEXT, patience: float = 0.01
) -> AsyncIterator[tuple[KafkaListener, Handler, int]]:
    quotas = ConnectionQuotas(ProcessLimits(max_answer_bytes=LIMIT))
    quotas.nameless_answers = AnswerRoom(LIMIT, patience)
    handler = Handler()
    listener = KafkaListener(
        "CONTROLLER", handler, security=security, limits=ListenerLimits(), quotas=quotas, logins=LoginBook()
    )
    port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, handler, port
    finally:
        await listener.close(grace=0)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is gone has to be gone at once: the collector of cycles may come late."""
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


class Peer:
    """An answer and what became of its connection."""

    def __init__(self, room: AnswerRoom) -> None:
        self.reason = ""
        self.answer = Answer(room, self._cut_off)

    def _cut_off(self, reason: str) -> None:
        self.reason = reason

    async def get(self, size: int) -> Peer:
        await self.answer.reserve(size)
        return self


async def test_who_comes_first_is_served_first_even_if_a_smaller_one_would_fit() -> None:
    room = AnswerRoom(10 * SMALL_BYTES, patience_seconds=PATIENCE_SECONDS)
    first = await Peer(room).get(8 * SMALL_BYTES)
    served: list[str] = []

    async def wait(name: str, size: int) -> Peer:
        found = await Peer(room).get(size)
        served.append(name)
        return found

    tasks = [asyncio.create_task(wait(f"{size}", size * SMALL_BYTES)) for size in (5, 2, 3)]
    await until(lambda: len(room._waiting) == 3)
    assert room.is_contested
    assert (await Peer(room).get(SMALL_BYTES)).answer.held == 0, "a small one waits for nobody"
    first.answer.end()
    peers = await asyncio.gather(*tasks)
    assert served == ["5", "2", "3"]
    assert room.held == room.most == 10 * SMALL_BYTES
    for peer in peers:
        peer.answer.end()
    assert (room.held, room.is_contested, room.cut_off) == (0, False, 0)


async def test_an_answer_beyond_the_limit_finds_room_alone_and_one_that_grows_or_shrinks_is_counted() -> None:
    room = AnswerRoom(4 * SMALL_BYTES, patience_seconds=PATIENCE_SECONDS)
    small = await Peer(room).get(2 * SMALL_BYTES)
    big = asyncio.create_task(Peer(room).get(9 * SMALL_BYTES))
    await until(lambda: room.is_contested)
    small.answer.end()
    found = await big
    assert room.held == 9 * SMALL_BYTES
    await found.answer.reserve(12 * SMALL_BYTES)
    assert room.held == 12 * SMALL_BYTES
    await found.answer.reserve(3 * SMALL_BYTES)
    assert room.held == 3 * SMALL_BYTES
    await found.answer.reserve(1)
    assert room.held == 0


async def test_only_who_was_handed_something_goes_and_the_wait_lasts_until_memory_is_back() -> None:
    room = AnswerRoom(3 * SMALL_BYTES * 2, patience_seconds=0.0)
    reading, stalled, making = [await Peer(room).get(2 * SMALL_BYTES) for _ in range(3)]
    for peer in (reading, stalled, reading):  # the first to begin, and slow, but it has taken a part since
        peer.answer.progressed()
    next_one = asyncio.create_task(Peer(room).get(2 * SMALL_BYTES))
    await until(lambda: stalled.reason)
    assert "did not read its answer" in stalled.reason
    for _ in range(10):
        await asyncio.sleep(0)
    assert not next_one.done(), "who was cut off has not given its memory back yet"
    assert (reading.reason, making.reason) == ("", ""), "one is enough"
    stalled.answer.end()
    await next_one
    assert room.held == room.limit


async def test_who_goes_away_while_waiting_leaves_the_room_to_the_next() -> None:
    room = AnswerRoom(2 * SMALL_BYTES, patience_seconds=PATIENCE_SECONDS)
    first = await Peer(room).get(2 * SMALL_BYTES)
    gone, late, third = [asyncio.create_task(Peer(room).get(2 * SMALL_BYTES)) for _ in range(3)]
    await until(lambda: len(room._waiting) == 3)
    gone.cancel()
    await asyncio.wait([gone])
    first.answer.end()
    late.cancel()  # it has room already, and does not know yet
    await asyncio.wait([late])
    await third
    assert (room.held, room.is_contested) == (2 * SMALL_BYTES, False)


@pytest.mark.usefixtures("no_collector")
async def test_many_who_read_nothing_hold_no_more_than_the_room_and_keep_nobody_from_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (listener, handler, port):
        room = listener.quotas.nameless_answers
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
    async with serving(patience=PATIENCE_SECONDS) as (listener, handler, port):
        room = listener.quotas.nameless_answers
        sockets = [unread(port, requests=6) for _ in range(10)]
        await until(lambda: len(room._waiting) == 7)
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
        assert listener.quotas.nameless_answers.held == 0
        await client.close()


@pytest.mark.parametrize("protocol", ["TLS", "in clear"])
async def test_an_answer_has_room_until_the_socket_has_all_of_it(protocol: str) -> None:
    """With TLS the socket has it only when what was encrypted has left this process."""
    server = security(SERVER, more={"ssl.client.auth": "requested"}) if protocol == "TLS" else PLAINTEXT
    async with serving(server, PATIENCE_SECONDS) as (listener, _, port):
        room = listener.quotas.nameless_answers
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


async def test_those_with_a_name_wait_for_none_of_those_without() -> None:
    async with serving(plain()) as (listener, _, port):
        quotas = listener.quotas
        open_listener = KafkaListener("OPEN", listener.handler, quotas=quotas, logins=LoginBook())
        open_port = await open_listener.start("127.0.0.1", 0)
        sockets = [unread(open_port) for _ in range(20)]
        try:
            await until(lambda: quotas.nameless_answers.is_contested)
            await asyncio.gather(*(ask(port, "big", plain()) for _ in range(10)))
            assert (quotas.answers.cut_off, quotas.answers.held) == (0, 0)
            assert quotas.answers.most <= LIMIT
        finally:
            for each in sockets:
                each.close()
            await open_listener.close(grace=0)


async def test_a_certificate_is_a_name() -> None:
    server = security(SERVER, more={"ssl.client.auth": "required"})
    async with serving(server) as (listener, _, port):
        await ask(port, "big", security(BROKER, serves=False))
        assert BIG < listener.quotas.answers.most < BIG + SMALL_BYTES, "the answer and its head"
        assert listener.quotas.nameless_answers.most == 0
