"""The walk of docs/walk.md in one piece: a partition state from ZooKeeper's bytes to the log, and back again."""

from __future__ import annotations

import random

from migrator.image.loader import ImageLoader
from migrator.image.model import ImageDelta, PartitionRegistration
from migrator.migration.broker_rpcs.deltas import plan_delta
from migrator.migration.broker_rpcs.requests import NOTHING_OPEN, Terms
from migrator.migration.translate.to_ops import delta_writes
from migrator.migration.translate.to_records import RecordReader
from migrator.records import metadata as rec
from migrator.records.batch import build_batch, iter_batches
from migrator.records.codec import encode_all
from migrator.records.uuid import uuid_from_text
from migrator.wire.legacy.messages import LeaderAndIsr, UpdateMetadata
from migrator.zookeeper.ops import SetData
from migrator.zookeeper.znodes import paths
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.images import CONTROLLER_EPOCH, PASSWORDS, apply, empty_cluster, target
from tests.migration.support.told_cluster import broker, complete

LEVEL = 21
EPOCH = 4
TOPIC_ID = uuid_from_text("2PUsqOHgQ0GDkEWX7kxYVw")
TOPIC_DATA = (
    b'{"version":3,"topic_id":"2PUsqOHgQ0GDkEWX7kxYVw","partitions":{"0":[1,2]},'
    b'"adding_replicas":{},"removing_replicas":{}}'
)
STATE_PATH = paths.partition_state("orders", 0)
STATE_DATA = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":5,"isr":[2,1]}'
STATE_VERSION = 7


def zookeeper_of_the_walk() -> ModelZooKeeper:
    zookeeper = empty_cluster()
    zookeeper.load({paths.topic("orders"): TOPIC_DATA, STATE_PATH: STATE_DATA}, {STATE_PATH: STATE_VERSION})
    return zookeeper


def committed(loader: ImageLoader, *records: rec.MetadataRecord) -> ImageDelta:
    """The records as a batch of the log, read back, applied and committed."""
    base = loader.end_offset
    log = build_batch(encode_all(records, LEVEL), timestamp_ms=1000, base_offset=base, leader_epoch=EPOCH)
    for batch in iter_batches(log):
        read = [record for record, _ in batch.records()]
        loader.append(batch.header.base_offset, batch.header.leader_epoch, batch.header.base_timestamp, read)
    loader.apply()
    delta = loader.commit(base + len(records))
    assert delta is not None
    return delta


def test_a_partition_state_goes_from_zookeeper_to_the_log_and_back_to_zookeeper_and_the_brokers() -> None:
    zookeeper, loader = zookeeper_of_the_walk(), ImageLoader()

    # ZooKeeper's bytes -> records -> log -> image
    reader = RecordReader(zookeeper, passwords=PASSWORDS, random=random.Random(3))
    records = [record for some in reader.all_records() for record in some]
    copied = committed(loader, broker(1, 11), broker(2, 12), *records).after
    assert copied.topics.by_id[TOPIC_ID].partitions[0] == PartitionRegistration(
        replicas=(1, 2), isr=(2, 1), removing_replicas=(), adding_replicas=(), leader=2, recovering=False,
        leader_epoch=5, partition_epoch=STATE_VERSION, directories=(), elr=(), last_known_elr=(),
    )  # fmt: skip

    # a change -> image -> ZooKeeper
    delta = committed(loader, rec.PartitionChangeRecord(0, TOPIC_ID, isr=(2,)))
    (write,) = delta_writes(delta.before, target(delta.after), delta.changes)
    expected = f'{{"version":1,"leader":2,"leader_epoch":5,"controller_epoch":{CONTROLLER_EPOCH},"isr":[2]}}'
    assert write.ops == (SetData(STATE_PATH, expected.encode()),)
    apply(zookeeper, [write])
    state = zookeeper.get(STATE_PATH)
    assert state is not None
    assert state.stat.version == delta.after.topics.by_id[TOPIC_ID].partitions[0].partition_epoch == STATE_VERSION + 1

    # the same change -> brokers
    plan = complete(plan_delta(delta, Terms("PLAINTEXT", confirmed=True), NOTHING_OPEN))
    kinds = {each.broker_id: [type(request) for request in each.requests] for each in plan.sends}
    assert kinds == {1: [LeaderAndIsr, UpdateMetadata], 2: [LeaderAndIsr, UpdateMetadata]}
