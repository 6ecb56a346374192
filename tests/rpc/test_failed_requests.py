"""The reason of a failed request tells of the peer's process, over both transports."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from migrator.raft.events import Failure
from migrator.raft.messages import (
    RaftRequest,
    RaftResponse,
)
from migrator.raft.transport import (
    PeerTimeoutError,
    RaftTransport,
    TransportError,
    UnreachableError,
)
from migrator.rpc.raft_transport import GrpcRaftTransport, PeerAddress
from migrator.wire.client import KafkaConnection
from migrator.wire.security import PLAINTEXT
from tests.patience import PATIENCE_SECONDS
from tests.rpc.support.identities import voter
from tests.rpc.support.transports import (
    EXCHANGES,
    PEER,
    VOTE,
    VOTED,
    Grpc,
    Kafka,
    Kind,
    answering,
    connected,
)


class Front:
    """A port before a peer's. It breaks its connections, and refuses new ones as the kernel of a dead process does."""

    def __init__(self, behind: int) -> None:
        self._behind = behind
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_peer, to_peer = await asyncio.open_connection("127.0.0.1", self._behind)
        self._writers += [writer, to_peer]
        self._tasks += [asyncio.create_task(self._pipe(*ends)) for ends in ((reader, to_peer), (from_peer, writer))]

    @staticmethod
    async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)

    def break_all(self) -> None:
        """Break the established connections; new connections are still taken."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def die(self) -> None:
        if self._server is not None:
            self._server.close()
        self.break_all()
        await asyncio.gather(*self._tasks)


async def failure(transport: RaftTransport) -> Failure:
    """The reason of a failed request."""
    with pytest.raises(TransportError) as caught:
        await transport.send(PEER, VOTE, 5)
    return caught.value.how


async def test_a_peer_that_was_never_there_only_refuses(kind: Kind, unused_tcp_port: int) -> None:
    async with connected(kind, unused_tcp_port) as transport:
        assert [await failure(transport) for _ in range(2)] == [Failure.REFUSED] * 2


@pytest.mark.parametrize("is_asked", [True, False], ids=["during a request", "between two requests"])
async def test_a_peer_that_dies_breaks_its_connection_and_then_refuses(kind: Kind, *, is_asked: bool) -> None:
    asked = asyncio.Event()

    async def answer(request: RaftRequest) -> RaftResponse:
        if request == VOTE:
            asked.set()
            await asyncio.Event().wait()
        return VOTED

    async with kind.serve(answer) as behind:
        front = Front(behind)
        async with connected(kind, await front.listen()) as transport:
            await transport.send(PEER, EXCHANGES[1][0], 10)
            waits = asyncio.create_task(failure(transport)) if is_asked else None
            if is_asked:
                await asked.wait()
            await front.die()
            found = await waits if waits is not None else await failure(transport)
            assert found is Failure.CONNECTION_LOST
            assert [await failure(transport) for _ in range(2)] == [Failure.REFUSED] * 2


async def test_a_connection_that_the_peer_closes_and_takes_again_fails_nobody(kind: Kind) -> None:
    async with kind.serve(answering((VOTE, VOTED))) as behind:
        front = Front(behind)
        async with connected(kind, await front.listen()) as transport:
            await transport.send(PEER, VOTE, 10)
            front.break_all()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:  # the kernel may tell of it during the request, whose answer is lost then
                    with contextlib.suppress(TransportError):
                        assert await transport.send(PEER, VOTE, 5) == VOTED
                        break
        await front.die()


async def test_a_peer_that_hangs_until_it_is_given_up_has_not_lost_a_connection(kind: Kind) -> None:
    """This side closed it; what is refused afterwards may be anything."""

    async def answer(request: RaftRequest) -> RaftResponse:
        if request == VOTE:
            await asyncio.Event().wait()
        return VOTED

    async with kind.serve(answer) as behind:
        front = Front(behind)
        async with connected(kind, await front.listen()) as transport:
            await transport.send(PEER, EXCHANGES[1][0], 10)
            with pytest.raises(PeerTimeoutError) as caught:
                await transport.send(PEER, VOTE, 0.2)
            assert caught.value.how is Failure.NO_ANSWER
            await front.die()


async def test_who_closes_before_any_answer_was_no_peer() -> None:
    """A proxy that takes connections for a process that is gone."""

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    proxy = await asyncio.start_server(close, "127.0.0.1", 0)
    async with proxy, connected(Kafka(), proxy.sockets[0].getsockname()[1]) as transport:
        assert await failure(transport) is Failure.NO_ANSWER


async def test_a_port_that_takes_connections_and_says_nothing_is_left_alone_for_a_while() -> None:
    """A process that hangs: requests of the quorum take Kafka's protocol, without a wait for each of them."""
    taken: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _reader, writer: taken.append(writer), "127.0.0.1", 0)
    async with silent, connected(Grpc(), silent.sockets[0].getsockname()[1]) as transport:
        for words in ("does not answer", "did not answer a moment ago"):
            with pytest.raises(UnreachableError, match=words):
                await transport.send(PEER, VOTE, 2)
        silent.close()
        for writer in taken:
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("others", [("127.0.0.2",), ("::1",), ("::1", "127.0.0.2")])
async def test_a_name_with_several_addresses_refuses_as_well(
    others: tuple[str, ...], unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio makes one error of all, which is no ConnectionRefusedError. IPv6 may be missing on this machine."""
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def resolved(host: str, *where: int, **options: int) -> list[object]:
        assert host == "two.test"
        return [found for each in ("127.0.0.1", *others) for found in await resolve(each, *where, **options)]

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    with pytest.raises(UnreachableError) as caught:
        await KafkaConnection.open("two.test", unused_tcp_port, "test", PLAINTEXT, 1000)
    assert caught.value.how is Failure.REFUSED
    address = PeerAddress(f"two.test:{unused_tcp_port}", frozenset({"User:CN=voter"}))
    transport = GrpcRaftTransport("cluster", {PEER: address}.get, voter(1))
    assert await failure(transport) is Failure.REFUSED
    await transport.close()
