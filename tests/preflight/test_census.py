"""The sizes that preflight estimates, beside the requests that the encoders make of the same ZooKeeper."""

from __future__ import annotations

import os
from random import Random

from kazoo.client import KazooClient

from migrator.clock import wall_ms
from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.workload.fill import DOOMED_TOPIC, MOVING_TOPIC, FillOptions, fill
from migrator.migration.translate.to_records import RecordReader
from migrator.preflight.census import TopicCensus
from migrator.wire.legacy.encode import RequestEncoder
from migrator.wire.legacy.messages import LeaderAndIsr, SendingController, TopicPartitions, UpdateMetadata, UpdateType
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.conftest import ZooKeeperSpace
from tests.migration.support.images import read_image

BROKERS = (1, 2, 3, 4)
PARTITIONS = 400


def test_sizes_are_those_of_the_requests(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> None:
    fill(zookeeper_client, FillOptions(CLUSTER_ID, BROKERS, PARTITIONS, wall_ms()))
    census = TopicCensus(controller_epoch=7)
    records = []
    with ZooKeeperSession(SessionOptions(zookeeper.hosts)) as session:
        reader = RecordReader(BulkReader(session), passwords=PasswordEncoder(None, os.urandom), random=Random(0))
        for reading in reader.topics():
            translated = reader.topic_records(reading)
            census.add(reading, translated)
            records += translated
    facts, image = census.facts(), read_image(records)
    encoder = RequestEncoder(SendingController(3001, 8, 1))
    assert facts.partitions == PARTITIONS - 1
    assert facts.moving.examples == (f"{MOVING_TOPIC}-0",)
    assert DOOMED_TOPIC not in {topic.name for topic in image.topics.by_id.values()}
    assert sum(facts.replicas.values()) == 3 * facts.partitions - 1
    for broker_id in BROKERS:
        hosted = tuple(
            TopicPartitions(topic, numbers)
            for topic in image.topics.by_id.values()
            if (numbers := [number for number, it in topic.partitions.items() if broker_id in it.replicas])
        )
        request = b"".join(encoder.leader_and_isr(LeaderAndIsr(UpdateType.FULL, hosted, ()), 0))
        assert len(request) <= facts.leader_and_isr_bytes[broker_id] <= 1.05 * len(request)
    everything = tuple(TopicPartitions(topic) for topic in image.topics.by_id.values())
    body = b"".join(encoder.update_metadata_body(UpdateMetadata(UpdateType.UNKNOWN, everything, ())))
    offline = 4 * sum(len(it.replicas) for topic in image.topics.by_id.values() for it in topic.partitions.values())
    assert len(body) - offline <= facts.update_metadata_bytes <= 1.05 * (len(body) - offline)
