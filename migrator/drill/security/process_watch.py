"""Collects what the processes of a secured drill show: arguments, environments, ports."""

from __future__ import annotations

import asyncio
import contextlib

import psutil

from migrator.config.endpoints import is_loopback
from migrator.drill.security.open_ports import listening_ports, processes

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
        return [f"{host}:{port} of {name}" for (host, port), name in self.ports.items() if not _is_loopback(host)]

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


def _is_loopback(host: str) -> bool:
    """Whether it is a loopback address, also in the form in which Java binds IPv4 addresses."""
    return is_loopback(host.removeprefix("::ffff:"))
