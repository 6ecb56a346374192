"""Nodes whose process is a small program that behaves like a server: it runs until it is asked to end.

Tests of executors stop and start them by the presets' real commands.
"""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from migrator.rollout.executors.executors import NodeExecutor
from migrator.rollout.nodes import ExecutorChoice, Node, NodeKind
from migrator.rollout.ports import Output

SERVER = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(float(sys.argv[3])), sys.exit())); "
    "exec('while True: signal.pause()')"
)


def server(lingers: float = 0.0) -> str:
    """A node's variable ``command``: it takes so many seconds to end."""
    return f"{shlex.join([sys.executable, '-c', SERVER])} kafka.Kafka {{path}} {lingers}"


def node(path: Path, host: str = "localhost", **variables: str) -> Node:
    return Node("broker-1", NodeKind.BROKER, 1, host, str(path), "default", "", {"command": server(), **variables})


def executor(
    on: Node,
    preset: str,
    commands: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    seconds: float = 60.0,
    tell: Callable[[str], None] = print,
) -> NodeExecutor:
    choice = ExecutorChoice("default", preset, commands or {}, variables or {}, seconds)
    return NodeExecutor({"default": choice}, [on], tell)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Hands:
    """An executor and its one node, call by call."""

    def __init__(
        self, on: Node, preset: str = "local", commands: Mapping[str, str] | None = None, **variables: str
    ) -> None:
        self.node = on
        self.path = Path(on.properties)
        self.executor = executor(on, preset, commands, variables)

    @property
    def names(self) -> list[str]:
        """The names in the directory of the property file."""
        return sorted(file.name for file in self.path.parent.iterdir())

    def read(self, path: str = "") -> bytes | None:
        return asyncio.run(self.executor.read(self.node, path or str(self.path)))

    def write(self, content: bytes, before: bytes | None, backup: str = "", path: str = "") -> None:
        expected = None if before is None else digest(before)
        path = path or str(self.path)
        asyncio.run(self.executor.write(self.node, path, content, expected=expected, backup=backup))

    def copy(self, content: bytes) -> None:
        asyncio.run(self.executor.copy(self.node, str(self.path), content))

    def run(self, *words: str, seconds: float = 30.0) -> Output:
        return asyncio.run(self.executor.run(self.node, words, seconds=seconds))

    def trial(self) -> tuple[list[str], tuple[str, ...]]:
        """The commands that would fail, in words; and those that could not be tried."""
        found = asyncio.run(self.executor.trial(self.node))
        return list(map(str, found.faults)), found.untried

    def stop(self) -> None:
        asyncio.run(self.executor.stop(self.node))

    def start(self) -> None:
        asyncio.run(self.executor.start(self.node))

    def restart(self) -> None:
        asyncio.run(self.executor.restart(self.node))

    def incarnation(self) -> str | None:
        return asyncio.run(self.executor.incarnation(self.node))


def running(*words: str) -> list[psutil.Process]:
    """Processes that have all these words in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if set(words) <= set(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def end(*words: str) -> None:
    """Kill them."""
    for process in running(*words):
        process.kill()
