"""Which TCP ports the processes of a drill listen on, and which of them answer in clear."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Mapping

import psutil

ANSWER_SECONDS = 2.0
_HANDSHAKE, _ALERT = 0x16, 0x15
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""In a frame, as Kafka's clients send it first."""
_FOUR_LETTERS = b"srvr"
_HTTP = b"GET / HTTP/1.0\r\n\r\n"
PLAIN_REQUESTS = (_API_VERSIONS, _FOUR_LETTERS, _HTTP)
"""A server of Kafka's protocol, of ZooKeeper's and of HTTP answers one of these; one of gRPC speaks first."""


def listening_ports() -> Mapping[tuple[str, int], str]:
    """Address and port -> name of the process, of this process and all that it has started."""
    found: dict[tuple[str, int], str] = {}
    us = psutil.Process()
    for process in (us, *us.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            name = f"{process.name()} (process {process.pid})"
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found[_loopback(connection.laddr.ip), connection.laddr.port] = name
    return found


async def answers_in_clear() -> tuple[int, list[str]]:
    """How many ports there are, and a sentence for each that answers in clear, or does not begin TLS when asked to."""
    ports = await asyncio.to_thread(listening_ports)
    verdicts = await asyncio.gather(*(why_in_clear(host, port) for host, port in ports))
    found = zip(ports.items(), verdicts, strict=True)
    return len(ports), [f"port {port} of {name}: {text}" for ((_, port), name), text in found if text]


async def why_in_clear(host: str, port: int) -> str:
    """What is wrong with a port; empty when nothing is."""
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
    context.verify_mode = ssl.CERT_NONE  # only whether it speaks TLS is asked here
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def _loopback(address: str) -> str:
    """Where a wildcard address is reached on this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - compared, not bound
