"""What the processes of a drill show: open ports, those that answer in clear, arguments and environments.

A secured drill asks every port that its processes have, found through the kernel and not through the configuration, so
a forgotten port is seen. A `ProcessWatch` collects command lines, in which no secret may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Mapping, Sequence

import psutil

from migrator.config.endpoints import is_loopback
from migrator.values import value

ANSWER_SECONDS = 2.0
_HANDSHAKE, _ALERT = 0x16, 0x15
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The first request of Kafka's clients, in a frame."""
_FOUR_LETTERS = b"srvr"
_HTTP = b"GET / HTTP/1.0\r\n\r\n"
PLAIN_REQUESTS = (_API_VERSIONS, _FOUR_LETTERS, _HTTP)
"""A server of Kafka's protocol, ZooKeeper's or HTTP answers one of these; a gRPC server sends first."""


@value
class Ports:
    """The number of listening ports; a sentence for each in clear; the numbers of those with TLS."""

    count: int
    in_clear: tuple[str, ...]
    tls: frozenset[int]


def listening_ports(top: int | None = None, *, as_bound: bool = False) -> Mapping[tuple[str, int], str]:
    """Address and port -> name of the process, of this process and all that it has started.

    :param top: the process to begin with, in place of this one.
    :param as_bound: return the bound address, which may be a wildcard; otherwise an address to connect to.
    :raises psutil.AccessDenied: a process does not show its ports.
    """
    found: dict[tuple[str, int], str] = {}
    for process in processes(top):
        with contextlib.suppress(psutil.NoSuchProcess):
            name = f"{process.name()} (process {process.pid})"
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    bound = connection.laddr.ip
                    found[bound if as_bound else _loopback(bound), connection.laddr.port] = name
    return found


def processes(top: int | None = None) -> Sequence[psutil.Process]:
    """This process, or the one with that id, and all its descendants; none when it has ended."""
    try:
        first = psutil.Process(top)
        return first, *first.children(recursive=True)
    except psutil.NoSuchProcess:
        return ()


async def ask_every_port() -> Ports:
    """Ask each port in clear and with TLS: a port that answers in clear, or does not begin TLS, is in clear."""
    ports = await asyncio.to_thread(listening_ports)
    verdicts = await asyncio.gather(*(why_in_clear(host, port) for host, port in ports))
    found = [(port, name, text) for ((_, port), name), text in zip(ports.items(), verdicts, strict=True)]
    return Ports(
        len(ports),
        tuple(f"port {port} of {name}: {text}" for port, name, text in found if text),
        frozenset(port for port, _, text in found if not text),
    )


async def why_in_clear(host: str, port: int) -> str:
    """The fault of a port; "" for a sound port."""
    answers = await asyncio.gather(
        _answer(host, port, _client_hello()), *(_answer(host, port, request) for request in PLAIN_REQUESTS)
    )
    hello, *plain = answers
    if any(answer and answer[0] not in (_HANDSHAKE, _ALERT) for answer in plain):
        return "it answers in clear"
    return "" if hello and hello[0] in (_HANDSHAKE, _ALERT) else "it does not speak TLS"


async def _answer(host: str, port: int, request: bytes) -> bytes:
    """The first bytes that come back; none when the connection is closed, or nothing comes."""
    writer = None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(request)
            return await reader.read(5)
    except (OSError, TimeoutError):
        return b""
    finally:
        if writer is not None:
            writer.transport.abort()


def _client_hello() -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # this only asks whether the port has TLS
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def _loopback(address: str) -> str:
    """The loopback address for a wildcard address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - compared, not bound


LOOK_EVERY_SECONDS = 0.5


class ProcessWatch:
    """Watches the drill's processes and the commands that it runs.

    :param enabled: False: nothing is collected.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self.shown: set[str] = set()
        """Arguments and environments: every user of the machine sees the first, its owner the second."""
        self.ports: dict[tuple[str, int], str] = {}
        """Where commands listened: address and port -> name of the process."""

    @property
    def reachable(self) -> list[str]:
        """Where commands listened outside of loopback, also in the form in which Java binds IPv4 addresses."""
        ports = self.ports.items()
        return [f"{at}:{port} of {name}" for (at, port), name in ports if not is_loopback(at.removeprefix("::ffff:"))]

    async def follow(self, pid: int) -> None:
        """Watch a command and its descendants, until cancelled."""
        while self._enabled:
            await asyncio.to_thread(self._look_at_command, pid)
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    def look(self, top: int | None = None) -> None:
        """Look at this process, or the one with that id, and its descendants."""
        for process in processes(top):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.shown.update(process.cmdline())
                self.shown.update(f"{key}={text}" for key, text in process.environ().items())

    def _look_at_command(self, pid: int) -> None:
        self.look(pid)
        self.ports.update(listening_ports(pid, as_bound=True))
