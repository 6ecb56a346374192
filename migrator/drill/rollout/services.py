"""The drill as the service manager of its nodes, as systemd on a real machine.

The executor of the drill's inventory asks here (`migrator.drill.rollout.ask`), so every node that a rollout starts is a
child of the drill, and ends with it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

from migrator.drill.cluster import ControllerProcess
from migrator.drill.rollout.ask import DONE, RUN
from migrator.errors import ExitCode, MigratorError, OperatorError
from migrator.parts.kafka import StockNode
from migrator.parts.processes import ChildProcess
from migrator.rollout.executors.local_process import incarnation
from migrator.values import value

SOCKET = "services"
FAILED = "failed"
LINE_MAX = 1 << 12
PATH_MAX = 103
"""The most bytes of the path of a socket: macOS allows 103, Linux 107."""


@value
class NodeService:
    """The process of one node: a controller of this program, or a node of Kafka."""

    node: ControllerProcess | StockNode

    def run(self) -> None:
        """Start the process with its property file as it is; it is not waited for."""
        self.node.run()

    def end(self) -> None:
        """End the process in good order, and wait for its end. Blocking.

        :raises OperatorError: a controller of this program did not end cleanly.
        """
        code = self.node.stop()
        if code not in (None, ExitCode.OK):
            raise OperatorError(f"it ended with exit code {code}", where=str(self.node.directory))

    def running(self) -> ChildProcess | None:
        """The process; None while none runs."""
        return self.node.process if self.node.runs else None


class Services:
    """Answers on a socket that only this user can open. `close` ends it, and no node.

    :param nodes: by name, as the inventory calls them.
    """

    def __init__(self, nodes: Mapping[str, NodeService]) -> None:
        self._nodes = nodes
        self._locks = {name: asyncio.Lock() for name in nodes}
        self._directory: Path | None = None
        self._server: asyncio.Server | None = None
        self._closed = False

    async def open(self, place: Path) -> Path:
        """Begin to answer; gives the socket.

        :param place: a directory to be made. A drill that is killed leaves it, with all else that it has. The socket is
            elsewhere only where its path would be too long.
        """
        if len(os.fsencode(place / SOCKET)) > PATH_MAX:
            place = Path(tempfile.mkdtemp(prefix="migrator-"))
        else:
            place.mkdir(mode=0o700)
        self._directory = place
        self._server = await asyncio.start_unix_server(self._answer, place / SOCKET, limit=LINE_MAX)
        return place / SOCKET

    async def close(self) -> None:
        """Stop answering and starting nodes; safe at any time."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    def lock(self, name: str) -> asyncio.Lock:
        """The lock under which one caller stops and starts this node."""
        return self._locks[name]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            action, _, name = (await reader.readline()).decode().strip().partition(" ")
            if action == RUN:  # the caller runs it, and watches this connection for the end of the drill
                await reader.read()
                return
            try:
                said = f"{DONE} {await self._do(action, name)}"
            except (MigratorError, OSError) as error:
                said = f"{FAILED} {error}"
            writer.write(said.encode())
            await writer.drain()
        finally:
            writer.close()

    async def _do(self, action: str, name: str) -> str:
        node = self._nodes.get(name)
        if node is None or self._closed:
            raise OperatorError("the drill has no such node, or it ends", where=name)
        async with self._locks[name]:
            process = node.running()
            if action == "incarnation":
                return "" if process is None else incarnation(psutil.Process(process.pid))
            if action == "stop" and process is not None:
                await asyncio.to_thread(node.end)
            if action == "start" and process is None and not self._closed:
                node.run()
            return ""
