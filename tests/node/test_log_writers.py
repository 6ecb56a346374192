"""Everybody who writes to the leader's log at once: each record gets its place when it is appended, and not before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from migrator.controller.context import Context
from migrator.controller.decision import Decision, RefusedError, decided
from migrator.controller.kraft_upgrade import checked_upgrade
from migrator.controller.migration_gate import Operation
from migrator.image.model import ConfigResource, MetadataImage
from migrator.node import active
from migrator.node.core import NodeCore
from migrator.raft.states import Role
from migrator.raft.voter_changes import UpdateVoter, VotersNotChangedError
from migrator.raft.voter_set import VoterSet
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from migrator.records.metadata import ConfigRecord, ConfigResourceType, NoOpRecord, RegisterBrokerRecord
from migrator.records.versions import LATEST_SUPPORTED
from migrator.turns import TURN_RECORDS
from tests.controller.support.leading_controller import some_uuid
from tests.node.support.cluster import Cluster, running, until
from tests.node.support.dynamic import DynamicCluster, dynamic
from tests.patience import PATIENCE_SECONDS

COUNTER = ConfigResource(ConfigResourceType.TOPIC, "counter")
TURNS = 5
MANY = TURN_RECORDS + 1
"""Records that are encoded beside the event loop."""


class Held:
    """A call that waits on its thread until the test releases it."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> None:
        self.has_begun.set()
        assert self.go_on.wait(PATIENCE_SECONDS)


def moved(cluster: DynamicCluster, node_id: int, port: int) -> DynamicVoter:
    """A voter that listens elsewhere."""
    at = (VoterEndpoint("CONTROLLER", "localhost", port),)
    return DynamicVoter(node_id, cluster.directory_id(node_id), at, KRaftVersionRange(0, 1))


def numbered(resource: ConfigResource, count: int, value: str) -> list[ConfigRecord]:
    return [ConfigRecord(resource.resource_type, resource.name, str(number), value) for number in range(count)]


async def test_the_voters_may_change_while_a_big_decision_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records about voters change no metadata: the decision still holds, behind them."""
    held, encode = Held(), active._batch

    def late(*given: Any) -> bytes:
        held()
        return encode(*given)

    async with dynamic(tmp_path, 3, 3) as cluster:
        leader = await cluster.leader()
        epoch = leader.quorum.epoch
        monkeypatch.setattr(active, "_batch", late)
        records = numbered(COUNTER, MANY, "1")
        writing = asyncio.create_task(
            leader.controller.write(Operation.ALTER_CONFIGS, lambda *_: decided("done", [*records]))
        )
        await until(held.has_begun.is_set, "the decision is being encoded")
        offset = leader.quorum.change_voters(UpdateVoter(moved(cluster, 2, 9_102)))
        held.go_on.set()
        assert await writing == "done"
        assert (leader.quorum.role, leader.quorum.epoch) == (Role.LEADER, epoch)
        assert len(leader.metadata.published.configs[COUNTER]) == MANY
        assert leader.metadata.published.provenance.offset == offset + MANY


def register_old_broker(held: Held) -> Any:
    """A broker before 3.9 registers, and the decision takes its time."""

    def decide(_image: MetadataImage, context: Context) -> Decision[int]:
        held()
        broker = RegisterBrokerRecord(7, False, some_uuid(7), context.next_offset, (), (), None)
        return decided(context.next_offset, [broker])

    return decide


async def test_an_upgrade_of_the_voters_waits_for_a_registration_that_is_being_decided(tmp_path: Path) -> None:
    """Otherwise a broker would be let in that cannot read the log with voters in it."""
    held = Held()
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await register_controller(cluster, leader)
        registering = asyncio.create_task(
            leader.controller.write(Operation.REGISTER_BROKER, register_old_broker(held), aside=True)
        )
        await until(held.has_begun.is_set, "the registration is being decided")
        voters = VoterSet.of([leader.addresses.own_voter()])
        upgrading = asyncio.create_task(
            leader.voter_changes.upgrade(voters, lambda: checked_upgrade(leader.metadata.image, voters.ids))
        )
        for _ in range(10):
            await asyncio.sleep(0)
        held.go_on.set()
        broker_epoch = await registering
        with pytest.raises(RefusedError, match="the brokers 7 are older"):
            await upgrading
        assert leader.quorum.membership.kraft_version == 0
        assert leader.metadata.published.provenance.offset == broker_epoch


async def register_controller(cluster: Cluster, leader: NodeCore) -> None:
    """All of them, as `DynamicCluster.register` does."""
    await DynamicCluster.register(cluster, cluster.nodes)  # type: ignore[arg-type]


class Writers:
    """Count up, register, change voters and append what was encoded before, each with pauses that a seed draws."""

    def __init__(self, cluster: DynamicCluster, leader: NodeCore, seed: int) -> None:
        self.cluster = cluster
        self.leader = leader
        self.random = Random(seed)
        self.counted = 0
        self.voters_changed = 0
        self.is_over = False

    async def run(self) -> None:
        """Until all has been counted, the others go on."""
        others = (self.change_voter, self.change_voter_at_once, self.copy, self.register)
        async with asyncio.TaskGroup() as tasks:
            for writer in others:
                tasks.create_task(self._often(writer, TURNS * 100))
            await asyncio.gather(*(self._often(writer, TURNS) for writer in (self.count, *[self.count_much] * 2)))
            self.is_over = True

    async def _often(self, writer: Any, turns: int) -> None:
        for turn in range(turns):
            await asyncio.sleep(self.random.choice((0, self.random.random() / 100)))
            if self.is_over:
                return
            await writer(turn)

    async def count(self, _turn: int, extra: Sequence[ConfigRecord] = ()) -> None:
        """Read and write: a decision on an image that has changed meanwhile loses a count."""

        def decide(image: MetadataImage, _context: Context) -> Decision[None]:
            before = int(image.configs.get(COUNTER, {}).get("count", "0"))
            return decided(
                None, [*extra, ConfigRecord(ConfigResourceType.TOPIC, COUNTER.name, "count", str(before + 1))]
            )

        await self.leader.controller.write(Operation.ALTER_CONFIGS, decide, aside=self.random.random() < 0.5)
        self.counted += 1

    async def count_much(self, turn: int) -> None:
        await self.count(turn, numbered(ConfigResource(ConfigResourceType.TOPIC, "other"), MANY, str(turn)))

    async def change_voter(self, turn: int) -> None:
        try:
            await self.leader.voter_changes.update(moved(self.cluster, 2, 10_000 + turn))
            self.voters_changed += 1
        except VotersNotChangedError:
            pass  # an earlier change is not committed yet

    async def change_voter_at_once(self, turn: int) -> None:
        try:
            self.leader.quorum.change_voters(UpdateVoter(moved(self.cluster, 3, 11_000 + turn)))
            self.voters_changed += 1
        except VotersNotChangedError:
            pass

    async def copy(self, _turn: int) -> None:
        """Several batches, as a worker process encodes them."""
        batch = build_batch(encode_all([NoOpRecord()] * 3, LATEST_SUPPORTED), timestamp_ms=1)
        await self.leader.controller.append_encoded(self.leader.quorum.epoch, batch * self.random.randrange(1, 4))

    async def register(self, turn: int) -> None:
        """The epoch of a broker is the offset of its record."""

        def decide(_image: MetadataImage, context: Context) -> Decision[int]:
            broker = RegisterBrokerRecord(turn, False, some_uuid(turn), context.next_offset, (), (), None)
            return decided(context.next_offset, [broker])

        epoch = await self.leader.controller.write(Operation.REGISTER_BROKER, decide)
        registered = next(
            batch for batch in self.leader.storage.batches_from(epoch) if batch.header.base_offset == epoch
        )
        assert [record.broker_id for record, _ in registered.records() if isinstance(record, RegisterBrokerRecord)] == [
            turn
        ]


@pytest.mark.parametrize("seed", range(3))
async def test_writers_that_meet_at_any_point_lose_nothing(tmp_path: Path, seed: int) -> None:
    async with dynamic(tmp_path, 3, 3) as cluster:
        leader = await cluster.leader()
        epoch = leader.quorum.epoch
        writers = Writers(cluster, leader, seed)
        await writers.run()
        assert (leader.quorum.role, leader.quorum.epoch) == (Role.LEADER, epoch)
        assert writers.voters_changed
        assert leader.metadata.published.configs[COUNTER]["count"] == str(writers.counted)
        await cluster.agree(leader.metadata.end_offset - 1)
        images = [node.metadata.published for node in cluster.nodes.values()]
        assert all(image.configs == images[0].configs and image.cluster == images[0].cluster for image in images)
