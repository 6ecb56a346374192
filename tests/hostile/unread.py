"""`python -m tests.hostile.unread`: many connections to a controller in clear ask for its log and read no answer.

Prints what the controller's process holds before and at most, and how long honest requests take meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self

import click
import psutil
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import ControllerProcess
from migrator.parts.processes import free_port
from migrator.raft.messages import FetchRequest
from migrator.raft.transport import TransportError
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.encode import encode_entity
from migrator.wire.raft_codec import encode_raft_request
from migrator.wire.schemas import RequestHeader, build, encode_request_header, request_type
from tests.patience import PATIENCE_SECONDS
from tests.raw_frames import sized

FETCH, ALTER_CLIENT_QUOTAS, DESCRIBE_QUORUM = 1, 49, 55
FETCH_VERSION = 17
QUOTAS, NAME_BYTES = 150, 10_000
"""Quotas of users with long names: each is a record, and all together are more log than one Fetch is answered with."""
SAMPLE_SECONDS = 0.02
LOOK_SECONDS = 0.2
MIB = 2**20
ENDS = (0, 7, 8)
"""The first byte of TCP_INFO on Linux for an ended connection: unknown, CLOSE, CLOSE_WAIT."""


def controller_in(directory: Path) -> ControllerProcess:
    """A quorum of one, formatted, with a listener in clear."""
    port = free_port()
    properties = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
    }
    controller = ControllerProcess(1, directory, properties)
    controller.format()
    return controller


async def leads(controller: ControllerProcess) -> int:
    """The epoch in which it leads, once it does."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            status = await controller.status()
            if status is not None and status.quorum.leader_id == 1 and status.quorum.high_watermark > 0:
                return status.quorum.leader_epoch
            await asyncio.sleep(LOOK_SECONDS)


async def fill(port: int) -> None:
    """Until the log holds more than one answer to a Fetch."""
    client = KafkaClient("127.0.0.1", port, "filler")
    try:
        for number in range(QUOTAS):
            name = f"{number:06}".ljust(NAME_BYTES, "x")
            operation = {"key": "producer_byte_rate", "value": 1024.0, "remove": False}
            entry = {"entity": ({"entity_type": "user", "entity_name": name},), "ops": (operation,)}
            answer = await client.request(build(request_type(ALTER_CLIENT_QUOTAS, 1), entries=(entry,)), 30)
            assert answer.entries[0].error_code == ErrorCode.none, answer
    finally:
        await client.close()


def fetch_body(epoch: int) -> Any:
    """The log from its beginning, as much as there is."""
    return encode_raft_request(FetchRequest(None, -1, epoch, 0, 0, 0, 2**31 - 1), FETCH_VERSION, ())


class Unread:
    """Connections that ask many times and read nothing.

    :param again: whether one that is cut off connects anew, as long as this lasts.
    :ivar made: connections so far.
    """

    def __init__(self, port: int, connections: int, fetches: int, body: Any, *, again: bool) -> None:
        header = encode_request_header(RequestHeader(FETCH, FETCH_VERSION, 1, "unread"))
        self._requests = sized(b"".join(header + encode_entity(body))) * fetches
        self._port = port
        self._count = connections
        self._again = again
        self._tasks: list[asyncio.Task[None]] = []
        self.made = 0

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._hold()) for _ in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with socket.socket() as sock, contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.setblocking(False)
                await loop.sock_connect(sock, ("127.0.0.1", self._port))
                await loop.sock_sendall(sock, self._requests)
                self.made += 1
                while sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] not in ENDS:
                    await asyncio.sleep(LOOK_SECONDS)
            if not self._again:
                return


class Honest:
    """Asks on one connection again and again.

    :ivar seconds: how long each request took, with the attempts that its connection was cut off in.
    """

    def __init__(self, name: str, port: int, body: Any) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.failures = 0
        self._client = KafkaClient("127.0.0.1", port, "honest", limits=ClientLimits(backoff_ms=1, max_backoff_ms=10))
        self._body = body
        self._began: float | None = None

    async def ask(self) -> None:
        while True:
            self._began = time.monotonic()
            while True:
                try:
                    await self._client.request(self._body, PATIENCE_SECONDS)
                    break
                except TransportError:
                    self.failures += 1
            self.seconds.append(time.monotonic() - self._began)
            self._began = None
            await asyncio.sleep(LOOK_SECONDS / 4)

    def __str__(self) -> str:
        open_for = 0.0 if self._began is None else time.monotonic() - self._began
        worst = max(self.seconds, default=0.0)
        half = statistics.median(self.seconds) if self.seconds else 0.0
        return (
            f"{self.name}: {len(self.seconds)} answered, median {half * 1000:.0f} ms, worst {worst * 1000:.0f} ms, "
            f"{self.failures} connections lost, the last one open for {open_for * 1000:.0f} ms"
        )


class Resident:
    """Memory of a process, in MiB."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.peak = 0

    def now(self) -> int:
        return int(self._process.memory_info().rss) // MIB

    async def watch(self) -> None:
        while True:
            self.peak = max(self.peak, self.now())
            await asyncio.sleep(SAMPLE_SECONDS)


async def attack(directory: Path, connections: int, fetches: int, seconds: float, *, again: bool) -> None:
    controller = controller_in(directory)
    port = int(controller.properties["listeners"].rpartition(":")[2])
    controller.start()
    try:
        body = fetch_body(await leads(controller))
        await fill(port)
        assert controller.process is not None
        resident = Resident(controller.process.pid)
        honest = [Honest("Fetch", port, body), Honest("DescribeQuorum", port, _describe_quorum())]
        works: list[Coroutine[Any, Any, None]] = [each.ask() for each in honest]
        tasks = [asyncio.create_task(work) for work in (*works, resident.watch())]
        await asyncio.sleep(min(seconds, 2))
        click.echo(f"before: {resident.now()} MiB")
        for each in honest:
            click.echo(f"  {each}")
            each.seconds.clear()
        async with Unread(port, connections, fetches, body, again=again) as unread:
            await asyncio.sleep(seconds)
            click.echo(
                f"{unread.made} connections of {connections}: now {resident.now()} MiB, peak {resident.peak} MiB"
            )
            for each in honest:
                click.echo(f"  {each}")
        await asyncio.sleep(min(seconds, 5))
        click.echo(f"when they had closed: now {resident.now()} MiB, peak {resident.peak} MiB")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        controller.kill()


def _describe_quorum() -> Any:
    topic = {"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)}
    return build(request_type(DESCRIBE_QUORUM, 1), topics=(topic,))


@click.command()
@click.option("--connections", default=1500, show_default=True)
@click.option("--fetches", default=12, show_default=True, help="Requests of each connection.")
@click.option("--seconds", default=15.0, show_default=True, help="How long the attack lasts.")
@click.option("--again", is_flag=True, help="Who is cut off connects anew.")
def main(connections: int, fetches: int, seconds: float, again: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(attack(Path(directory), connections, fetches, seconds, again=again))


if __name__ == "__main__":
    main()
