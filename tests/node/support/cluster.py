"""Several node cores in one event loop, with a transport that can be cut.

Tests of the node start, cut, heal and stop controllers of a `Cluster`, and write through its leader. Disks are real
directories; only the network is a model. Leaving the context stops every node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from migrator.config.load import settings_from
from migrator.config.settings import Settings
from migrator.controller.delegation_tokens import secret_key
from migrator.controller.index import ControllerIndex
from migrator.log.formatting import FormatPlan, format_directories
from migrator.node.core import NodeCore, OpenedDirectory
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.transport import PeerTimeoutError, UnreachableError
from migrator.raft.voter_set import VoterSet
from migrator.records.versions import parse_version
from migrator.wire.voters import VoterAnswer
from tests.patience import PATIENCE_SECONDS

CLUSTER_ID = "9egfFDzKSbaonHwNn88EuQ"
STEADY = {"controller.quorum.fetch.timeout.ms": str(1_000 * int(PATIENCE_SECONDS))}
"""No leader is deposed because the machine is busy: what it alone knows, and the test holds, would be gone."""
IMPATIENT = {"controller.quorum.fetch.timeout.ms": "1500"}
"""A silent controller is missed soon."""
FOLLOWS: Any = SimpleNamespace(
    migration_status=lambda: None,
    problems=tuple,
    write_behind_status=lambda: None,
    claim_status=lambda: None,
    voters_ready=dict,
)
"""The answers of a follower's migration."""


class Wires:
    """Everybody's transport: calls the peer directly unless the wire between the two is cut."""

    def __init__(self) -> None:
        self.nodes: dict[int, NodeCore] = {}
        self.cut: set[int] = set()
        self.on_the_way: Callable[[RaftResponse], RaftResponse] = lambda response: response
        """Changes a response before it arrives."""

    def to(self, node_id: int) -> LocalTransport:
        return LocalTransport(self, node_id)


class LocalTransport:
    def __init__(self, wires: Wires, node_id: int) -> None:
        self._wires = wires
        self._node_id = node_id

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        wires = self._wires
        if peer not in wires.nodes or {peer, self._node_id} & wires.cut:
            raise UnreachableError(f"no wire from {self._node_id} to {peer}")
        try:
            response = await asyncio.wait_for(wires.nodes[peer].quorum.handle(request), timeout)
        except TimeoutError as error:
            raise PeerTimeoutError("slow") from error
        if {peer, self._node_id} & wires.cut:
            raise PeerTimeoutError("the answer was lost")
        return wires.on_the_way(response)

    async def close(self) -> None:
        pass


class Cluster:
    """Voters 1 to ``size``, each with a directory of its own below ``directory``."""

    def __init__(self, directory: Path, size: int, **extra: str) -> None:
        self.directory = directory
        self.size = size
        self.extra = extra
        self.wires = Wires()
        self.failures: list[BaseException] = []
        self.release = "3.9"

    def keys(self, node_id: int) -> dict[str, str]:
        """Its property file."""
        voters = ",".join(f"{voter}@localhost:{9000 + voter}" for voter in range(1, self.size + 1))
        own = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://localhost:0",
            "log.dirs": str(self.directory / str(node_id)),
            "controller.quorum.election.timeout.ms": "500",
        }
        return own | IMPATIENT | self.extra

    def settings(self, node_id: int) -> Settings:
        return settings_from(self.keys(node_id), "test")[0]

    def format(self) -> None:
        self.format_some(range(1, self.size + 1))

    def format_some(self, node_ids: Iterable[int], voters: VoterSet | None = None) -> None:
        """Also again, on disks that are new; ``voters`` are those of ``--initial-controllers``."""
        for node_id in node_ids:
            directory = self.settings(node_id).metadata_directory
            plan = FormatPlan((directory,), directory, CLUSTER_ID, node_id, parse_version(self.release), voters=voters)
            format_directories(plan, random=Random(node_id), now_ms=0)

    async def ask_voter(self, node_id: int, seconds: float) -> VoterAnswer | None:
        """A controller's own status; None without an answer."""
        del node_id, seconds
        return None

    def start(self, node_id: int, opened: OpenedDirectory | None = None) -> NodeCore:
        settings = self.settings(node_id)
        node = NodeCore(
            settings,
            opened or OpenedDirectory(settings),
            self.wires.to(node_id),
            on_failure=self.failures.append,
            ask_voter=self.ask_voter,
        )
        self.wires.nodes[node_id] = node
        node.boot()
        node.start()
        return node

    async def stop(self, node_id: int, patience_seconds: float = 0.0) -> None:
        node = self.wires.nodes[node_id] if patience_seconds else self.wires.nodes.pop(node_id)
        await node.leave(patience_seconds)
        await node.close()
        self.wires.nodes.pop(node_id, None)

    @property
    def nodes(self) -> dict[int, NodeCore]:
        return self.wires.nodes

    async def leader(self) -> NodeCore:
        """The active controller, once there is one that the others can reach."""

        def found() -> list[NodeCore]:
            return [
                node
                for node_id, node in self.nodes.items()
                if node.controller.epoch is not None and node_id not in self.wires.cut
            ]

        await until(lambda: bool(found()), "an active controller")
        return max(found(), key=lambda node: node.quorum.epoch)

    async def agree(self, offset: int) -> None:
        """Wait until every node that runs has published up to an offset."""
        await until(
            lambda: all(node.metadata.published.provenance.offset >= offset for node in self.nodes.values()),
            f"offset {offset} published everywhere",
        )


async def until(condition: Callable[[], bool], what: str) -> None:
    """Give other tasks turns until a condition holds."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_SECONDS} s: {what}") from None


@asynccontextmanager
async def running(directory: Path, size: int, **extra: str) -> AsyncIterator[Cluster]:
    """A formatted cluster with all nodes started; fails when a node failed. `STEADY` unless ``extra`` says it."""
    cluster = Cluster(directory, size, **STEADY | extra)
    cluster.format()
    for node_id in range(1, size + 1):
        cluster.start(node_id)
    try:
        yield cluster
        for node_id, node in cluster.nodes.items():
            if node.metadata.is_caught_up:
                secret = secret_key(cluster.settings(node_id))
                assert node.keeper.index == ControllerIndex.of(node.metadata.image, secret), (
                    "whoever is elected needs it"
                )
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
    assert not cluster.failures
