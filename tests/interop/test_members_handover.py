"""A way out by membership, and back: controllers of the other program join, those before leave; a broker lives on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import until
from migrator.errors import OperatorError
from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode
from migrator.parts.processes import free_port, run_to_end
from tests.interop.support.changing_voters import ChangingVoters
from tests.interop.support.cluster import Admin

OURS, STOCK = (1, 2, 3), (4, 5, 6)
TOPIC = "orders"
BROKER = 10
PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"

pytestmark = pytest.mark.lane("test-long")


class Way:
    """Three of ours vote, three stock controllers observe, and a stock broker takes records."""

    def __init__(self, kafka: StockKafka, controllers: StockKafka, directory: Path) -> None:
        self.quorum = ChangingVoters(directory, 3, 3)
        self.ports = {node: free_port() for node in STOCK}
        self.servers = ",".join(f"127.0.0.1:{port}" for port in (*self.quorum.ports.values(), *self.ports.values()))
        self.stock = {
            node: controllers.node(f"stock {node}", directory / f"stock-{node}", self._controller(node, port))
            for node, port in self.ports.items()
        }
        self.port = free_port()
        self.broker = kafka.node("broker", directory / "broker", self._broker())
        self._kafka = kafka
        for controller in self.quorum.controllers.values():
            controller.properties["controller.quorum.bootstrap.servers"] = self.servers
            controller.properties["listener.security.protocol.map"] = PROTOCOLS

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _controller(self, node: int, port: int) -> dict[str, str]:
        return {
            "process.roles": "controller",
            "node.id": str(node),
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": PROTOCOLS,
            "controller.quorum.bootstrap.servers": self.servers,
        }

    def _broker(self) -> dict[str, str]:
        """It knows none of the new controllers yet."""
        return {
            "process.roles": "broker",
            "node.id": str(BROKER),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": PROTOCOLS,
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.quorum.ports.values()),
            "offsets.topic.replication.factor": "1",
        }

    def format(self, node: StockNode, *options: str) -> None:
        file = node.write_properties()
        tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), *options)
        node.kafka.tool(*tool, directory=file.parent)

    def start(self) -> None:
        self.quorum.format_and_start()
        for node in self.stock.values():
            self.format(node, "--no-initial-controllers")
            node.launch()
        self.format(self.broker, "--no-initial-controllers")
        self.broker.start()
        for node in self.stock.values():
            node.wait_until_started()

    async def until_all_observe(self) -> None:
        """The stock controllers are there."""
        await self.quorum.until(lambda found: set(STOCK) <= {row.replica_id for row in found.observers})

    def close(self) -> None:
        self.broker.kill()
        for node in self.stock.values():
            node.kill()
        self.quorum.close()

    def handover(self, *words: str, at: int = 1) -> str:
        file = self.quorum.controllers[at].property_file
        command = [MIGRATOR, "handover", *words, "--way", "members", "-c", str(file)]
        return run_to_end("handover", command, timeout_seconds=COMMAND_SECONDS)

    def restart_broker_with(self, servers: str) -> None:
        self.broker.stop()
        self.broker.properties["controller.quorum.bootstrap.servers"] = servers
        self.broker.start()

    def voters(self) -> set[int]:
        """As any controller that runs has them described."""
        ports = {**self.quorum.ports, **self.ports}
        for port in ports.values():
            with contextlib.suppress(OperatorError):
                said = self._kafka.tool(
                    *("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-controller", f"127.0.0.1:{port}"),
                    *("describe", "--replication"),
                    directory=self.broker.directory,
                    timeout_seconds=20,
                )
                rows = [line.split() for line in said.splitlines()[1:]]
                return {int(row[0]) for row in rows if row[-1] in {"Leader", "Follower"}}
        return set()

    def until_voters(self, nodes: Sequence[int]) -> None:
        """Controllers that left or stopped do not answer, and the tool is slow on a busy machine."""
        until(f"the voters are {named(nodes)}", lambda: self.voters() == set(nodes))


@pytest.fixture(params=["3.9.1", "4.1.1"])
def way(kafka_391: StockKafka, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    """The broker is of 3.9.1, the stock controllers are of either release."""
    way = Way(kafka_391, KafkaRelease(request.param).fetch(), tmp_path)
    try:
        way.start()
        yield way
    finally:
        way.close()


def named(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def test_to_stock_controllers_and_back(way: Way) -> None:
    admin = Admin(way.bootstrap, 1)
    admin.create(TOPIC, 1, 1)
    asyncio.run(way.until_all_observe())

    with pytest.raises(OperatorError, match=r"does not name these controllers.*: 4, 5, 6"):
        way.handover("run", "--yes", "--voters", named(STOCK))
    way.until_voters(OURS)
    way.restart_broker_with(way.servers)

    with Traffic(way.bootstrap, TOPIC) as traffic:
        begin = time.monotonic()
        said = way.handover("run", "--yes", "--voters", named(STOCK))
        assert "The voters are 4, 5, 6" in said
        way.until_voters(STOCK)
        for controller in way.quorum.controllers.values():
            controller.stop()
        admin.create("while-stock-controls", 1, 1)

        for controller in way.quorum.controllers.values():
            controller.start()
        said = way.handover("run", "--yes", "--voters", named(OURS))
        assert "The voters are 1, 2, 3" in said
        way.until_voters(OURS)
        for node in way.stock.values():
            node.stop()
        admin.create("back-again", 1, 1)
        until("both topics are known", lambda: {"while-stock-controls", "back-again"} <= set(admin.topics()))
        print(f"longest pause of the producer: {traffic.longest_pause(begin):.3f} s")  # noqa: T201
        traffic.stop()
    assert traffic.errors == []
    values = consume(way.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))
