"""Where the drill types `migrator rollout`: the inventory of its cluster, and the commands on it."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from migrator.drill.cluster import MIGRATOR, POLL_SECONDS, Cluster
from migrator.drill.report import DrillFailedError, DrillReport
from migrator.drill.rollout.ask import MODULE
from migrator.drill.rollout.services import Service, Services
from migrator.errors import ExitCode
from migrator.parts.processes import ChildProcess
from migrator.rollout.archive import VERDICTS
from migrator.rollout.journal import Entry, read_journal
from migrator.rollout.steps import Phase
from migrator.values import value

INVENTORY = "inventory.yaml"
GATE_SECONDS = 300
GRACE_SECONDS = 10.0
_TIME = re.compile(r"\d\d:\d\d:\d\dZ ")


@value
class DeskNode:
    """One node of the inventory, and the service that it is here. ``more``: keys of its entry."""

    node_id: int
    name: str
    properties: Path
    service: Service
    more: Mapping[str, Any]


class RolloutDesk:
    """One inventory of a drill's cluster. `close` ends what it runs, and no node.

    :param cluster_keys: how brokers find the controllers, and keys that belong to the brokers' files.
    """

    def __init__(
        self,
        cluster: Cluster,
        controllers: Sequence[DeskNode],
        stock: Sequence[DeskNode],
        brokers: Sequence[DeskNode],
        settings: Mapping[str, str],
        release: str,
    ) -> None:
        self._cluster = cluster
        self._nodes = controllers, stock, brokers
        self._settings = settings
        self._release = release
        self.directory = cluster.directory / "rollout"
        self.inventory = self.directory / INVENTORY
        self.state = self.directory / "inventory.rollout"
        self._services = Services({node.name: node.service for node in (*controllers, *stock, *brokers)})
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        """Write the inventory, and answer its executor."""
        self.directory.mkdir(parents=True, exist_ok=True)
        access = self._nodes[0][0].properties.read_text("utf-8")
        (self.directory / "access.properties").write_text(access, "utf-8")
        self.inventory.write_text(yaml.safe_dump(self._content(), sort_keys=False, allow_unicode=True), "utf-8")
        await self._services.open()

    async def close(self) -> None:
        """Safe at any time."""
        await self._services.close()

    def journal(self) -> list[Entry]:
        """Of the rollout."""
        return read_journal(self.state)

    def verdict(self, phase: Phase) -> Mapping[str, Any]:
        """What the command of a phase printed, where the rollout keeps it; nothing otherwise."""
        file = self.state / VERDICTS / f"{phase.value}.json"
        found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
        return found

    async def go(self, report: DrillReport, *words: str) -> None:
        """Run ``migrator rollout WORDS`` to its end.

        :raises DrillFailedError: it failed; with the end of what it said.
        """
        code, tail = await self.type(report, *words)
        if code != ExitCode.OK:
            raise DrillFailedError(f"'migrator rollout {' '.join(words)}' ended with exit code {code}: {tail}")

    async def type(self, report: DrillReport, *words: str) -> tuple[int, str]:
        """Run it; gives its exit code, and the end of what it said. The step under way is what the drill waits for."""
        command = [MIGRATOR, "rollout", words[0], "-i", str(self.inventory), *words[1:]]
        output = self.directory / f"{next(self._numbers):02}-{words[0]}.log"
        child = ChildProcess(f"rollout {words[0]}", command, output=output)
        watched = asyncio.create_task(self._cluster.watch.follow(child.pid))
        try:
            report.wait_for(f"migrator rollout {' '.join(words)}")
            shown = 0
            while (code := child.exit_code()) is None:
                lines = child.output_text().split("\n")[:-1]
                for line in lines[shown:]:
                    if _TIME.match(line) and not line.endswith(tuple(".;")):
                        report.wait_for(_TIME.sub("", line))
                shown = len(lines)
                await asyncio.sleep(POLL_SECONDS)
            report.wait_for("")
            return code, child.tail()
        finally:
            watched.cancel()
            await asyncio.wait({watched})
            await asyncio.to_thread(_end, child)

    def _content(self) -> dict[str, Any]:
        controllers, stock, brokers = self._nodes
        return {
            "cluster": "drill",
            "access": "access.properties",
            "controllers": {
                "program": MIGRATOR,
                "nodes": [
                    _entry(node) | {"stock": {"properties": str(other.properties)}}
                    for node, other in zip(controllers, stock, strict=True)
                ],
            },
            "brokers": {"settings": dict(self._settings), "nodes": [_entry(node) for node in brokers]},
            "executors": {"default": self._executor()},
            "gates": {"seconds": GATE_SECONDS, "poll_seconds": 0.2, "soak_seconds": 2},
            "handover": {"release": self._release},
        }

    def _executor(self) -> dict[str, Any]:
        ask = f"{{python}} -m {MODULE} {{socket}}"
        return {
            "preset": "local",
            "variables": {"socket": str(self._services.socket)},
            "commands": {action: f"{ask} {action} {{name}}" for action in ("stop", "start", "incarnation")},
        }


def _entry(node: DeskNode) -> dict[str, Any]:
    return {"id": node.node_id, "name": node.name, "properties": str(node.properties), **node.more}


def _end(child: ChildProcess) -> None:
    """As Ctrl-C twice: then the command ends what it has started."""
    for _ in range(2):
        if child.exit_code() is None:
            child.send(signal.SIGINT)
            _wait(child, 1.0)
    _wait(child, GRACE_SECONDS)
    child.kill()
