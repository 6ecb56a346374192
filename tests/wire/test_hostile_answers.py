"""Hostile peers: for any host name and any answer, a client raises `TransportError` only."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator

import pytest

from migrator.errors import PeerError
from migrator.raft.transport import TransportError
from migrator.wire.client import KafkaClient
from migrator.wire.encode import encode_entity
from migrator.wire.sasl import ScramClient
from migrator.wire.schemas import (
    API_VERSIONS,
    CONTROLLER_APIS,
    build,
    encode_response_header,
    peek_request,
    request_type,
    response_type,
)
from tests.wire.support.messages import random_message

HEARTBEAT = 63
SERVERS = 80


@pytest.mark.parametrize(
    ("host", "port"),
    [("a" * 64 + ".example", 9092), ("", 9092), ("nul\0l", 9092), ("\udcff", 9092), (".", 9092), ("localhost", 70_000)],
)
async def test_a_host_that_no_resolver_takes_is_an_unreachable_peer(host: str, port: int) -> None:
    client = KafkaClient(host, port, "test")
    with pytest.raises(TransportError):
        await client.request(build(request_type(HEARTBEAT, 1)), 5)
    await client.close()


def damaged_answer(key: int, version: int, correlation: int, source: random.Random) -> bytes:
    """A random answer to a request, with up to three wrong bytes behind its correlation id."""
    known = key == API_VERSIONS and source.random() < 0.7
    apis = tuple({"api_key": api, "min_version": 0, "max_version": 20} for api in CONTROLLER_APIS)
    answer = response_type(key, version)
    body = build(answer, api_keys=apis) if known else random_message(answer, source)
    raw = bytearray(b"".join(encode_response_header(key, version, correlation) + encode_entity(body)))
    for _ in range(0 if known else source.randint(0, 3)):
        raw[source.randrange(4, len(raw))] = source.getrandbits(8)
    size = len(raw) if source.random() < 0.95 else source.getrandbits(32) - 2**31
    return struct.pack(">i", size) + raw


@contextlib.asynccontextmanager
async def hostile(source: random.Random) -> AsyncIterator[int]:
    """A server that understands requests and answers nonsense; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, version, correlation = peek_request(bytearray(await reader.readexactly(size)))
                writer.write(damaged_answer(key, version, correlation, source))
                if source.random() < 0.1:
                    break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_answers_that_are_nonsense_fail_the_request_and_nothing_else() -> None:
    for seed in range(SERVERS):
        source = random.Random(seed)
        async with hostile(source) as port:
            client = KafkaClient("127.0.0.1", port, "test")
            for key, served in list(CONTROLLER_APIS.items())[:: source.randint(5, 15)]:
                with contextlib.suppress(TransportError):
                    await client.request(build(request_type(key, served.max)), 0.2)
            await client.close()


@pytest.mark.parametrize("token", [b"r=%s,s=\xc3\xa9,i=4096", b"r=%s,s=AAAA,i=" + b"9" * 5000, b"\xff", b""])
def test_a_scram_message_that_is_nonsense_is_the_peers_error(token: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "secret")
    nonce = client.first().rpartition(b"r=")[2]
    with pytest.raises(PeerError):
        client.step(token.replace(b"%s", nonce))
