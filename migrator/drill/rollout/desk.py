"""Runs `migrator rollout` for the drill: writes the inventory of its cluster, and runs the commands.

`RealCluster` has one `RolloutDesk`. The commands are child processes, as an operator would type them, and the drill
stops and starts the nodes through a socket. A command is ended when its caller is cancelled; `close` ends what answers
its executor, and no node.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from migrator.drill.cluster import MIGRATOR, WAIT_SECONDS, Cluster
from migrator.drill.probes import POLL_SECONDS, command
from migrator.drill.report import DrillFailedError, DrillReport
from migrator.drill.rollout.ask import MODULE
from migrator.drill.rollout.services import NodeService, Services
from migrator.errors import ExitCode
from migrator.log.files import file_digest
from migrator.parts.java import ONE_TIER
from migrator.parts.processes import ChildProcess, StillRunningError
from migrator.rollout.files.archive import REPORT_PAGE, SUMS, VERDICTS, ZOOKEEPER
from migrator.rollout.journal.journal import Entry, read_journal
from migrator.rollout.plan.steps import Phase
from migrator.values import value

INVENTORY, ACCESS = "inventory.yaml", "access.properties"
SOAK_SECONDS = 2
COMMANDS_SECONDS = 900
"""The time-out of preflight, rehearse, verify and rollback, on a busy machine."""
JVM_OPTIONS = "JAVA_TOOL_OPTIONS"
MEANWHILE_SECONDS = 1.0
AT_ONCE_SECONDS, GRACE_SECONDS = 1.0, 10.0
"""The time between the two signals that end a command at once; and from the second one to its end."""
_TIME = re.compile(r"\d\d:\d\d:\d\dZ ")


@value
class DeskNode:
    """One node of the inventory, and its service in the drill."""

    node_id: int
    name: str
    properties: Path
    service: NodeService
    rack: str = ""


@value
class DeskNodes:
    """All nodes, and the additions to the brokers' files for the migration.

    ``stock``: Kafka's controllers that take over, in the order of the others; empty without a hand-over.
    """

    controllers: Sequence[DeskNode]
    stock: Sequence[DeskNode]
    brokers: Sequence[DeskNode]
    settings: Mapping[str, str]
    controller_protocol: str
    by_rack: bool
    release: str


class RolloutDesk:
    """The rollout of one drill's cluster.

    :param meanwhile: called again and again while a command runs.
    """

    def __init__(self, cluster: Cluster, nodes: DeskNodes, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._meanwhile = meanwhile
        self.directory = cluster.directory / "rollout"
        self.inventory = self.directory / INVENTORY
        self.state = self.directory / "inventory.rollout"
        everybody = (*nodes.controllers, *nodes.stock, *nodes.brokers)
        self.services = Services({node.name: node.service for node in everybody})
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        """Write the inventory, and answer its executor."""
        self.directory.mkdir(parents=True, exist_ok=True)
        socket = await self.services.open(self.directory / "services")
        (self.directory / ACCESS).write_bytes(self._nodes.controllers[0].properties.read_bytes())
        self.inventory.write_text(yaml.safe_dump(self._content(socket), sort_keys=False, allow_unicode=True), "utf-8")

    async def close(self) -> None:
        """Safe at any time."""
        await self.services.close()

    def journal(self) -> list[Entry]:
        return read_journal(self.state)

    def verdict(self, phase: Phase) -> Mapping[str, Any]:
        """The output of a phase's command, as the rollout keeps it; nothing without one."""
        file = self.state / VERDICTS / f"{phase.value}.json"
        found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
        return found

    def check_archive(self, report: DrillReport) -> int:
        """Note whether every file of the archive matches its list; return their number. Blocks. The page of the rollout
        is put beside the report of the drill, because the archive goes with the cluster."""
        (archive,) = self.state.glob("archive-*")
        listed = dict(line.split("  ")[::-1] for line in (archive / SUMS).read_text("utf-8").splitlines())
        changed = [name for name, known in listed.items() if file_digest(archive / name) != known]
        report.check("every file is as its checksum says", not changed, changed)
        report.check("ZooKeeper's znodes are in it", ZOOKEEPER in listed, sorted(listed))
        report.check("the page of the rollout is in it", REPORT_PAGE in listed, sorted(listed))
        if REPORT_PAGE in listed:
            page = shutil.copy(archive / REPORT_PAGE, self._cluster.directory.parent / f"rollout-{REPORT_PAGE}")
            report.figure("page of the rollout", str(page))
        return len(listed)

    async def show_plan(self, report: DrillReport) -> None:
        """Note the plan in the current step: each phase, how many steps it has, and why it is there."""
        report.wait_for("migrator rollout plan")
        code, found = await command(self._cluster, "rollout", "plan", "-i", str(self.inventory))
        report.check("there is a plan", code == ExitCode.OK, found)
        counts = Counter(step["phase"] for step in found["steps"])
        why = {step["phase"]: step["why"] for step in reversed(found["steps"])}
        for phase, count in counts.items():
            report.figure(phase if count == 1 else f"{phase}, {count} steps", why[phase])

    async def go(self, report: DrillReport, *words: str) -> None:
        """Run ``migrator rollout WORDS`` to its end; each of its actions is shown as what the drill waits for.

        :raises DrillFailedError: the command failed; with the end of its output.
        """
        code, tail = await self.type(report, *words)
        if code != ExitCode.OK:
            raise DrillFailedError(f"'migrator rollout {' '.join(words)}' ended with exit code {code}: {tail}")

    async def type(self, report: DrillReport, *words: str) -> tuple[int, str]:
        """Like `go`; returns its exit code, and the end of its output."""
        argv = [MIGRATOR, "rollout", words[0], "-i", str(self.inventory), *words[1:]]
        output = self.directory / f"{next(self._numbers):02}-{words[0]}.log"
        options = " ".join(filter(None, (os.environ.get(JVM_OPTIONS), ONE_TIER)))  # of Spark, which lives for seconds
        environment = {**os.environ, JVM_OPTIONS: options}
        child = ChildProcess(f"rollout {words[0]}", argv, output=output, env=environment)
        beside = [
            asyncio.create_task(self._cluster.watch.follow(child.pid)),
            asyncio.create_task(self._again_and_again()),
        ]
        try:
            report.wait_for(f"migrator rollout {' '.join(words)}")
            shown = 0
            while (code := child.exit_code()) is None:
                lines = child.output_text().split("\n")[:-1]
                for line in filter(_TIME.match, lines[shown:]):
                    report.wait_for(_TIME.sub("", line))
                shown = len(lines)
                await asyncio.sleep(POLL_SECONDS)
            report.wait_for("")
            return code, child.tail()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await asyncio.to_thread(_end, child)

    async def _again_and_again(self) -> None:
        while True:
            await self._meanwhile()
            await asyncio.sleep(MEANWHILE_SECONDS)

    def _content(self, socket: Path) -> dict[str, Any]:
        nodes = self._nodes
        content: dict[str, Any] = {
            "cluster": "drill",
            "access": ACCESS,
            "controllers": {"program": MIGRATOR, "nodes": [_entry(node) for node in nodes.controllers]},
            "brokers": {
                "roll": "rack" if nodes.by_rack else "broker",
                "settings": dict(nodes.settings),
                "controller_protocol": nodes.controller_protocol,
                "nodes": [_entry(node) for node in nodes.brokers],
            },
            "executors": {"default": _executor(socket)},
            "gates": {
                "seconds": int(WAIT_SECONDS),
                "poll_seconds": 0.2,
                "soak_seconds": SOAK_SECONDS,
                "command_seconds": COMMANDS_SECONDS,
            },
        }
        if nodes.stock:
            content["handover"] = {"release": nodes.release}
            for entry, stock in zip(content["controllers"]["nodes"], nodes.stock, strict=True):
                entry["stock"] = {"properties": str(stock.properties)}
        return content


def _entry(node: DeskNode) -> dict[str, Any]:
    entry = {"id": node.node_id, "name": node.name, "properties": str(node.properties)}
    return entry | ({"rack": node.rack} if node.rack else {})


def _executor(socket: Path) -> dict[str, Any]:
    """The drill stops and starts its nodes itself; files are files of this machine."""
    ask = f"{{python}} -m {MODULE} {{socket}}"
    commands = {action: f"{ask} {action} {{name}}" for action in ("stop", "start", "incarnation")}
    return {
        "preset": "local",
        "variables": {"socket": str(socket)},
        "commands": {**commands, "run": f"{ask} run {{name}} {{*words}}"},
    }


def _end(child: ChildProcess) -> None:
    """End the command as Ctrl-C twice does: then it ends the processes that it has started."""
    for seconds in (AT_ONCE_SECONDS, GRACE_SECONDS):
        if child.exit_code() is None:
            child.send(signal.SIGINT)
            try:
                child.wait(timeout_seconds=seconds)
            except StillRunningError:
                continue
    child.kill()
