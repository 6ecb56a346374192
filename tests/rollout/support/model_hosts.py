"""The hosts of a model cluster: files, commands and their faults.

`model` has one. A test makes a host fail by path or by command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from migrator.rollout.nodes import Node
from migrator.rollout.ports import ExecutorError, NotRegularError, Output, PlaceSeen, Trial

Fault = Callable[[str, Node], None]


class ModelHosts:
    """``files``: by host and path. ``unreadable``: by path, what happens to whoever reads it. ``exit_codes`` and
    ``prints``: by name of a command. ``fault``: called with action and node before each effect."""

    fault: Fault

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytes] = {}
        self.unreadable: dict[str, ExecutorError] = {}
        self.exit_codes: dict[str, int] = {}
        self.prints: dict[str, str] = {"here": '{"findings": []}'}
        self.logs: dict[str, Output] = {}
        self.places: dict[str, PlaceSeen] = {}
        self.trials: dict[str, Trial] = {}

    async def read(self, node: Node, path: str) -> bytes | None:
        self.fault("read", node)
        if path in self.unreadable:
            raise self.unreadable[path]
        if not path.startswith("/"):
            raise ExecutorError(f"{path} is no absolute path", where=node.name)
        if self._below(node, path):
            raise NotRegularError("the path is not a regular file", where=node.name)
        return self.files.get((self._home(node), path))

    async def fetch(self, node: Node, path: str, file: Path, *, seconds: float) -> bool:
        content = await self.read(node, path)
        if content is not None:
            await asyncio.to_thread(file.write_bytes, content)
        return content is not None

    async def log_of(self, node: Node) -> Output | None:
        """Nobody knows where it is."""
        return self.logs.get(node.name)

    async def place_of(self, node: Node) -> PlaceSeen | None:
        """Where the node runs in a pod that is not well."""
        return self.places.get(node.name)

    async def trial(self, node: Node) -> Trial:
        """Nothing fails, unless a test says so."""
        return self.trials.get(node.name, Trial())

    def listing(self, node: Node, words: Sequence[str]) -> Output:
        """The output of ls."""
        found = self._below(node, words[-1].removesuffix("/."))
        code = self.exit_codes.get("ls", 0 if found else 2)
        names = "" if code else "\n".join(path.rpartition("/")[2] for path in reversed(found))
        return Output(code, self.prints.get("ls", names))

    def _below(self, node: Node, path: str) -> list[str]:
        return [file for home, file in self.files if home == self._home(node) and file.startswith(f"{path}/")]

    def _home(self, node: Node) -> str:
        return node.name.removesuffix("-stock")
