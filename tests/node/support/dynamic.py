"""A quorum whose voters are in the log (kraft.version 1), with observers beside it, and a plan on each controller.

Tests of changes of voters use a `DynamicCluster`. Each log begins as after a format with ``--initial-controllers``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.migration_gate import Operation
from migrator.controller.quorum_target import TargetAnswer, TargetOrder, TargetRequest, set_target
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import MetadataLog
from migrator.node.core import NodeCore, OpenedDirectory
from migrator.node.reassignment import VoterReassignment
from migrator.observe.journal import Journal
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.control import (
    ControlRecord,
    DynamicVoter,
    KRaftVersion,
    KRaftVersionRange,
    KRaftVoters,
    LeaderChange,
    Voter,
    VoterEndpoint,
    build_control_batch,
)
from migrator.records.metadata import Endpoint, FeatureRange, RegisterControllerRecord
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.wire.voters import VoterAnswer
from tests.controller.support.leading_controller import some_uuid
from tests.node.support.cluster import STEADY, Cluster

LISTENER = "CONTROLLER"


class DynamicCluster(Cluster):
    """Controllers 1 to ``size``, of which the first ``voters`` vote at the beginning; each with a plan's executor."""

    def __init__(self, directory: Path, size: int, voters: int, **extra: str) -> None:
        super().__init__(directory, size, **extra)
        self._first_voters = range(1, voters + 1)
        self.plans: dict[int, VoterReassignment] = {}
        self.journals: dict[int, Journal] = {}
        self.stock: set[int] = set()
        """The controllers that do not announce this program."""

    def directory_id(self, node_id: int) -> Uuid:
        found = read_meta_properties(self.settings(node_id).metadata_directory)
        assert found is not None
        return found.directory_id or ZERO_UUID

    def format(self) -> None:
        """Each log begins as that of a quorum of ``--initial-controllers`` does."""
        super().format()
        voters = VoterSet.of(self.voter(node_id) for node_id in self._first_voters)
        names = tuple(Voter(node_id) for node_id in self._first_voters)
        begin: list[ControlRecord] = [LeaderChange(1, names, names), KRaftVersion(1), KRaftVoters(voters.voters)]
        for node_id in range(1, self.size + 1):
            log = MetadataLog.open(self.settings(node_id).metadata_directory)
            log.append(build_control_batch(begin, timestamp_ms=0, leader_epoch=1))
            log.close()

    def voter(self, node_id: int) -> DynamicVoter:
        """As it is in the log."""
        at = VoterEndpoint(LISTENER, "localhost", 9000 + node_id)
        return DynamicVoter(node_id, self.directory_id(node_id), (at,), KRaftVersionRange(0, 1))

    def start(self, node_id: int, opened: OpenedDirectory | None = None) -> NodeCore:
        journal = self.journals[node_id] = Journal(self.settings(node_id).metadata_directory, 1 << 20)
        node = super().start(node_id, opened)
        self.plans[node_id] = VoterReassignment(self.settings(node_id), node, journal, self._ask, self.failures.append)
        return node

    async def stop(self, node_id: int, patience_seconds: float = 0.0) -> None:
        await super().stop(node_id, patience_seconds)
        await self.plans.pop(node_id).close()
        self.journals.pop(node_id).close()

    async def _ask(self, node_id: int) -> VoterAnswer | None:
        if node_id not in self.nodes or node_id in self.wires.cut:
            return None
        return VoterAnswer(migrating=False, is_ours=node_id not in self.stock)

    async def register(self, nodes: Iterable[int]) -> None:
        """As each controller does with the active one."""
        leader = await self.leader()
        records = [
            RegisterControllerRecord(
                node_id,
                some_uuid(node_id),
                zk_migration_ready=False,
                end_points=(Endpoint(LISTENER, "localhost", 9000 + node_id, 0),),
                features=(FeatureRange("kraft.version", 0, 1),),
            )
            for node_id in nodes
        ]
        assert leader.controller.epoch is not None
        await leader.metadata.stable(await leader.controller.append(leader.controller.epoch, records))

    async def order(self, order: TargetOrder, *replicas: int | ReplicaKey) -> TargetAnswer:
        """Send an operator's request to the active controller, and to its successor if the leadership moves."""
        while True:
            try:
                return await self._order(order, replicas)
            except RefusedError as error:
                if error.error.code is not ErrorCode.not_controller:
                    raise

    async def _order(self, order: TargetOrder, replicas: tuple[int | ReplicaKey, ...]) -> TargetAnswer:
        leader = await self.leader()
        voters = leader.quorum.membership.voters
        assert voters is not None
        keys = tuple(it if isinstance(it, ReplicaKey) else ReplicaKey(it) for it in replicas)
        request = TargetRequest(order, keys, voters, frozenset())
        return await leader.controller.write(
            Operation.REASSIGN_VOTERS, lambda image, context: set_target(image, request, context)
        )

    def voters(self) -> set[frozenset[int]]:
        """The sets that nodes have in force: one, unless a change is under way."""
        found = [node.quorum.membership.voters for node in self.nodes.values()]
        return {voters.ids for voters in found if voters is not None}

    def noted(self) -> list[str]:
        """The entries of all journals, in the order of time."""
        events = [event for journal in self.journals.values() for event in journal.after(-1)]
        return [event.text for event in sorted(events, key=lambda event: event.time_ms)]


@asynccontextmanager
async def dynamic(directory: Path, size: int, voters: int, **extra: str) -> AsyncIterator[DynamicCluster]:
    """All of them run and are registered. `STEADY` unless ``extra`` says it."""
    cluster = DynamicCluster(directory, size, voters, **STEADY | extra)
    cluster.format()
    for node_id in range(1, size + 1):
        cluster.start(node_id)
    try:
        await cluster.register(range(1, size + 1))
        yield cluster
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        assert not cluster.failures, cluster.failures
