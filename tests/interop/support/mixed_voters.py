"""Changing voters, one of them stock Kafka's, with brokers of two releases and leaders that are killed.

Tests end with the same question: do all logs hold the same records, and each acknowledged write?
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.cluster import BROKER_JVM
from migrator.parts.kafka import StockKafka, StockNode, start_together
from migrator.parts.processes import free_port
from tests.drill.support.stock_controllers import StockController
from tests.interop.support.changing_voters import ChangingVoters, Writers

RELEASE = "3.9-IV0"
QUICK = {"controller.quorum.fetch.timeout.ms": "1000", "controller.quorum.election.timeout.ms": "300"}
"""A stock voter with these stands for election before ours do."""
KILLED = 0.5
"""So often a leader of ours is killed when the voters, or the leader, have changed."""
MORE_WRITES = 20
FIRST_BROKER = 101
SERVERS = "controller.quorum.bootstrap.servers"


class StockVoter(StockController):
    """A controller that is formatted with the first voters."""

    def format_with(self, *options: str) -> None:
        """``kafka-storage format`` with these options."""
        node = self._node()
        given = ("format", "-t", CLUSTER_ID, "-c", str(node.write_properties()), "--release-version", RELEASE)
        self._kafka.tool("kafka.tools.StorageTool", *given, *options, directory=self.directory)


class MixedVoters(ChangingVoters):
    """Voters 1, 2 and ``stock``, which is stock Kafka's; others of ours observe."""

    def __init__(self, directory: Path, kafka: StockKafka, *, size: int, stock: int, configured: bool = False) -> None:
        super().__init__(directory, size, voters=3, configured=configured)
        self.stock = stock
        like = self.controllers[stock]
        like.properties |= QUICK
        self.stock_voter = StockVoter(kafka, like)
        self.controllers[stock] = self.stock_voter
        self.rested: list[list[int]] = []
        """The voters in force whenever the stock voter led before a target was reached."""
        self.sets_by_stock_epoch: dict[int, set[frozenset[int]]] = defaultdict(set)
        """The voters that were seen in each epoch that the stock voter led."""

    def format_first(self, node: int, how: Sequence[str]) -> None:
        """See its base."""
        if node == self.stock:
            self.stock_voter.format_with(*how)
        else:
            super().format_first(node, how)

    async def described(self) -> Any:
        """See its base; notes what is seen under the stock voter."""
        found = await super().described()
        if found is not None and found.leader_id == self.stock:
            self.sets_by_stock_epoch[found.leader_epoch].add(voters_of(found))
        return found

    async def until_ours_leads(self, writers: Writers) -> None:
        """Kill the stock voter as often as it leads, each time when writes have gone on under it."""
        while (found := await self.until(lambda _: True)).leader_id == self.stock:
            await self.kill(found.leader_id, writers)

    async def kill(self, leader: int, writers: Writers) -> None:
        """Kill a leader, the stock one once writes go on under it or another one leads; it is back on return."""
        written = len(writers.acknowledged)
        if leader == self.stock:
            await self.until(lambda now: now.leader_id != leader or len(writers.acknowledged) > written + MORE_WRITES)
        controller = self.controllers[leader]
        await asyncio.to_thread(controller.kill)
        await self.until(lambda now: now.leader_id != leader)
        await asyncio.to_thread(controller.start)

    async def follow(self, target: frozenset[int], writers: Writers, random: Random) -> list[int]:
        """Until the voters are those of the target and one of ours leads; gives the leaders that were killed."""
        killed: list[int] = []
        last: Any = None
        while True:
            found = await self.until(lambda now: view(now) != last)  # noqa: B023 - awaited here
            last = view(found)
            if found.leader_id == self.stock and voters_of(found) != target:
                self.rested.append(sorted(voters_of(found)))
            if found.leader_id == self.stock or random.random() < KILLED:
                killed.append(found.leader_id)
                await self.kill(found.leader_id, writers)
            elif voters_of(found) == target:
                return killed

    @property
    def named(self) -> str:
        """``controller.quorum.voters`` of the first voters."""
        return ",".join(f"{node}@127.0.0.1:{self.ports[node]}" for node in sorted(self.first))

    @property
    def servers(self) -> str:
        """``controller.quorum.bootstrap.servers``."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())


def view(found: Any) -> tuple[int, int, frozenset[int]]:
    """Leader, epoch and voters."""
    return found.leader_id, found.leader_epoch, voters_of(found)


def voters_of(found: Any) -> frozenset[int]:
    """Their ids."""
    return frozenset(row.replica_id for row in found.current_voters)


class Brokers:
    """One of each release, in KRaft mode, with the controllers' addresses in their files.

    :param servers: ``controller.quorum.bootstrap.servers``.
    :param voters: ``controller.quorum.voters`` instead, of a quorum at kraft.version 0.
    """

    def __init__(self, directory: Path, releases: Sequence[StockKafka], servers: str, voters: str = "") -> None:
        self._voters = voters
        self._ports = [free_port() for _ in releases]
        self.nodes = [
            self._node(release, directory, FIRST_BROKER + number, port, servers)
            for number, (release, port) in enumerate(zip(releases, self._ports, strict=True))
        ]

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` of clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start(self) -> None:
        """Format and start them."""
        for node in self.nodes:
            tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(node.write_properties()))
            options = ("--release-version", RELEASE)
            more = () if self._voters else ("--no-initial-controllers",)
            node.kafka.tool(*tool, *options, *more, directory=node.directory)
        start_together(self.nodes)

    def close(self) -> None:
        for node in self.nodes:
            node.kill()

    def _node(self, kafka: StockKafka, directory: Path, broker: int, port: int, servers: str) -> StockNode:
        properties = {
            "process.roles": "broker",
            "node.id": str(broker),
            **({"controller.quorum.voters": self._voters} if self._voters else {SERVERS: servers}),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "2",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2097152",
        }
        return kafka.node(f"broker {broker}", directory / f"broker-{broker}", properties, jvm=BROKER_JVM)
