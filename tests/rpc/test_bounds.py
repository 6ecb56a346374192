"""The share of a controller's gRPC that peers may take, before and after they are known."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from migrator.migration.machine.states import State
from migrator.observe.status import JournalEvent, Status
from migrator.rpc import doorkeeper
from migrator.rpc.channel import server_options
from migrator.rpc.operator_client import OperatorClient
from migrator.rpc.operator_service import OperatorService
from migrator.rpc.operator_socket import SocketDirectory
from migrator.rpc.server import GrpcServer
from tests.patience import PATIENCE_SECONDS
from tests.rpc.support.identities import IDENTITIES, files_of, voter
from tests.rpc.support.operator_node import PlayedNode
from tests.rpc.test_doors import call, with_files

JOURNAL = "/migrator.operator.v1.Operator/Journal"
PAUSE = "/migrator.operator.v1.Operator/Pause"
EVENT_BYTES = 1 << 17
ANSWERS = 100
"""So many callers are answered while a stream is held."""


class EndlessNode(PlayedNode):
    """Its status changes for ever, and is long, so that few of them fill a stream; counts what each stream takes."""

    def __init__(self) -> None:
        super().__init__(State.DUAL_WRITING, node_id=2)
        self.events = [JournalEvent(1, 1, "transition", "x" * EVENT_BYTES)]
        self.taken: list[int] = []

    async def updates(self) -> AsyncIterator[Status]:
        stream = len(self.taken)
        self.taken.append(0)
        while True:
            self.taken[stream] += 1
            yield self.status()
            await asyncio.sleep(0)


async def hung_up(connection: socket.socket) -> None:
    """Returns when the other side has closed it."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        with suppress(ConnectionError):
            while await loop.sock_recv(connection, 1 << 16):
                pass


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a handshake"])
async def test_whoever_does_not_shake_hands_is_hung_up_on(sent: bytes) -> None:
    server = GrpcServer([], IDENTITIES, server_options(handshake_ms=200))
    port = server.listen("127.0.0.1", 0, voter(2))
    await server.start()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(connection, sent)
        await hung_up(connection)
    await server.close(grace=0)


async def test_connections_are_counted_before_anybody_is_known() -> None:
    server = GrpcServer([], IDENTITIES, server_options(handshake_ms=3_600_000, connections=2))
    port = server.listen("127.0.0.1", 0, voter(2))
    await server.start()
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    try:
        for connection in held:
            connection.setblocking(False)
        tasks = {asyncio.create_task(hung_up(connection)) for connection in held}
        done, left = await asyncio.wait(tasks, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert done
        for task in left:
            task.cancel()
        await asyncio.wait(tasks)
    finally:
        for connection in held:
            connection.close()
        await server.close(grace=0)


async def test_a_caller_who_never_reads_stops_only_his_own_stream(tmp_path: Path) -> None:
    node = EndlessNode()
    server = GrpcServer([OperatorService(node)], IDENTITIES)
    server.listen_unix(tmp_path)
    await server.start()
    local = SocketDirectory(tmp_path, create=False)
    async with grpc.aio.insecure_channel(local.address) as channel:
        stream = channel.unary_stream("/migrator.operator.v1.Operator/Watch")(b"")
        taken = answers = 0
        async with asyncio.timeout(PATIENCE_SECONDS), OperatorClient.on_socket(tmp_path) as other:
            while not node.taken:
                await asyncio.sleep(0)
            while answers < ANSWERS:  # since flow control holds the stream
                assert (await other.status()).node_id == 2  # by a stream of its own
                answers = answers + 1 if node.taken[0] == taken else 0
                taken = node.taken[0]
        stream.cancel()
    local.close()
    await server.close(grace=0)


async def test_one_caller_has_so_many_calls_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "CALLS_PER_CALLER", 3)
    server = GrpcServer([OperatorService(PlayedNode(State.DUAL_WRITING, node_id=2))], IDENTITIES)
    server.listen_unix(tmp_path)
    port = server.listen("127.0.0.1", 0, voter(2))
    await server.start()
    address = f"127.0.0.1:{port}"
    try:
        async with (
            grpc.aio.secure_channel(address, with_files(files_of("operator"))) as channel,
            grpc.aio.secure_channel(address, with_files(voter(1))) as another,
        ):
            # Calls whose request never comes hold their place, and a name has as many places over all connections.
            waiting = [channel.stream_unary(PAUSE)() for _ in range(3)]
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (found := await call(channel, JOURNAL, b""))[0] is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    # One that came while the journal's own call held the last place was refused, and comes again.
                    waiting = [channel.stream_unary(PAUSE)() if one.done() else one for one in waiting]
            assert "3 calls of this caller" in found[1]
            assert (await call(another, JOURNAL, b""))[0] is grpc.StatusCode.OK
            for one in waiting:
                one.cancel()
    finally:
        await server.close(grace=0)


async def test_a_request_that_never_comes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "REQUEST_SECONDS", 0.05)
    server = GrpcServer([OperatorService(PlayedNode(State.DUAL_WRITING))], IDENTITIES)
    server.listen_unix(tmp_path)
    await server.start()
    local = SocketDirectory(tmp_path, create=False)
    async with grpc.aio.insecure_channel(local.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="the request did not arrive in time"):
            await channel.stream_unary(PAUSE)(timeout=PATIENCE_SECONDS)
    local.close()
    await server.close(grace=0)


def test_handshakes_that_fail_write_no_log() -> None:
    """gRPC's core would write a line for each, whoever makes them."""
    assert os.environ["GRPC_VERBOSITY"] == "NONE"
