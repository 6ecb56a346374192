"""A peer that takes a connection and then reads nothing: a request to it costs that connection, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from migrator.node.stop_reason import StopReason
from migrator.raft.transport import PeerTimeoutError, TransportError
from migrator.wire.client import KafkaClient, KafkaConnection
from migrator.wire.encode import encode_entity
from migrator.wire.schemas import API_VERSIONS, build, response_type
from migrator.wire.security import PLAINTEXT
from tests.patience import PATIENCE_SECONDS, eventually
from tests.raw_frames import sized

LARGE = bytes(64 * 1024 * 1024)
"""More than the buffers of both sockets hold."""
METADATA, METADATA_VERSION = 3, 12


@contextlib.asynccontextmanager
async def deaf() -> AsyncIterator[int]:
    """The port of a peer that says which versions it speaks, and then reads nothing more."""
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4))
        frame = await reader.readexactly(size)
        version = int.from_bytes(frame[2:4])
        body = b"".join(bytes(part) for part in encode_entity(build(response_type(API_VERSIONS, version))))
        writer.write(sized(frame[4:8] + body))
        await is_over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        is_over.set()
        server.close()


@pytest.fixture
def unheard() -> list[dict[str, Any]]:
    """Errors that reach the event loop's last resort, because no task waits for them."""
    return []


async def test_a_request_that_is_given_up_in_the_middle_ends_its_connection(unheard: list[dict[str, Any]]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    async with deaf() as port:
        connection = await KafkaConnection.open("127.0.0.1", port, "tester", PLAINTEXT, 1_000)
        request = asyncio.create_task(connection.request_encoded(METADATA, METADATA_VERSION, [LARGE]))
        await eventually(lambda: connection._stream._write_paused)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        with pytest.raises(TransportError):  # else the next frame would begin in the middle of this one
            async with asyncio.timeout(PATIENCE_SECONDS):
                await connection.request_encoded(METADATA, METADATA_VERSION, [b""])
        await connection.close()
        del request
        gc.collect()
    assert not unheard


async def test_a_peer_that_reads_nothing_stops_nobody(unheard: list[dict[str, Any]]) -> None:
    """A broker that hung while it was told of many partitions ended the controller."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    async with deaf() as port:
        client = KafkaClient("127.0.0.1", port, "tester")
        with pytest.raises(PeerTimeoutError):
            await client.request_encoded(METADATA, METADATA_VERSION, [LARGE], 0.5)
        await client.close()
        gc.collect()
    assert not unheard


async def test_what_a_peer_did_ends_no_process_where_nobody_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    failure = StopReason()
    failure.unhandled(asyncio.get_running_loop(), {"message": "not retrieved", "exception": TransportError("broke")})
    assert not failure.stop.is_set()
    assert "broke" in caplog.text
