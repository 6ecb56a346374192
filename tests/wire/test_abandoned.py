"""A caller that sends big requests and hangs up: what it set in motion counts until it is over, and begins no more."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import struct
import threading
import weakref
from collections.abc import Hashable
from typing import Any

import pytest

from migrator.errors import PeerError
from migrator.observe.logins import LoginBook
from migrator.wire.aside import Lane
from migrator.wire.book import Caller, Part, Share, Stage
from migrator.wire.callers import Trusted
from migrator.wire.client import KafkaClient
from migrator.wire.encode import encode_entity
from migrator.wire.frames import FIRST_BUFFER
from migrator.wire.principal import Principal
from migrator.wire.quotas import ConnectionQuotas, ProcessLimits
from migrator.wire.requests import REQUEST
from migrator.wire.schemas import RequestHeader, build, encode_request_header, request_type, response_type
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS, eventually

HEARTBEAT, ENVELOPE = 63, 58
SIZE = 10 * FIRST_BUFFER


class Held:
    """Works on each request until it is told to go on."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()

    async def handle(self, context: Any, _: Any) -> Any:
        self.begun += 1
        await self.go_on.wait()
        return build(response_type(context.api_key, context.api_version))


class OneCaller(Trusted):
    """All big requests are of one caller without rights."""

    def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
        del principal, host, key
        return Caller(Share.OTHERS, "app")

    def waits(self, share: Share, api_key: int, size: int) -> bool:
        del share, api_key
        return size > FIRST_BUFFER


def big_request() -> bytes:
    """An Envelope of `SIZE` bytes."""
    header = encode_request_header(RequestHeader(ENVELOPE, 0, 1, "app"))
    body = build(request_type(ENVELOPE, 0), request_data=bytes(SIZE - 100), client_host_address=bytes(4))
    frame = b"".join(header + encode_entity(body)).ljust(SIZE, b"\0")
    return struct.pack(">i", len(frame)) + frame


@contextlib.asynccontextmanager
async def serving(handler: Held, callers: Trusted, room: int) -> Any:
    limits = ProcessLimits(max_bytes_in_flight=room)
    listener = KafkaListener(
        "CONTROLLER", handler, quotas=ConnectionQuotas(limits), callers=callers, logins=LoginBook()
    )
    port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, port
    finally:
        handler.go_on.set()
        await listener.close(grace=PATIENCE_SECONDS)


async def send_and_hang_up(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        writer.write(big_request())
        await writer.drain()
        writer.close()
        await writer.wait_closed()


async def test_a_request_whose_caller_has_gone_counts_until_the_work_is_over() -> None:
    """Its bytes were given back when the connection ended, and the next request of the same caller found room again."""
    handler = Held()
    async with serving(handler, Trusted(), room=600 * SIZE) as (listener, port):
        book = listener.quotas.book
        room = book.rooms[Part.RIGHTS, Stage.READING]
        for number in range(3):
            await send_and_hang_up(port)
            await eventually(lambda: handler.begun == number + 1)  # noqa: B023 (awaited)
        await eventually(lambda: listener.quotas.total == 3)
        assert book.held >= 3 * SIZE
        fourth = asyncio.ensure_future(send_and_hang_up(port))
        await eventually(lambda: room.is_contested)
        assert handler.begun == 3, "there is no room for a fourth, which is not read meanwhile"
        handler.go_on.set()
        await fourth
        await eventually(lambda: listener.quotas.total == 0)
        assert book.held == 0


async def test_a_request_that_waits_is_never_begun_once_its_caller_has_gone() -> None:
    handler = Held()
    async with serving(handler, OneCaller(), room=640 * SIZE) as (listener, port):
        book = listener.quotas.book
        working = book.rooms[Part.REST, Stage.WORKING]
        await send_and_hang_up(port)
        await eventually(lambda: handler.begun == 1)
        for _ in range(5):
            await send_and_hang_up(port)
        await eventually(lambda: listener.quotas.total == 1)
        assert (handler.begun, working.is_contested, len(working.charges)) == (1, False, 1)
        handler.go_on.set()
        await eventually(lambda: book.held == 0)


class Slices(Held):
    """Works on each request in a thread, in two parts; the first lasts until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.runs, self.may_end = threading.Event(), threading.Event()
        self.parts: list[str] = []

    async def handle(self, context: Any, _: Any) -> Any:
        self.begun += 1
        with REQUEST.get().abandonable():
            await self.lane.run(self.first)
            await self.lane.run(lambda: self.parts.append("second"))
        return build(response_type(context.api_key, context.api_version))

    lane = Lane("tested")

    def first(self) -> None:
        self.runs.set()
        self.may_end.wait(PATIENCE_SECONDS)
        self.parts.append("first")


async def test_work_whose_caller_has_gone_ends_with_the_slice_that_runs_and_counts_until_then() -> None:
    handler = Slices()
    async with serving(handler, OneCaller(), room=640 * SIZE) as (listener, port):
        book = listener.quotas.book
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(big_request())
        await eventually(handler.runs.is_set)  # else it would never begin
        writer.close()
        (connection,) = listener._connections.values()
        await eventually(lambda: connection.stream.ended)
        for _ in range(100):
            await asyncio.sleep(0)
        assert book.held >= SIZE, "what the thread works on is in memory"
        handler.may_end.set()
        await eventually(lambda: book.held == 0)
        assert handler.parts == ["first"]


async def test_an_error_of_work_whose_caller_has_gone_is_no_news_for_the_event_loop() -> None:
    unheard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    lane, runs, may_end = Lane("tested"), threading.Event(), threading.Event()

    def work() -> None:
        runs.set()
        may_end.wait(PATIENCE_SECONDS)
        raise PeerError("no token")

    caller = asyncio.create_task(lane.run(work))
    await eventually(runs.is_set)
    caller.cancel()
    asyncio.get_running_loop().call_soon(may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await caller
    del caller
    await asyncio.to_thread(lane.close)
    gc.collect()
    assert not unheard


async def test_a_small_request_waits_for_no_big_one() -> None:
    handler = Held()
    async with serving(handler, OneCaller(), room=640 * SIZE) as (_, port):
        await send_and_hang_up(port)
        await eventually(lambda: handler.begun == 1)
        client = KafkaClient("127.0.0.1", port, "honest")
        asked = asyncio.ensure_future(client.request(build(request_type(HEARTBEAT, 1)), PATIENCE_SECONDS))
        await eventually(lambda: handler.begun == 2)
        handler.go_on.set()
        await asked
        await client.close()


async def test_work_that_fails_in_a_lane_holds_nothing() -> None:
    """Each Envelope that was refused stayed in memory until the collector of cycles came: 600 MiB in 10 seconds."""

    class Refused(Exception):  # noqa: N818 - no error of ours
        pass

    async def work(frame: Bytes) -> None:
        def refuse() -> None:
            raise Refused(len(frame))

        with contextlib.suppress(Refused):
            await Slices.lane.run(refuse)

    gc.disable()
    try:
        frame = Bytes(SIZE)
        alive = weakref.ref(frame)
        task = asyncio.ensure_future(work(frame))
        del frame
        await task
        del task
        await eventually(lambda: alive() is None)  # the thread lets go of its work after the loop has the answer
    finally:
        gc.enable()


class Bytes(bytearray):
    """Bytes that tell when they are gone."""
