"""Peers that have proved a name, and send or read slowly: what they hold is not what brokers need."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

import pytest

from migrator.observe.logins import LoginBook
from migrator.wire.book import Account, Caller, Part, Room, Share, Stage
from migrator.wire.callers import Trusted
from migrator.wire.client import KafkaClient
from migrator.wire.connection import Handler
from migrator.wire.encode import encode_entity
from migrator.wire.frames import FrameStream
from migrator.wire.principal import Principal
from migrator.wire.quotas import ConnectionQuotas, ProcessLimits
from migrator.wire.schemas import RequestHeader, build, encode_request_header, request_type, response_type
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS, eventually
from tests.raw_frames import sized
from tests.wire.test_abandoned import ENVELOPE, HEARTBEAT, SIZE, Held, big_request

ANSWER_BYTES = 48 * 1024 * 1024
"""More than all sockets between two processes take."""
HEARTBEAT_BODY = encode_entity(build(request_type(HEARTBEAT, 1)))


class Answers:
    """Gives an Envelope a big answer, and anything else a small one."""

    def __init__(self) -> None:
        self.big = 0

    async def handle(self, context: Any, _: Any) -> Any:
        if context.api_key != ENVELOPE:
            return build(response_type(context.api_key, context.api_version))
        self.big += 1
        return build(response_type(ENVELOPE, 0), response_data=bytes(ANSWER_BYTES))


class Ranked(Trusted):
    """All requests are of one caller without rights."""

    def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
        del principal, host, key
        return Caller(Share.OTHERS, "app")

    def waits(self, share: Share, api_key: int, size: int) -> bool:
        del share, api_key, size
        return True


class Named(KafkaListener):
    """As if everybody had logged in."""

    def _connected(self, account: Account, host: str, stream: FrameStream) -> None:
        del host
        self.identified(stream, account)


@contextlib.asynccontextmanager
async def serving(handler: Handler, callers: Trusted, room: int) -> Any:
    limits = ProcessLimits(max_bytes_in_flight=room)
    listener = Named("CONTROLLER", handler, quotas=ConnectionQuotas(limits), callers=callers, logins=LoginBook())
    port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, port
    finally:
        await listener.close(grace=0)


@contextlib.contextmanager
def closing(writers: list[asyncio.StreamWriter]) -> Iterator[None]:
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


async def heartbeat(port: int) -> None:
    client = KafkaClient("127.0.0.1", port, "broker")
    try:
        await client.request(build(request_type(HEARTBEAT, 1)), PATIENCE_SECONDS)
    finally:
        await client.close()


def rooms(listener: KafkaListener) -> dict[Stage, Room]:
    """Of callers without rights."""
    return {stage: listener.quotas.book.rooms[Part.REST, stage] for stage in Stage}


async def test_who_does_not_read_an_answer_keeps_neither_its_place_nor_the_room_of_its_request() -> None:
    """The place was held until the socket had all of the answer, half a minute or more: the big requests of all brokers
    waited for it, and two such requests took all memory for theirs."""
    handler = Answers()
    async with serving(handler, Ranked(), room=1 << 34) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        with closing([writer]):
            writer.write(big_request())
            await eventually(lambda: handler.big == 1)
            await heartbeat(port)
            held = {stage: room.held for stage, room in rooms(listener).items()}
            assert held.pop(Stage.ANSWERING) >= ANSWER_BYTES, "the answer is still on its way"
            assert sum(held.values()) == 0


async def test_frames_that_do_not_end_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any account could take all memory for requests, and keep it for minutes."""
    monkeypatch.setattr("migrator.wire.server.PATIENCE_SECONDS", 0.01)
    handler = Answers()
    async with serving(handler, Ranked(), room=16 * SIZE) as (listener, port):
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(8)]
        with closing(writers):
            for writer in writers:
                writer.write(struct.pack(">i", SIZE) + bytes(SIZE - 1))
            room = rooms(listener)[Stage.READING]
            await eventually(lambda: room.is_contested)
            for _ in range(3):
                await heartbeat(port)
            assert room.most <= 2 * SIZE
            assert room.cut_off > 0


async def test_what_those_without_rights_hold_is_apart_from_what_the_others_have() -> None:
    """All that waits for its turn or is worked on counts. An account without rights could hold all room with that."""

    class Changing(Ranked):
        rights = False

        def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
            return Caller(Share.BROKERS, key) if self.rights else super().caller(principal, host, key)

    callers, handler = Changing(), Held()
    async with serving(handler, callers, room=64 * SIZE) as (listener, port):
        writers = []
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            writer.write(big_request())
        with closing(writers):
            await eventually(lambda: handler.begun == 1)
            await eventually(lambda: rooms(listener)[Stage.WORKING].is_contested)
            assert handler.begun == 1, "one of each caller"
            callers.rights = True
            _, broker = await asyncio.open_connection("127.0.0.1", port)
            writers.append(broker)
            broker.write(big_request())
            await eventually(lambda: handler.begun == 2)
            handler.go_on.set()


async def test_of_many_small_requests_of_one_caller_a_turn_of_the_loop_works_on_one() -> None:
    """A thousand connections kept heartbeats waiting for four seconds: each turn worked on one request of each."""
    turns: list[int] = []
    number = 0

    class Noting:
        async def handle(self, context: Any, _: Any) -> Any:
            turns.append(number)
            return build(response_type(context.api_key, context.api_version))

    async with serving(Noting(), Ranked(), room=1 << 30) as (_, port):
        request = sized(b"".join(encode_request_header(RequestHeader(HEARTBEAT, 1, 1, "app")) + HEARTBEAT_BODY))
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(20)]
        with closing(writers):
            for writer in writers:
                writer.write(2 * request)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(turns) < 40:
                    await asyncio.sleep(0)
                    number += 1
    assert max(Counter(turns).values()) == 1
