"""The listener and the client against each other, and the listener against peers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import struct
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from migrator.errors import InvariantViolation, PeerError
from migrator.raft.transport import PeerTimeoutError, TransportError, UnreachableError
from migrator.wire.api_versions import OUR_FEATURE, OUR_FEATURE_RANGE, Features
from migrator.wire.book import Part, Stage
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.decode import decode_body
from migrator.wire.encode import encode_entity
from migrator.wire.frames import FIRST_BUFFER
from migrator.wire.quotas import ConnectionQuotas, ProcessLimits
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import (
    API_VERSIONS,
    CONTROLLER_APIS,
    FETCH,
    RequestHeader,
    VersionRange,
    build,
    encode_request_header,
    request_type,
    response_type,
)
from migrator.wire.server import KafkaListener, ListenerLimits
from tests.lanes import examples
from tests.patience import PATIENCE_SECONDS, eventually
from tests.wire.support.babbler import babbling

HEARTBEAT = 63


class Echo:
    """Answers heartbeats; a broker id asks for a special behaviour."""

    BROKEN, VIOLATION, MALFORMED, SLOW, LATE, THROTTLED, DELAYED = 901, 902, 903, 904, 905, 906, 907
    DELAY = dt.timedelta(milliseconds=50)
    THROTTLES: ClassVar = {THROTTLED: dt.timedelta(hours=1), DELAYED: DELAY}

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []
        self.release = asyncio.Event()
        self.running = 0
        self.most_running = 0

    async def handle(self, context: RequestContext, body: Any) -> Any:
        self.contexts.append(context)
        if context.api_key == FETCH:
            partitions = ({"records": bytes(100_000), "aborted_transactions": ()},)
            fields = {"session_id": len(body), "responses": ({"partitions": partitions},)}
            return encode_entity(build(response_type(FETCH, context.api_version), **fields))
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            return await self._heartbeat(context, body)
        finally:
            self.running -= 1

    async def _heartbeat(self, context: RequestContext, body: Any) -> Any:
        if body.broker_id == self.BROKEN:
            raise KeyError("a bug")
        if body.broker_id == self.LATE:
            raise TimeoutError
        if body.broker_id == self.VIOLATION:
            raise InvariantViolation("two leaders")
        if body.broker_id == self.MALFORMED:
            raise PeerError("nonsense")
        if body.broker_id == self.SLOW:
            await self.release.wait()
        return build(
            response_type(HEARTBEAT, context.api_version),
            is_fenced=body.broker_id % 2 == 1,
            throttle_time=self.THROTTLES.get(body.broker_id, dt.timedelta(0)),
        )


@contextlib.asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[KafkaListener, Echo, int]]:
    handler = Echo()
    listener = KafkaListener("CONTROLLER", handler, **options)
    port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, handler, port
    finally:
        await listener.close(grace=0)


@contextlib.asynccontextmanager
async def client_of(port: int, **options: Any) -> AsyncIterator[KafkaClient]:
    client = KafkaClient("127.0.0.1", port, "tester", **options)
    try:
        yield client
    finally:
        await client.close()


def heartbeat(broker_id: int, version: int = 1) -> Any:
    return build(request_type(HEARTBEAT, version), broker_id=broker_id)


def request_frame(body: Any, correlation: int = 1) -> bytes:
    header = RequestHeader(body.__api_key__, body.__version__, correlation, "raw")
    raw = b"".join(encode_request_header(header) + encode_entity(body))
    return struct.pack(">i", len(raw)) + raw


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@contextlib.asynccontextmanager
async def raw_connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def assert_closed(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""


async def assert_served(port: int) -> None:
    async with client_of(port) as client:
        assert (await client.request(heartbeat(3), 10)).is_fenced is True


async def test_a_request_is_answered_with_its_context() -> None:
    async with serving() as (_, handler, port), client_of(port) as client:
        response = await client.request(heartbeat(3), 10)
        assert response.is_fenced is True
        (context,) = handler.contexts
        assert (context.api_key, context.api_version, context.client_id) == (HEARTBEAT, 1, "tester")
        assert (str(context.principal), context.listener, context.peer_host) == (
            "User:ANONYMOUS",
            "CONTROLLER",
            "127.0.0.1",
        )


async def test_api_versions_tell_features_and_readiness() -> None:
    features = Features(
        {"metadata.version": VersionRange(1, 21), "kraft.version": VersionRange(0, 1)},
        {"metadata.version": 21, "group.version": 0},
        epoch=17,
        zk_migration_ready=True,
    )
    async with serving(features=lambda: features) as (_, _, port), client_of(port) as client:
        connection = await client.connect(10)
        assert connection.apis == CONTROLLER_APIS
        assert connection.features.zk_migration_ready
        assert connection.features.epoch == 17
        assert connection.features.finalized == {"metadata.version": 21}
        assert connection.features.supported["kraft.version"] == VersionRange(0, 1)
        older = await client.request(
            build(request_type(API_VERSIONS, 3), client_software_name="a", client_software_version="1"), 10
        )
        assert [feature.name for feature in older.supported_features] == ["metadata.version"]


async def test_only_controllers_of_this_program_see_by_which_feature_they_know_each_other() -> None:
    known = {"metadata.version": VersionRange(1, 21), OUR_FEATURE: OUR_FEATURE_RANGE}
    async with serving(features=lambda: Features(known, {})) as (_, _, port), client_of(port) as client:
        assert (await client.connect(10)).features.is_ours
        java = build(request_type(API_VERSIONS, 4), client_software_name="java", client_software_version="3.9.1")
        assert [seen.name for seen in (await client.request(java, 10)).supported_features] == ["metadata.version"]


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async with serving() as (_, _, port), raw_connection(port) as (reader, writer):
        writer.write(struct.pack(">ihhih", 10, API_VERSIONS, 9, 77, -1))
        frame = await read_frame(reader)
        assert frame[:4] == struct.pack(">i", 77)
        answer = decode_body(response_type(API_VERSIONS, 0), frame, 4)
        assert answer.error_code == ErrorCode.unsupported_version
        assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [(18, 0, 4)]
        # The connection stays: the client is to ask again.
        writer.write(request_frame(build(request_type(API_VERSIONS, 0))))
        assert await read_frame(reader)


async def test_a_client_with_a_malformed_name_is_told_so() -> None:
    async with serving() as (_, _, port), client_of(port) as client:
        request = build(request_type(API_VERSIONS, 3), client_software_name="-", client_software_version="1")
        assert (await client.request(request, 10)).error_code == ErrorCode.invalid_request


async def test_answers_come_in_order_and_one_request_of_a_connection_runs_at_a_time() -> None:
    async with serving() as (_, handler, port), raw_connection(port) as (reader, writer):
        ids = [Echo.SLOW, *range(1, 50)]
        writer.write(b"".join(request_frame(heartbeat(broker), index) for index, broker in enumerate(ids)))
        await eventually(lambda: handler.running == 1)
        handler.release.set()
        correlations = [struct.unpack(">i", (await read_frame(reader))[:4])[0] for _ in ids]
        assert correlations == list(range(50))
        assert handler.most_running == 1


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhi", 8, 9999, 0, 1),
        struct.pack(">ihhi", 8, HEARTBEAT, 99, 1),
        struct.pack(">ihhih", 10, HEARTBEAT, 1, 1, 3000),
        request_frame(heartbeat(1))[:-1] + b"\x7f",
        request_frame(heartbeat(Echo.MALFORMED)),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_a_malformed_frame_costs_its_sender_the_connection_and_nobody_else_anything(data: bytes) -> None:
    async with serving() as (listener, _, port), client_of(port) as other:
        await other.request(heartbeat(2), 10)
        before = other.connection
        async with raw_connection(port) as (reader, writer):
            writer.write(data)
            await assert_closed(reader)
        assert listener.counters.malformed == 1
        await other.request(heartbeat(2), 10)
        assert other.connection is before


@settings(max_examples=examples(150))
@given(st.lists(st.binary(max_size=60) | st.integers(0, 90), max_size=5), st.integers(0, 4))
def test_whatever_is_sent_the_listener_lives(parts: list[bytes | int], version: int) -> None:
    async def scenario() -> None:
        async with serving() as (_, _, port):
            async with raw_connection(port) as (_, writer):
                for part in parts:
                    body = part if isinstance(part, bytes) else struct.pack(">hhih", part, version, 1, -1) + b"\x00" * 9
                    writer.write(struct.pack(">i", len(body)) + body)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
            await assert_served(port)

    asyncio.run(scenario())


async def test_a_bug_in_a_handler_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (listener, _, port):
        async with client_of(port) as client:
            for broker in (Echo.BROKEN, Echo.LATE):
                with pytest.raises(TransportError):
                    await client.request(heartbeat(broker), 10)
        assert listener.counters.failed == 2
        assert "a bug" in caplog.text
        await assert_served(port)


async def test_a_violated_invariant_is_told_to_the_node() -> None:
    told: list[InvariantViolation] = []
    async with serving(on_violation=told.append) as (_, _, port), client_of(port) as client:
        with pytest.raises(TransportError):
            await client.request(heartbeat(Echo.VIOLATION), 10)
        assert [str(violation) for violation in told] == ["two leaders"]


async def test_an_idle_connection_is_closed() -> None:
    async with serving(limits=ListenerLimits(max_idle_ms=50)) as (_, _, port), raw_connection(port) as (reader, _):
        await assert_closed(reader)


async def test_half_a_frame_does_not_keep_a_connection_open() -> None:
    limits = ListenerLimits(max_idle_ms=50)
    async with serving(limits=limits) as (_, _, port), raw_connection(port) as (reader, writer):
        writer.write(struct.pack(">i", 100) + b"half")
        await assert_closed(reader)


async def test_connections_beyond_the_limit_are_refused() -> None:
    async with serving(quotas=ConnectionQuotas(ProcessLimits(max_connections_per_ip=1))) as (listener, _, port):
        async with client_of(port) as first:
            await first.request(heartbeat(1), 10)
            async with raw_connection(port) as (reader, _):
                await assert_closed(reader)
            assert (listener.counters.accepted, listener.refused) == (1, 1)
            await first.request(heartbeat(1), 10)
        await eventually(lambda: len(listener._connections) == 0)
        await assert_served(port)


async def test_a_peer_that_does_not_read_is_closed_and_holds_little() -> None:
    """Its answers fill its socket, then ours, then nothing more is read from it."""
    limits = ListenerLimits(max_idle_ms=1000)
    async with serving(limits=limits, raw_apis=frozenset({FETCH})) as (listener, _, port):
        async with raw_connection(port) as (_, writer):
            writer.write(request_frame(build(request_type(FETCH, 17))) * 1000)
            await eventually(lambda: len(listener._connections) == 1)
            await eventually(lambda: len(listener._connections) == 0)
        assert 0 < listener.counters.requests[FETCH] < 1000
        assert listener.counters.malformed == listener.counters.failed == 0


async def test_a_peer_that_is_throttled_is_answered_and_then_not_listened_to() -> None:
    async with serving() as (listener, handler, port):
        async with raw_connection(port) as (reader, writer):
            writer.write(request_frame(heartbeat(Echo.THROTTLED)) + request_frame(heartbeat(5)))
            await read_frame(reader)
            await assert_served(port)
            assert [context.client_id for context in handler.contexts] == ["raw", "tester"]
        async with asyncio.timeout(PATIENCE_SECONDS):  # and when it leaves, it is forgotten at once
            while len(listener._connections):
                await asyncio.sleep(0)


async def test_a_throttled_peer_is_listened_to_again_when_its_time_is_over() -> None:
    async with serving() as (_, _, port), client_of(port) as client:
        assert (await client.request(heartbeat(Echo.DELAYED), 60)).throttle_time == Echo.DELAY
        assert (await client.request(heartbeat(3), 60)).is_fenced


async def test_the_size_of_a_frame_costs_nothing_before_its_bytes_come() -> None:
    async with serving() as (listener, _, port), contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            _, writer = await stack.enter_async_context(raw_connection(port))
            writer.write(struct.pack(">i", listener.limits.max_request_bytes))
        await eventually(lambda: listener.quotas.book.held > 0 and len(listener._connections) == 20)
        assert listener.quotas.book.held <= 20 * FIRST_BUFFER
        await assert_served(port)


async def test_bytes_in_flight_are_bounded_over_all_connections() -> None:
    frame = 10 * FIRST_BUFFER
    quotas = ConnectionQuotas(ProcessLimits(max_bytes_in_flight=8 * frame))
    room = quotas.book.rooms[Part.RIGHTS, Stage.READING]
    async with serving(quotas=quotas) as (listener, _, port), contextlib.AsyncExitStack() as stack:
        for _ in range(4):
            _, writer = await stack.enter_async_context(raw_connection(port))
            writer.write(struct.pack(">i", frame) + bytes(frame - 1))
        await eventually(lambda: room.is_contested)
        await eventually(lambda: listener.counters.malformed > 0)
        assert room.most <= room.limit == 2 * frame
        await assert_served(port)
    assert quotas.book.held == 0


async def test_frames_of_every_size_arrive_whole() -> None:
    async with serving(raw_apis=frozenset({FETCH})) as (listener, _, port), raw_connection(port) as (reader, writer):
        for size in (1, FIRST_BUFFER - 9, FIRST_BUFFER, 2 * FIRST_BUFFER, 3 * FIRST_BUFFER + 1):
            whole = request_frame(build(request_type(FETCH, 17)))[4:] + bytes(size)
            writer.write(struct.pack(">i", len(whole)) + whole)
            answer = decode_body(response_type(FETCH, 17), await read_frame(reader), 5)
            header = b"".join(encode_request_header(RequestHeader(FETCH, 17, 1, "raw")))
            assert answer.session_id == len(whole) - len(header)
        await eventually(lambda: listener.quotas.book.held == 0)


async def test_raw_bodies_and_encoded_answers_pass_through() -> None:
    async with serving(raw_apis=frozenset({FETCH})) as (_, _, port), client_of(port) as client:
        response = await client.request(build(request_type(FETCH, 17)), 10)
        assert response.session_id > 20
        assert response.responses[0].partitions[0].records == bytes(100_000)


async def test_a_big_request_is_served() -> None:
    topics = tuple({"name": f"topic-{number}", "num_partitions": 3} for number in range(30_000))
    async with serving() as (_, _, port), client_of(port) as client:
        with pytest.raises(TransportError):  # Echo has no answer of that type; the point is that it was decoded
            await client.request(build(request_type(19, 7), topics=topics), 30)
        await assert_served(port)


async def test_close_waits_for_running_requests_and_then_does_not() -> None:
    async with serving() as (listener, handler, port), client_of(port) as client:
        request = asyncio.create_task(client.request(heartbeat(Echo.SLOW), 10))
        await eventually(lambda: handler.running == 1)
        await listener.close(grace=0.01)
        with pytest.raises(TransportError):
            await request
        assert len(listener._connections) == 0


async def test_close_lets_a_running_request_be_answered_and_hangs_up_on_the_idle() -> None:
    async with serving() as (listener, handler, port), client_of(port) as busy, client_of(port) as idle:
        await idle.request(heartbeat(1), 10)
        request = asyncio.create_task(busy.request(heartbeat(Echo.SLOW), 10))
        await eventually(lambda: handler.running == 1)
        closing = asyncio.create_task(listener.close(grace=10))
        await eventually(lambda: len(listener._connections) == 1)
        handler.release.set()
        await closing
        assert (await request).is_fenced is False
        with pytest.raises(UnreachableError):
            await idle.request(heartbeat(1), 10)


async def test_a_connection_that_the_peer_closed_meanwhile_is_made_anew() -> None:
    async with serving() as (listener, _, port), client_of(port) as client:
        for _ in range(3):
            assert (await client.request(heartbeat(3), 10)).is_fenced is True
            for connection in listener._connections.values():
                connection.stream.close()
            assert client.connection is not None
            await asyncio.wait_for(client.connection.closed(), PATIENCE_SECONDS)


async def test_every_interface_is_one_port_and_ipv4_keeps_its_face() -> None:
    handler = Echo()
    listener = KafkaListener("CONTROLLER", handler)
    port = await listener.start("", 0)
    async with client_of(port) as client:
        await client.request(heartbeat(1), 10)
    await listener.close(grace=0)
    assert handler.contexts[0].peer_host == "127.0.0.1"


# --- the client ---------------------------------------------------------------------------------------------------


async def test_many_requests_in_flight_get_their_own_answers() -> None:
    limits = ClientLimits(max_in_flight=10)
    async with serving() as (_, _, port), client_of(port, limits=limits) as client:
        answers = await asyncio.gather(*(client.request(heartbeat(broker), 10) for broker in range(200)))
        assert [answer.is_fenced for answer in answers] == [broker % 2 == 1 for broker in range(200)]


async def test_a_slow_peer_is_a_timeout_and_the_next_request_has_a_new_connection() -> None:
    async with serving() as (_, _, port), client_of(port) as client:
        with pytest.raises(PeerTimeoutError):
            await client.request(heartbeat(Echo.SLOW), 0.05)
        assert (await client.request(heartbeat(3), 10)).is_fenced is True


async def test_a_peer_that_is_away_is_unreachable_and_is_found_when_it_is_back() -> None:
    async with serving() as (listener, _, port), client_of(port) as client:
        await client.request(heartbeat(1), 10)
        await listener.close(grace=0)
        with pytest.raises(TransportError):
            await client.request(heartbeat(1), 10)
        with pytest.raises(UnreachableError):
            await client.request(heartbeat(1), 10)
        again = KafkaListener("CONTROLLER", Echo())
        await again.start("127.0.0.1", port)
        await client.request(heartbeat(1), 10)
        await again.close(grace=0)


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.2\r\n", struct.pack(">ii", 4, 999), struct.pack(">i", -5), struct.pack(">iih", 6, 1, 35)],
)
async def test_garbage_is_no_answer(answer: bytes) -> None:
    with babbling(answer) as port:
        async with client_of(port) as client:
            with pytest.raises(TransportError):
                await client.request(heartbeat(1), 0.5)


async def test_an_older_server_is_asked_again_in_version_0() -> None:
    old = {**CONTROLLER_APIS, API_VERSIONS: VersionRange(0, 2)}
    async with serving(apis=old) as (_, _, port), client_of(port) as client:
        connection = await client.connect(10)
        assert connection.apis[API_VERSIONS] == VersionRange(0, 2)
        assert await client.highest_version(HEARTBEAT, VersionRange(0, 9), 10) == 1
        with pytest.raises(TransportError, match="no version"):
            await client.highest_version(HEARTBEAT, VersionRange(5, 9), 10)


async def test_a_closed_client_stays_closed() -> None:
    async with serving() as (_, _, port), client_of(port) as client:
        await client.request(heartbeat(1), 10)
        await client.close()
        with pytest.raises(TransportError, match="closed"):
            await client.request(heartbeat(1), 10)
