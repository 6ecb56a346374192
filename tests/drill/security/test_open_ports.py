"""A drill finds the ports that answer in clear, whatever they speak, and takes no TLS port for one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest

from migrator.drill.security import open_ports
from migrator.drill.security.open_ports import listening_ports, why_in_clear
from migrator.drill.security.protection import BROKER, CLIENTS, InClear, Secured
from migrator.parts.processes import free_port
from migrator.wire.requests import RequestContext
from migrator.wire.security import ListenerSecurity
from migrator.wire.server import KafkaListener
from tests.conftest import ZooKeeperSpace
from tests.patience import PATIENCE_SECONDS


class Nobody:
    async def handle(self, context: RequestContext, body: Any) -> Any:
        raise NotImplementedError


async def verdict_on(security: ListenerSecurity) -> str:
    listener = KafkaListener(CLIENTS, Nobody(), security=security)
    port = await listener.start("127.0.0.1", 0)
    try:
        assert ("127.0.0.1", port) in listening_ports()
        return await why_in_clear("127.0.0.1", port)
    finally:
        await listener.close(grace=0.0)


async def test_a_listener_of_kafkas_protocol_in_clear_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers, or closes the connection: how soon, on a busy machine, does not count."""
    monkeypatch.setattr(open_ports, "ANSWER_SECONDS", PATIENCE_SECONDS)
    assert await verdict_on(InClear().of_light_broker(1)) == "it answers in clear"


async def test_so_is_a_zookeeper(zookeeper: ZooKeeperSpace) -> None:
    host, _, port = zookeeper.server.partition(":")
    assert await why_in_clear(host, int(port)) == "it answers in clear"


async def test_and_what_says_nothing_at_all() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(listen, "127.0.0.1", port):
        assert await why_in_clear("127.0.0.1", port) == "it does not speak TLS"


@pytest.mark.parametrize("door", ["of_light_broker", "at_controllers"])
async def test_tls_is_not_in_clear_with_and_without_client_certificates(door: str, tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    security = secured.of_light_broker(1) if door == "of_light_broker" else secured.at_controllers(BROKER)
    assert await verdict_on(security) == ""


async def test_ports_of_children_count() -> None:
    script = "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); input()"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(psutil.Process().exe(), "-c", script, stdin=pipe, stdout=pipe)
    assert child.stdout is not None
    port = int(await child.stdout.readline())
    assert ("127.0.0.1", port) in listening_ports()
    await child.communicate(b"\n")
