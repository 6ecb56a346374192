"""The drill as the service manager of its nodes: what systemd is on a real machine.

An executor of the drill's inventory asks here (`migrator.drill.rollout.ask`), so every process of a rollout is a child
of the drill, and ends with it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from migrator.errors import MigratorError

SOCKET = "services"
FAILED = "failed"
DONE = "done"


class Service(Protocol):
    """One node. All of it is blocking."""

    def start(self) -> None:
        """Start its process with its property file as the file is; it is not waited for."""

    def stop(self) -> None:
        """End its process in good order, and wait for its end."""

    def incarnation(self) -> str:
        """Another one after each start; "" while nothing runs."""


class Services:
    """Answers on a socket that only this user can open. `close` ends it, and no node.

    :param nodes: by name, as the inventory calls them.
    """

    def __init__(self, nodes: Mapping[str, Service]) -> None:
        self._nodes = nodes
        self._locks = {name: asyncio.Lock() for name in nodes}
        self._directory = Path(tempfile.mkdtemp(prefix="migrator-"))  # the path of a socket has to be short
        self._server: asyncio.Server | None = None

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self._directory / SOCKET

    async def open(self) -> None:
        """Begin to answer."""
        self._server = await asyncio.start_unix_server(self._answer, self.socket)

    async def close(self) -> None:
        """Answer no more; safe at any time."""
        if self._server is not None:
            self._server.close()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            action, _, name = (await reader.readline()).decode().strip().partition(" ")
            try:
                said = f"{DONE} {await self._do(action, name)}"
            except (MigratorError, OSError) as error:
                said = f"{FAILED} {error}"
            writer.write(said.encode())
            await writer.drain()
        finally:
            writer.close()

    async def _do(self, action: str, name: str) -> str:
        node = self._nodes[name]
        async with self._locks[name]:
            if action == "incarnation":
                return node.incarnation()
            await asyncio.to_thread(node.start if action == "start" else node.stop)
            return ""
