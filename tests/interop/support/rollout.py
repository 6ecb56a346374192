"""A rollout of real brokers by local processes: the inventory, the command, and its death at a line of the journal.

Tests kill `migrator rollout` with `KillAt` and type `resume`. Leaving the context of the desk ends all that the rollout
has started.
"""

from __future__ import annotations

import itertools
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from migrator.drill.cluster import MIGRATOR
from migrator.drill.kafka.cluster import BROKER_JVM, KafkaBrokerMode
from migrator.observe.status import Status
from migrator.parts.processes import ChildProcess
from migrator.rollout.executors.local_process import find
from migrator.rollout.journal.journal import Entry, Event, read_journal
from migrator.rollout.plan.steps import Act, Phase
from migrator.values import value
from tests.interop.support.cluster import KafkaCluster
from tests.patience import PATIENCE_SECONDS

MARKS = ("kafka.Kafka", "controller")
STARTED = " started (kafka.server.KafkaServer)", " Kafka Server started (kafka.server.KafkaRaftServer)"


@value
class KillAt:
    """A line of the journal behind which the command is killed: an act of a phase that was begun or done."""

    phase: Phase
    act: Act
    event: Event = Event.BEGUN

    def __str__(self) -> str:
        return f"{self.phase.value} {self.act.value} {self.event.value}"

    def is_met(self, entry: Entry) -> bool:
        """Whether the line says so, of whichever node."""
        return entry.step.partition("/")[0] == self.phase and entry.act == self.act and entry.event is self.event


class RolloutDesk:
    """Where an operator types `migrator rollout`. Leaving its context ends what the rollout has started."""

    def __init__(
        self, cluster: KafkaCluster, directory: Path, *, soak_seconds: float = 1, handover: bool = True
    ) -> None:
        self.cluster = cluster
        self.directory = directory
        self.inventory = directory / "inventory.yaml"
        self.state = directory / "inventory.rollout"
        self.output = ""
        self._runs = itertools.count()
        self._soak_seconds = soak_seconds
        self._handover = handover

    def prepare(self) -> None:
        """Brokers run in ZooKeeper mode; controllers have their property file and nothing else."""
        self.cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        for controller in self.cluster.controllers:
            controller.write_properties()
        shutil.copy(self.cluster.controllers[0].property_file, self.directory / "access.properties")
        self.inventory.write_text(yaml.safe_dump(self._content(), sort_keys=False))

    def type(self, *words: str, kill_at: KillAt | None = None) -> int | None:
        """Run a command to its end; None if it was killed before."""
        known = len(self.journal)
        command = [MIGRATOR, "rollout", words[0], "-i", str(self.inventory), *words[1:]]
        file = self.directory / f"rollout-{next(self._runs)}.log"
        with ChildProcess(f"rollout {words[0]}", command, output=file) as child:

            def over() -> bool:
                if kill_at is not None and any(map(kill_at.is_met, self.journal[known:])):
                    return True
                return child.exit_code() is not None

            child.wait_until(over, f"the command ends, or {kill_at}", timeout_seconds=PATIENCE_SECONDS * 2)
            code = child.exit_code()
            if code is None:
                child.kill()
            self.output = file.read_text()
        return code

    @property
    def journal(self) -> list[Entry]:
        """Its lines now; another line may be on its way."""
        return read_journal(self.state)

    def broker_starts(self, broker: int) -> int:
        """How often it has come up, the first start included."""
        node = self.cluster.brokers[broker]
        files = (node.directory / "node.log", Path(f"{node.properties_file}.out"))
        text = "".join(file.read_text(errors="replace") for file in files if file.exists())
        return sum(text.count(mark) for mark in STARTED)

    def statuses(self) -> dict[int, Status]:
        """Of our controllers that answer."""
        return self.cluster.statuses()

    @property
    def _files(self) -> Iterator[Path]:
        for node in self.cluster.brokers.values():
            yield node.properties_file
        for controller in self.cluster.controllers:
            yield controller.property_file
            yield controller.property_file.with_name("controller.stock.properties")

    def close(self) -> None:
        """Kill what runs; children of this process that have ended are collected."""
        running = [process for file in self._files for process in find(str(file), MARKS)]
        for process in running:
            process.kill()
        psutil.wait_procs(running, timeout=PATIENCE_SECONDS)

    def _content(self) -> dict[str, Any]:
        kafka, controllers = self.cluster.kafka, self.cluster.controllers
        settings = {"controller.listener.names": "CONTROLLER"}
        settings |= {"controller.quorum.voters": controllers[0].properties["controller.quorum.voters"]}

        def java(directory: Path) -> dict[str, str]:
            return {"command": shlex.join(kafka.command("kafka.Kafka", "{path}", directory=directory, jvm=BROKER_JVM))}

        content: dict[str, Any] = {
            "cluster": "drill",
            "access": "access.properties",
            "controllers": {
                "program": MIGRATOR,
                "nodes": [
                    {
                        "id": controller.node_id,
                        "properties": str(controller.property_file),
                        "variables": {"command": shlex.join([MIGRATOR, "controller", "-c", "{path}"])},
                        "stock": {"variables": java(controller.directory)},
                    }
                    for controller in controllers
                ],
            },
            "brokers": {
                "settings": settings,
                "nodes": [
                    {"id": broker, "properties": str(node.properties_file), "variables": java(node.directory)}
                    for broker, node in self.cluster.brokers.items()
                ],
            },
            "executors": {"default": {"preset": "local"}},
            "steps": {"rehearse": False},
            "gates": {"seconds": PATIENCE_SECONDS, "poll_seconds": 0.2, "soak_seconds": self._soak_seconds},
        }
        return content | ({"handover": {"release": "3.9.1"}} if self._handover else {})


@contextmanager
def rollout_desk(cluster: KafkaCluster, directory: Path) -> Iterator[RolloutDesk]:
    """Ready to begin."""
    desk = RolloutDesk(cluster, directory)
    try:
        desk.prepare()
        yield desk
    finally:
        desk.close()
