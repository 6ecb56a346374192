"""The phases in the life of a cluster with much metadata, one after the other, for the measurement in `lifetime`.

Each phase does one thing to one node, so that a long turn of the event loop has one cause. Two planted phases show that
the measurement finds one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from migrator import turns
from migrator.clock import monotonic_ms
from migrator.config.settings import Settings
from migrator.controller.brokers import register_broker
from migrator.controller.decision import Decision
from migrator.controller.heartbeats import HeartbeatRequest, HeartbeatResponse, heartbeat
from migrator.controller.migration_gate import Operation
from migrator.controller.schedule import Schedule
from migrator.controller.sessions import Sessions
from migrator.image import digest
from migrator.image.model import Acl, ImageDelta, MetadataImage
from migrator.image.security import acl_record
from migrator.migration.broker_rpcs.requests import Terms, Told, first_updates, plan_full, plan_takeover
from migrator.node import image_proof, snapshotter
from migrator.node.access.authorization import Authorization
from migrator.node.core import NodeCore, OpenedDirectory
from migrator.node.metadata import MetadataRuntime
from migrator.node.quorum import reads, runner
from migrator.node.status_source import NodeStatusSource
from migrator.records import metadata as rec
from migrator.turns import give_back, in_turns, parts
from tests.controller.support.leading_controller import registration, some_uuid
from tests.node.support import followers
from tests.node.support.cluster import CLUSTER_ID, FOLLOWS, STEADY, Cluster, until
from tests.patience import PATIENCE_SECONDS

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "broker.session.timeout.ms": "600000",
    "delegation.token.secret.key": "secret",
    **STEADY,
    "metadata.max.idle.interval.ms": "0",
}
BROKERS = (1, 2, 3)
PARTITIONS = 2
RENEWERS = tuple(f"User:renewer-{number}" for number in range(5))
LONG_AGO_MS = 10**9
PLANTED = ("planted: a loop in Python", "planted: a loop in C")
"""Phases."""


def contents(topics: int) -> Iterator[rec.MetadataRecord]:
    """As many entries of each kind as topics."""
    for number in range(topics):
        name = f"t{number}"
        yield from topic(number, name, PARTITIONS)
        yield rec.ConfigRecord(rec.ConfigResourceType.TOPIC, name, "retention.ms", "5")
        yield acl_record(some_uuid(10**6 + number), Acl(2, name, 3, f"User:u{number}", "*", 3, 3))
        entity = (rec.QuotaEntity("user", f"u{number}"),)
        yield rec.ClientQuotaRecord(entity, "producer_byte_rate", 5.0, remove=False)
        yield rec.UserScramCredentialRecord(f"u{number}", 1, b"salt", b"stored", b"server", 4096)
        yield rec.DelegationTokenRecord("User:o", "User:o", RENEWERS, 0, 2**60, 2**60, f"token-{number}")


def topic(number: int, name: str, partitions: int) -> Iterator[rec.MetadataRecord]:
    topic_id = some_uuid(number)
    yield rec.TopicRecord(name, topic_id)
    for partition in range(partitions):
        first = (number + partition) % len(BROKERS)
        replicas = BROKERS[first:] + BROKERS[:first]
        yield rec.PartitionRecord(partition, topic_id, replicas, replicas, (), (), replicas[0], 0, 0, 0)


async def write(node: NodeCore, records: Iterator[rec.MetadataRecord]) -> None:
    for some in parts(records):
        decision = Decision(None, some, atomic=False)
        await node.controller.write(Operation.ALTER_CONFIGS, lambda _image, _context: decision)  # noqa: B023 (awaited)


async def beat(node: NodeCore, broker_id: int, **changes: Any) -> HeartbeatResponse:
    epoch = node.metadata.published.cluster.brokers[broker_id].epoch
    fields: dict[str, Any] = {"want_fence": False, "want_shut_down": False, **changes}
    request = HeartbeatRequest(broker_id, epoch, node.storage.log.end_offset(), **fields)
    node.controller.heard_of(broker_id, epoch)
    return await node.controller.write(Operation.HEARTBEAT, lambda image, context: heartbeat(image, request, context))


async def register(node: NodeCore, broker_id: int) -> None:
    wanted = registration(broker_id, cluster_id=CLUSTER_ID)
    await node.controller.write(
        Operation.REGISTER_BROKER, lambda image, context: register_broker(image, wanted, context)
    )
    await beat(node, broker_id)


async def live(topics: int, directory: Path) -> AsyncIterator[str]:
    """Name each phase when it is over; first, without a name, when the cluster is full."""
    image_proof.DUTY = snapshotter.SHARE = 1.0
    reads.TURN_READS, digest.LOOKS_A_RECORD = 5, 1
    cluster = Cluster(directory, 3, **PROPERTIES)
    cluster.format()
    for node_id in (1, 2):
        cluster.start(node_id)
    leader = await cluster.leader()
    for broker_id in BROKERS:
        await register(leader, broker_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "TURN_RECORDS", 1_000)
        await write(leader, contents(topics))
        await cluster.agree(leader.storage.log.end_offset() - 1)
    authorization = Authorization(cluster.settings(1), leader.metadata, cluster.failures.append)
    yield ""
    try:
        async for name in _phases(cluster, leader):
            yield name
    finally:
        del authorization
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
    assert not cluster.failures


async def _phases(cluster: Cluster, leader: NodeCore) -> AsyncIterator[str]:
    image = leader.metadata.snapshot_image
    assert image is not None
    snapshot_id = await leader.snapshotter.write(image)
    yield "a snapshot is written and read back"
    await leader.image_proof.replay()
    yield "the image is compared with a replay of the log"
    NodeStatusSource(leader_settings(cluster, leader), leader, FOLLOWS, lambda _after: []).status()
    yield "the status is asked for"
    terms = Terms("PLAINTEXT")
    async for _ in in_turns(first_updates(image, terms)):
        pass
    async for _ in in_turns(plan_takeover(image, terms, image.topics.ids, -1)):
        pass
    async for _ in in_turns(plan_full(image, terms, Told(), 2**60)):
        pass
    yield "brokers in ZooKeeper mode are told everything"

    leader.storage.log._forget_before(snapshot_id, 0)
    third = cluster.start(3)
    authorization = Authorization(cluster.settings(3), third.metadata, cluster.failures.append)
    await until(lambda: third.metadata.published.provenance.offset >= image.provenance.offset, "the third follows")
    yield "a snapshot is installed"
    await cluster.agree(leader.storage.log.end_offset() - 1)
    del authorization

    async for name in _start(cluster, leader, third):
        yield name
    async for name in _much_at_once(leader, cluster.nodes[3]):
        yield name
    async for name in _brokers(leader, cluster.settings(1)):
        yield name
    await cluster.agree(leader.storage.log.end_offset() - 1)
    leader.quorum.resign(leader.quorum.epoch)
    await until(lambda: leader.controller.epoch is None, "no longer the leader")
    leader = await cluster.leader()
    yield "another controller leads"
    async for name in _planted(cluster, leader):
        yield name
    with pytest.MonkeyPatch.context() as patch:
        async for name in _cut_off(cluster, await cluster.leader(), patch):
            yield name
        async for name in _followers(await cluster.leader()):
            yield name


async def _followers(leader: NodeCore) -> AsyncIterator[str]:
    deltas: list[ImageDelta] = []
    leader.metadata.subscribers.append(deltas.append)
    topics = tuple(leader.metadata.image.topics.by_id)
    await write(leader, chain(changes(leader.metadata.image, "told"), followers.more_entries(len(topics))))
    marks = [len(deltas)]
    await write(leader, iter((acl_record(some_uuid(10**7), Acl(2, "one more", 3, "User:more", "*", 3, 3)),)))
    marks.append(len(deltas))
    yield ""
    await write(leader, map(rec.RemoveTopicRecord, topics))
    yield "all topics are deleted"
    (one_more,) = deltas[marks[0] : marks[1]]
    async for name in followers.told(deltas[: marks[0]], one_more, deltas[marks[1] :]):
        yield name
    large = Decision(None, (rec.RemoveTopicRecord(some_uuid(10**8)),))
    await write(leader, topic(10**8, "large", len(topics)))
    yield ""
    await leader.controller.write(Operation.DELETE_TOPICS, lambda _image, _context: large)
    yield "a topic with many partitions is deleted"


def leader_settings(cluster: Cluster, leader: NodeCore) -> Any:
    return cluster.settings(next(node_id for node_id, node in cluster.nodes.items() if node is leader))


async def _start(cluster: Cluster, leader: NodeCore, third: NodeCore) -> AsyncIterator[str]:
    """From a snapshot, and from a log behind it whose records are not known to be committed."""
    await until(lambda: third.metadata.snapshot_image is not None, "an image to make a snapshot of")
    image = third.metadata.snapshot_image
    assert image is not None
    await third.snapshotter.write(image)
    await write(leader, changes(leader.metadata.image, "start"))
    await cluster.agree(leader.storage.log.end_offset() - 1)
    await cluster.stop(3)
    cluster.wires.cut.add(3)
    opened = OpenedDirectory(cluster.settings(3))
    yield ""
    third = cluster.start(3, opened)
    await until(lambda: third.metadata.loading is None, "the third has loaded its disk")
    yield "a controller starts"
    cluster.wires.cut.clear()
    await cluster.agree(leader.storage.log.end_offset() - 1)
    yield "it hears what is committed"


async def _much_at_once(leader: NodeCore, third: NodeCore) -> AsyncIterator[str]:
    """Late commits, and a truncation, on one node."""
    committed, told = third.metadata.committed, [0]

    def noted(high_watermark: int) -> None:
        told.append(high_watermark)

    third.metadata.committed = noted  # type: ignore[method-assign]
    await write(leader, changes(leader.metadata.image, "late"))
    end = leader.storage.log.end_offset()
    await until(lambda: told[-1] >= end, "the third has all, and nobody has said so")
    yield ""
    third.metadata.committed = committed  # type: ignore[method-assign]
    committed(told[-1])
    await until(lambda: third.metadata.is_caught_up, "it knows")
    yield "much is committed at once"
    epoch = leader.quorum.epoch
    await leader.controller.append(epoch, [rec.BeginTransactionRecord()])
    for some in parts(changes(leader.metadata.image, "undone")):
        await leader.controller.append(epoch, some)
        await give_back()
    yield ""
    await leader.controller.append(epoch, [rec.AbortTransactionRecord("test")])
    await until(lambda: leader.metadata.is_caught_up, "it is undone")
    yield "a transaction is aborted"


def changes(image: MetadataImage, text: str) -> Iterator[rec.MetadataRecord]:
    """As many as there are topics and partitions."""
    for topic in tuple(image.topics.by_id.values()):
        yield rec.ConfigRecord(rec.ConfigResourceType.TOPIC, topic.name, "flush.ms", text)
        for number, partition in topic.partitions.items():
            isr = partition.isr[:1] if len(partition.isr) > 1 else partition.replicas
            yield rec.PartitionChangeRecord(number, topic.topic_id, isr)


async def _brokers(leader: NodeCore, settings: Settings) -> AsyncIterator[str]:
    going, silent, _ = BROKERS
    others = (silent, BROKERS[2])
    while not (await beat(leader, going, want_shut_down=True)).should_shut_down:
        for broker_id in others:
            await beat(leader, broker_id)
    await until(lambda: leader.metadata.published.cluster.brokers[going].fenced, "the broker is fenced")
    yield "a broker shuts down"
    silent_epoch = leader.metadata.published.cluster.brokers[silent].epoch
    leader.keeper.sessions.heard(silent, silent_epoch, monotonic_ms() - LONG_AGO_MS)
    await until(lambda: leader.metadata.published.cluster.brokers[silent].fenced, "the silent broker is fenced")
    yield "a silent broker is fenced"
    for broker_id in (going, silent):
        await beat(leader, broker_id)
    yield "brokers are back"
    epoch, schedule = leader.quorum.epoch, Schedule(settings, monotonic_ms() - LONG_AGO_MS)
    while await leader.controller.run_due(schedule, epoch) is not None or schedule._walks:
        await asyncio.sleep(0.002)
    yield "every periodic task is due"


async def _cut_off(cluster: Cluster, leader: NodeCore, patch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The leader writes records that no other node gets, and has to cut them."""

    def it_is_later(fetch_timeouts: float) -> None:
        milliseconds = int(1_000 * PATIENCE_SECONDS * fetch_timeouts)
        patch.setattr(runner, "monotonic_ms", lambda: monotonic_ms() + milliseconds)
        for node in cluster.nodes.values():
            node.quorum._tick()  # and its timer begins anew: it was set by another clock

    node_id = next(key for key, node in cluster.nodes.items() if node is leader)
    cluster.wires.cut.add(node_id)
    await write_lost(leader, changes(leader.metadata.image, "lost"))
    yield ""
    it_is_later(2)  # the time-out of `STEADY` has passed
    other = await cluster.leader()
    await write(other, iter((rec.ConfigRecord(rec.ConfigResourceType.BROKER, "", "a", "b"),)))
    cluster.wires.cut.clear()
    it_is_later(2.6)  # a leader tells who has not answered again that it leads
    await cluster.agree(other.metadata.published.provenance.offset)
    yield "a leader that was cut off forgets what it wrote"


async def _planted(cluster: Cluster, leader: NodeCore) -> AsyncIterator[str]:
    """Two loops over everything, which have to be found: the first whenever something is published, the second when a
    node becomes active."""
    tell, begin = MetadataRuntime._tell, Sessions.begin

    def looks_at_all(self: MetadataRuntime, delta: ImageDelta) -> None:
        for _ in delta.after.topics.by_id.values():
            pass
        tell(self, delta)

    def sorts_all(self: Sessions, image: MetadataImage, now_ms: int) -> None:
        sorted(image.acls)
        begin(self, image, now_ms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetadataRuntime, "_tell", looks_at_all)
        await write(leader, iter((rec.ConfigRecord(rec.ConfigResourceType.BROKER, "", "a", "c"),)))
        yield PLANTED[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sessions, "begin", sorts_all)
        leader.quorum.resign(leader.quorum.epoch)
        await until(lambda: leader.controller.epoch is None, "no longer the leader")
        await cluster.leader()
        yield PLANTED[1]


async def write_lost(node: NodeCore, records: Iterator[rec.MetadataRecord]) -> None:
    epoch = node.controller.epoch
    assert epoch is not None
    for some in parts(records):
        await node.controller.append(epoch, some)
        await give_back()
