"""How much clients without a login can take from those with one: bytes, places, time and file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from migrator.observe.logins import LoginBook
from migrator.raft.transport import TransportError
from migrator.wire import frames
from migrator.wire.book import Part, Stage
from migrator.wire.client import KafkaClient
from migrator.wire.encode import encode_entity
from migrator.wire.frames import FIRST_BUFFER, GRACE_SECONDS, LARGEST_STEP, MIN_BYTES_PER_SECOND, FrameStream
from migrator.wire.quotas import ConnectionQuotas, ProcessLimits
from migrator.wire.sasl.server import SHORT_BYTES
from migrator.wire.schemas import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    RequestHeader,
    build,
    encode_request_header,
    request_type,
    response_type,
)
from migrator.wire.security import PLAINTEXT, ListenerSecurity, listener_security
from migrator.wire.server import KafkaListener, ListenerLimits
from tests.patience import eventually
from tests.raw_frames import sized

HEARTBEAT = 63
LOGINS = (Part.LOGINS, Stage.READING)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def plain(password: str = "pencil") -> ListenerSecurity:  # noqa: S107 - nobody's
    entry = f'{MODULE} required username="broker" password="{password}" user_broker="pencil";'
    keys = {"sasl.enabled.mechanisms": "PLAIN", "listener.name.controller.plain.sasl.jaas.config": entry}
    return listener_security(keys, "CONTROLLER", "SASL_PLAINTEXT", client_mechanism="PLAIN")


class Answers:
    async def handle(self, context: Any, _: Any) -> Any:
        if context.client_id == "slow":
            return [bytes(50_000_000)]
        return build(response_type(HEARTBEAT, context.api_version), is_fenced=True)


@contextlib.asynccontextmanager
async def serving(
    security: ListenerSecurity = PLAINTEXT, quotas: ConnectionQuotas | None = None, **limits: int
) -> AsyncIterator[tuple[KafkaListener, int]]:
    options = ListenerLimits(**limits)
    listener = KafkaListener(
        "CONTROLLER", Answers(), security=security, limits=options, quotas=quotas, logins=LoginBook()
    )
    port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, port
    finally:
        await listener.close(grace=0)


async def ask(port: int, security: ListenerSecurity = PLAINTEXT) -> None:
    client = KafkaClient("127.0.0.1", port, "tester", security=security)
    try:
        assert (await client.request(build(request_type(HEARTBEAT, 1)), 30)).is_fenced
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def knocking(port: int, count: int, data: bytes = b"") -> AsyncIterator[list[asyncio.StreamReader]]:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        for _, writer in opened:
            writer.write(data)
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()


async def test_a_hundred_strangers_with_big_frames_hold_little_and_keep_no_broker_out() -> None:
    limits = ProcessLimits(max_login_bytes_in_flight=20 * SHORT_BYTES)
    async with serving(plain(), ConnectionQuotas(limits)) as (listener, port):
        whole = listener.limits.max_request_bytes
        for size in (whole, SHORT_BYTES + 1):
            async with knocking(port, 20, struct.pack(">i", size)) as readers:
                # Before a login nobody may even announce such a frame.
                assert [await reader.read() for reader in readers] == [b""] * 20
        announced = struct.pack(">i", SHORT_BYTES)
        async with knocking(port, 100, announced + bytes(SHORT_BYTES - 1)):
            room = listener.quotas.book.rooms[LOGINS]
            await eventually(lambda: room.most > 9 * SHORT_BYTES)
            await ask(port, plain())
            assert room.most <= limits.max_login_bytes_in_flight
        await eventually(lambda: listener.quotas.book.held == 0)


async def test_who_fills_the_room_and_does_not_finish_loses_it_to_who_does() -> None:
    """Forty bytes a connection were enough to fill it; the frames of honest peers need it for a moment only."""
    limits = ProcessLimits(max_login_bytes_in_flight=20 * SHORT_BYTES)
    async with serving(plain(), ConnectionQuotas(limits)) as (listener, port):
        book = listener.quotas.book
        room = book.rooms[LOGINS]
        async with knocking(port, 40, struct.pack(">i", SHORT_BYTES) + bytes(36)):
            await eventually(lambda: room.is_contested)
            for _ in range(3):
                await ask(port, plain())
            assert 0 < room.most <= room.limit
        await eventually(lambda: listener.quotas.total == 0)
        assert (book.held, room.in_hand) == (0, {})


async def test_a_login_with_many_fields_that_nobody_knows_is_not_read() -> None:
    """Each field costs time before the login: 262,000 of them delayed honest requests for seconds."""
    head = encode_request_header(RequestHeader(SASL_AUTHENTICATE, 2, 1, "stranger"))
    fields = bytes((0x80 | 101 & 127, 0)) + b"".join(bytes((tag, 0)) for tag in range(101))
    async with serving(plain()) as (listener, port):
        handshake = build(request_type(SASL_HANDSHAKE, 1), mechanism="PLAIN")
        opening = encode_request_header(RequestHeader(SASL_HANDSHAKE, 1, 1, "stranger")) + encode_entity(handshake)
        data = sized(b"".join(opening)) + sized(b"".join(head) + b"\x01" + fields)
        async with knocking(port, 1, data) as (reader,):
            await reader.read()
            await eventually(lambda: listener.counters.malformed == 1)
        await ask(port, plain())


async def test_the_room_is_one_for_all_listeners() -> None:
    frame = 10 * FIRST_BUFFER
    quotas = ConnectionQuotas(ProcessLimits(max_bytes_in_flight=16 * frame))
    room = quotas.book.rooms[Part.RIGHTS, Stage.READING]
    async with serving(quotas=quotas) as (listener, port):
        other = KafkaListener("OTHER", Answers(), quotas=quotas)
        ports = (port, await other.start("127.0.0.1", 0))
        try:
            data = struct.pack(">i", frame) + bytes(frame - 1)
            async with knocking(ports[0], 5, data), knocking(ports[1], 5, data):
                await eventually(lambda: room.is_contested)
                await eventually(lambda: listener.counters.malformed + other.counters.malformed > 0)
                assert room.most <= 4 * frame
        finally:
            await other.close(grace=0)
    assert quotas.book.held == 0


async def test_places_of_strangers_are_few_and_the_oldest_loses_its_own() -> None:
    quotas = ConnectionQuotas(ProcessLimits(max_logins=5))
    async with serving(plain(), quotas) as (listener, port):
        friend = KafkaClient("127.0.0.1", port, "friend", security=plain())
        await friend.request(build(request_type(HEARTBEAT, 1)), 30)
        before = friend.connection
        async with knocking(port, 30) as readers:
            await eventually(lambda: listener.counters.failed_logins == 25)
            assert len(quotas.logins) == 5
            assert [await reader.read() for reader in readers[:25]] == [b""] * 25
            await ask(port, plain())
            await friend.request(build(request_type(HEARTBEAT, 1)), 30)
            assert friend.connection is before
        await friend.close()
        await eventually(lambda: quotas.total == 0)


async def test_who_is_cut_off_in_a_login_leaves_nothing_in_memory() -> None:
    """Each connection left a cycle with its buffers: a flood of them held hundreds of megabytes."""
    quotas = ConnectionQuotas(ProcessLimits(max_logins=5))
    async with serving(plain(), quotas) as (listener, port):
        of_other_tests = [each for each in gc.get_objects() if isinstance(each, FrameStream)]
        gc.disable()
        try:
            async with knocking(port, 30):
                await eventually(lambda: listener.counters.failed_logins == 25)
                await eventually(
                    lambda: sum(isinstance(each, FrameStream) for each in gc.get_objects()) == len(of_other_tests) + 5
                )
        finally:
            gc.enable()


async def test_a_wrong_password_is_answered_late_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(plain(), failed_login_delay_ms=200) as (listener, port):
        began = asyncio.get_running_loop().time()
        with pytest.raises(TransportError, match="authentication as"):
            await ask(port, plain("guess"))
        assert asyncio.get_running_loop().time() - began >= 0.2
        assert listener.counters.failed_logins == 1
        assert listener.counters.malformed == 0
    (line,) = [message for message in caplog.messages if "login from" in message]
    assert line.startswith("listener CONTROLLER: login from 127.0.0.1 as 'broker' failed:")
    assert "guess" not in caplog.text


async def test_a_request_before_the_login_is_a_failed_login() -> None:
    async with serving(plain()) as (listener, port):
        with pytest.raises(TransportError):
            await ask(port)
        assert listener.counters.failed_logins == 1


def test_a_frame_may_be_slow_but_not_for_ever() -> None:
    async def scenario() -> None:
        stream, now = FrameStream(10 * FIRST_BUFFER), asyncio.get_running_loop().time()
        assert not stream.is_too_slow(now + 1e6), "nothing has begun"
        stream.get_buffer(0)[:4] = struct.pack(">i", 10 * FIRST_BUFFER)
        stream.buffer_updated(4)
        assert not stream.is_too_slow(now + GRACE_SECONDS)
        assert stream.is_too_slow(now + GRACE_SECONDS + 1)
        stream.buffer_updated(FIRST_BUFFER)
        assert not stream.is_too_slow(now + GRACE_SECONDS + FIRST_BUFFER / MIN_BYTES_PER_SECOND)
        assert stream.is_too_slow(now + GRACE_SECONDS + FIRST_BUFFER / MIN_BYTES_PER_SECOND + 1)

    asyncio.run(scenario())


async def test_no_part_of_a_big_frame_makes_a_turn_of_the_loop_long() -> None:
    """Doubling the buffer took 136 ms of processor time with frames of 90 MB."""
    stream, size = FrameStream(10 * LARGEST_STEP), 10 * LARGEST_STEP
    stream.get_buffer(0)[:4] = struct.pack(">i", size)
    stream.buffer_updated(4)
    parts: list[int] = []
    while len(parts) == 0 or sum(parts) < size:
        parts.append(len(stream.get_buffer(0)))
        stream.buffer_updated(parts[-1])
    assert max(parts) == LARGEST_STEP
    assert len(await stream.read()) == size


async def test_who_sends_a_byte_now_and_then_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(frames, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr("migrator.wire.server.WATCH_SECONDS", 0.01)
    async with serving() as (listener, port):
        async with knocking(port, 1, struct.pack(">i", 100) + b"half") as (reader,):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert listener.counters.malformed == 1
        assert "takes too long to send a request" in caplog.text
        await ask(port)


async def test_who_reads_its_answer_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(frames, "MIN_BYTES_PER_SECOND", 2**40)
    async with serving() as (listener, port):
        request = build(request_type(HEARTBEAT, 1))
        header = encode_request_header(RequestHeader(HEARTBEAT, 1, 1, "slow"))
        frame = b"".join(header + encode_entity(request))
        async with knocking(port, 1, struct.pack(">i", len(frame)) + frame):
            await eventually(lambda: listener.counters.requests[HEARTBEAT] > 0)
            await eventually(lambda: len(listener._connections) == 0)
        await ask(port)


async def test_too_many_open_files_end_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("migrator.wire.acceptor.EXHAUSTED_PAUSE_SECONDS", 0.001)
    async with serving() as (_, port):
        friend = KafkaClient("127.0.0.1", port, "friend")
        await friend.request(build(request_type(HEARTBEAT, 1)), 30)
        accept, failures = socket.socket.accept, [0]

        def exhausted(sock: socket.socket) -> Any:
            if failures[0] < 50:
                failures[0] += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return accept(sock)

        monkeypatch.setattr(socket.socket, "accept", exhausted)
        await ask(port)
        assert failures == [50]
        await friend.request(build(request_type(HEARTBEAT, 1)), 30)
        await friend.close()
    assert len([message for message in caplog.messages if "cannot accept a connection" in message]) == 1


async def test_a_listener_that_is_full_lets_them_wait_as_kafka_does() -> None:
    async with serving(max_connections=1) as (listener, port):
        first = KafkaClient("127.0.0.1", port, "first")
        await first.request(build(request_type(HEARTBEAT, 1)), 30)
        second = asyncio.create_task(ask(port))
        await first.request(build(request_type(HEARTBEAT, 1)), 30)
        assert listener.counters.accepted == 1
        await first.close()
        await second
        assert listener.counters.accepted == 2


async def test_an_address_that_connects_too_fast_is_held_and_closed() -> None:
    quotas = ConnectionQuotas(ip_rate=lambda _: 1.0)
    async with serving(quotas=quotas) as (listener, port), knocking(port, 15) as readers:
        assert [await reader.read() for reader in readers[10:]] == [b""] * 5
        assert listener.refused == 5
        assert quotas.total == 10


async def test_no_idle_time_means_none() -> None:
    async with serving(max_idle_ms=-1) as (_, port):
        await ask(port)
