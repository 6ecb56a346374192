"""Light brokers on racks, each a process with Kafka's property file, and their inventory for `migrator rollout`.

Tests of large rolls use `LightRacks`. Each broker notes when it begins and ceases to serve, so a test sees which
brokers were down together.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import psutil
import yaml
from kazoo.client import KazooClient

from migrator.drill.cluster import (
    CLUSTER_ID,
    FIRST_CONTROLLER_ID,
    MIGRATOR,
    ControllerProcess,
    controller_properties,
    migration_properties,
)
from migrator.drill.kafka.cluster import until
from migrator.drill.workload.fill import write
from migrator.image.loader import ImageLoader
from migrator.image.replay import replay
from migrator.log.meta_properties import MetaProperties, write_meta_properties
from migrator.parts.processes import free_port
from migrator.records.batch import iter_batches
from migrator.records.uuid import Uuid
from migrator.rollout.executors.local_process import find
from migrator.values import value
from migrator.zookeeper.ops import Create
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.controller import encode_controller_epoch
from migrator.zookeeper.znodes.partition_state import PartitionState, encode_partition_state
from migrator.zookeeper.znodes.topics import TopicAssignment, encode_topic
from tests.patience import PATIENCE_SECONDS

LIGHT = "tests.kit.light_broker"
REPLICAS, MIN_ISR = 3, 2
TOPIC = "orders"


@value
class Turn:
    """A note of a broker: it began or ceased to serve. ``at_ns``: by the clock that all processes of a machine
    share, and that never jumps."""

    at_ns: int
    broker_id: int
    serves: bool


class LightRacks:
    """So many light brokers on three racks, three controllers of ours, one topic with a partition for each broker; each
    partition has a replica on every rack. Leaving its context ends what runs."""

    def __init__(self, directory: Path, zookeeper: str, brokers: int, racks: int = 3) -> None:
        self.directory = directory
        self.racks = {broker: f"r{broker % racks}" for broker in range(1, brokers + 1)}
        self.events = directory / "turns.jsonl"
        self.inventory = directory / "inventory.yaml"
        ids = tuple(self.racks)
        self.partitions = {
            number: tuple(ids[(number + step) % len(ids)] for step in range(REPLICAS)) for number in range(len(ids))
        }
        ports = {FIRST_CONTROLLER_ID + number: free_port() for number in range(3)}
        slow = {"broker.session.timeout.ms": "60000"}  # who is fenced because the machine is busy is no news here
        self.controllers = [
            ControllerProcess(
                node,
                directory / f"controller-{node}",
                controller_properties(node, ports) | migration_properties(zookeeper) | slow,
            )
            for node in ports
        ]
        self.files = {broker: directory / f"broker-{broker}" / "server.properties" for broker in ids}
        self._zookeeper = zookeeper
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        files = (*self.files.values(), *(controller.property_file for controller in self.controllers))
        running = [process for file in files for process in find(str(file), (LIGHT, "controller"))]
        for process in running:
            process.kill()
        psutil.wait_procs(running, timeout=PATIENCE_SECONDS)
        for child in self._children:
            child.wait(PATIENCE_SECONDS)

    def prepare(self, client: KazooClient) -> None:
        """Fill ZooKeeper, write all files, and start the brokers in ZooKeeper mode."""
        write(client, self._znodes())
        for controller in self.controllers:
            controller.write_properties()
        (self.directory / "access.properties").write_text(self.controllers[0].property_file.read_text())
        self.inventory.write_text(yaml.safe_dump(self._inventory(), sort_keys=False))
        for broker, file in self.files.items():
            self._prepare_broker(broker, file)
        for file in self.files.values():
            command = self._start(file)
            self._children.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until("all brokers serve", lambda: sum(turn.serves for turn in self.turns()) == len(self.files))

    def turns(self) -> list[Turn]:
        """When brokers began and ceased to serve, in time."""
        if not self.events.exists():
            return []
        lines = self.events.read_text().splitlines()
        return sorted((Turn(**json.loads(line)) for line in lines), key=lambda turn: turn.at_ns)

    def harm(self) -> Iterator[str]:
        """A sentence for each moment at which two racks were down at once, or a partition had fewer replicas that serve
        than its min ISR. From the first moment at which all serve."""
        down: set[int] = set(self.racks)
        begun = False
        for turn in self.turns():
            (down.discard if turn.serves else down.add)(turn.broker_id)
            begun = begun or not down
            racks = sorted({self.racks[broker] for broker in down})
            if begun and len(racks) > 1:
                yield f"racks {', '.join(racks)} were down at once: brokers {sorted(down)}"
            for number, replicas in self.partitions.items():
                if begun and len(set(replicas) - down) < MIN_ISR:
                    yield f"{TOPIC}-{number} had only {sorted(set(replicas) - down)} of {replicas}"

    def harm_in_log(self) -> Iterator[str]:
        """The same of the in-sync replicas that each committed batch of the metadata log says."""
        loader = ImageLoader()
        log = self.controllers[0].metadata_directory / "__cluster_metadata-0"
        for segment in sorted(log.glob("*.log")):
            for batch in iter_batches(segment.read_bytes()):
                replay(loader, batch)
                topic = loader.published.topics.by_name(TOPIC)
                for number, it in (topic.partitions if topic is not None else {}).items():
                    if len(it.isr) < MIN_ISR:
                        yield f"offset {batch.header.base_offset}: {TOPIC}-{number} has in sync {it.isr}"

    def restarts(self) -> Mapping[int, int]:
        """How often each broker has come back."""
        found: dict[int, int] = defaultdict(lambda: -1)
        for turn in self.turns():
            found[turn.broker_id] += turn.serves
        return found

    def _znodes(self) -> Iterator[Create]:
        ends = [*paths.STANDARD_PATHS, paths.CLUSTER_ID, paths.CONTROLLER_EPOCH, paths.topic(TOPIC)]
        states = {
            paths.partition_state(TOPIC, number): encode_partition_state(PartitionState(replicas[0], 0, 1, replicas))
            for number, replicas in self.partitions.items()
        }
        contents = states | {
            paths.CLUSTER_ID: encode_cluster_id(CLUSTER_ID),
            paths.CONTROLLER_EPOCH: encode_controller_epoch(1),
            paths.topic(TOPIC): encode_topic(TopicAssignment(Uuid(bytes(15) + b"\x77"), self.partitions, {}, {})),
            paths.topic_config(TOPIC): b'{"version":1,"config":{"min.insync.replicas":"%d"}}' % MIN_ISR,
        }
        made: set[str] = set()
        for path in (*ends, *contents):
            for each in (*paths.ancestors(path), path):
                if each not in made and each != paths.PRODUCER_IDS:
                    made.add(each)
                    yield Create(each, contents.get(each))

    def _prepare_broker(self, broker: int, file: Path) -> None:
        directory = file.parent / "data"
        directory.mkdir(parents=True)
        write_meta_properties(directory, MetaProperties(CLUSTER_ID, broker))
        file.write_text(
            f"broker.id={broker}\nbroker.rack={self.racks[broker]}\nlisteners=PLAINTEXT://127.0.0.1:{free_port()}\n"
            f"log.dirs={directory}\nzookeeper.connect={self._zookeeper}\nzookeeper.session.timeout.ms=18000\n"
            f"inter.broker.protocol.version=3.9\nmin.insync.replicas={MIN_ISR}\n"
        )

    def _start(self, file: Path | str) -> list[str]:
        return [sys.executable, "-m", LIGHT, str(file), str(self.events)]

    def _inventory(self) -> dict[str, object]:
        voters = self.controllers[0].properties["controller.quorum.voters"]
        command = shlex.join([MIGRATOR, "controller", "-c", "{path}"])
        return {
            "cluster": "racks",
            "access": "access.properties",
            "controllers": {
                "program": MIGRATOR,
                "nodes": [
                    {"id": it.node_id, "properties": str(it.property_file), "variables": {"command": command}}
                    for it in self.controllers
                ],
            },
            "brokers": {
                "roll": "rack",
                "settings": {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": voters},
                "nodes": [
                    {"id": broker, "properties": str(file), "rack": self.racks[broker]}
                    for broker, file in self.files.items()
                ],
            },
            "executors": {
                "default": {
                    "preset": "local",
                    "variables": {"marks": f"{LIGHT},controller", "command": shlex.join(self._start("{path}"))},
                }
            },
            "steps": {"preflight": False, "rehearse": False, "verify": False},
            "gates": {"seconds": 2 * PATIENCE_SECONDS, "poll_seconds": 0.5},
        }
