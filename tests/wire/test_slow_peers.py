"""Peers that have proved a name, and send or read slowly: what they hold is not what brokers need."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Hashable, Iterator
from typing import Any

from migrator.observe.logins import LoginBook
from migrator.wire.callers import Trusted
from migrator.wire.client import KafkaClient
from migrator.wire.frames import FIRST_BUFFER, FrameStream
from migrator.wire.principal import Principal
from migrator.wire.quotas import ConnectionQuotas, ProcessLimits
from migrator.wire.schemas import build, request_type, response_type
from migrator.wire.server import KafkaListener
from migrator.wire.shares import Caller, Share, Work
from tests.patience import PATIENCE_SECONDS
from tests.wire.test_abandoned import ENVELOPE, HEARTBEAT, SIZE, Held, big_request, until

ANSWER_BYTES = 48 * 1024 * 1024
"""More than all sockets between two processes take."""


class Answers:
    """Gives an Envelope a big answer, and anything else a small one."""

    def __init__(self) -> None:
        self.big = 0

    async def handle(self, context: Any, _: Any) -> Any:
        if context.api_key != ENVELOPE:
            return build(response_type(context.api_key, context.api_version))
        self.big += 1
        return build(response_type(ENVELOPE, 0), response_data=bytes(ANSWER_BYTES))


class OneAtATime(Trusted):
    """Each request costs so much that it is worked on alone."""

    def work(self, frame: bytearray, principal: Principal, host: str, connection: Hashable) -> Work | None:
        del principal, host
        share = Share.OTHERS if len(frame) > FIRST_BUFFER else Share.BROKERS
        return Work(Caller(share, connection), 1 << 30)


class Named(KafkaListener):
    """As if everybody had logged in."""

    def _connected(self, stream: FrameStream) -> None:
        self.identified(stream)


@contextlib.asynccontextmanager
async def serving(handler: Answers | Held, callers: Trusted, room: int) -> Any:
    limits = ProcessLimits(max_request_bytes=SIZE, max_bytes_in_flight=room)
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


async def test_who_does_not_read_an_answer_keeps_neither_its_place_nor_the_room_of_its_request() -> None:
    """The place was held until the socket had all of the answer, half a minute or more: the big requests of all brokers
    waited for it, and two such requests took all memory for theirs."""
    handler = Answers()
    async with serving(handler, OneAtATime(), room=2 * SIZE) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        with closing([writer]):
            writer.write(big_request())
            await until(lambda: handler.big == 1)
            await heartbeat(port)
            assert listener.quotas.answers.held >= ANSWER_BYTES, "the answer is still on its way"
            assert listener.quotas.identified.held == 0


async def test_frames_of_named_peers_that_do_not_end_keep_no_broker_out() -> None:
    """Any account could take all memory for requests, and keep it for minutes; each request of a broker was refused."""
    handler = Answers()
    async with serving(handler, Trusted(), room=4 * SIZE) as (listener, port):
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(4)]
        with closing(writers):
            for writer in writers:
                writer.write(struct.pack(">i", SIZE) + bytes(SIZE - 1))
            await until(lambda: listener.quotas.identified.held == 4 * SIZE)
            await heartbeat(port)


class Ranked(Trusted):
    """Who connects has rights or not, as is said at that moment."""

    rights = False

    def has_rights(self, principal: Principal, host: str) -> bool:
        del principal, host
        return self.rights


async def test_requests_of_peers_without_rights_leave_room_for_those_with_rights() -> None:
    """All that waits for its turn or is worked on counts. An account without rights could hold all room with that."""
    callers, handler = Ranked(), Held()
    async with serving(handler, callers, room=4 * SIZE) as (listener, port):
        writers = []
        for number in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            writer.write(big_request())
            await until(lambda number=number: handler.begun == number + 1)
        with closing(writers):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(big_request())
            await until(lambda: listener.counters.malformed == 1)
            callers.rights = True
            _, broker = await asyncio.open_connection("127.0.0.1", port)
            writers.append(broker)
            broker.write(big_request())
            await until(lambda: handler.begun == 4)
            handler.go_on.set()


def test_a_nameless_frame_costs_no_named_peer_its_own() -> None:
    quotas = ConnectionQuotas(ProcessLimits(max_request_bytes=10, max_bytes_in_flight=100))
    gone: list[str] = []
    quotas.identified.arriving["broker"] = gone.append
    assert quotas.identified.take(95)
    assert not quotas.nameless.take(10)
    assert (gone, quotas.identified.held, quotas.nameless.held) == ([], 95, 0)
