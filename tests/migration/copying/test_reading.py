"""The copy: nothing passes unnoticed while it reads, and what does not decode is named."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from migrator.image.model import (
    EMPTY_IMAGE,
    ConfigResource,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    TopicsImage,
)
from migrator.migration.copying.reading import Copy, CopyBatch, CopyEnd, decode_all
from migrator.migration.translate.reconcile import reconcile
from migrator.records.batch import iter_batches, restamp
from migrator.records.metadata import ConfigRecord, ConfigResourceType, MetadataRecord
from migrator.zookeeper.ops import ZkSource, Znode
from migrator.zookeeper.znodes import paths
from tests.lanes import examples
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support import images as some
from tests.migration.support.images import PASSWORDS, apply, comparable, empty_cluster, image_from, read_image, target

LEVEL = 21


def cluster_of(image: MetadataImage) -> ModelZooKeeper:
    zookeeper = empty_cluster()
    apply(zookeeper, reconcile(zookeeper, target(image)))
    return zookeeper


def copy_of(zookeeper: ZkSource, batch_records: int = 1) -> Copy:
    return Copy(
        zookeeper,
        passwords=PASSWORDS,
        random=random.Random(3),
        level=LEVEL,
        batch_records=batch_records,
        now_ms=lambda: 1000,
    )


def records_of(batches: list[CopyBatch]) -> list[MetadataRecord]:
    """As the leader stamps them, one after the other."""
    records: list[MetadataRecord] = []
    offset = 50
    for copied in batches:
        stamped, end = restamp(copied.data, offset, 4)
        assert end - offset == copied.records
        for batch in iter_batches(stamped):
            batch.check_crc()
            records += [record for record, _ in batch.records()]
        offset = end
    return records


def topic_configs(image: MetadataImage) -> dict[tuple[str, str], str]:
    return {
        (resource.name, key): text
        for resource, config in image.configs.items()
        if resource.resource_type == ConfigResourceType.TOPIC
        for key, text in config.items()
    }


def topic_configs_as_brokers_replay_them(records: list[MetadataRecord]) -> dict[tuple[str, str], str]:
    """Within one transaction a RemoveTopicRecord does not reach the configs in front of it: ``ConfigurationsDelta``."""
    found: dict[tuple[str, str], str] = {}
    for record in records:
        if isinstance(record, ConfigRecord) and record.resource_type == ConfigResourceType.TOPIC:
            key = (record.resource_name, record.name)
            found.pop(key, None)
            if record.value is not None:
                found[key] = record.value
    return found


@settings(max_examples=examples(60))
@given(some.images(), some.images(), st.integers(0, 30), st.integers(1, 5))
def test_what_changes_between_the_readings_is_read_again(
    before: MetadataImage, after: MetadataImage, moment: int, batch_records: int
) -> None:
    zookeeper = cluster_of(before)
    dry = copy_of(zookeeper, batch_records)
    first_reading = sum(1 for _ in dry._batches(dry._first_reading()))
    batches: list[CopyBatch] = []
    ends: list[CopyEnd] = []
    moment = min(moment, first_reading)
    for number, item in enumerate(copy_of(zookeeper, batch_records).run()):
        if number == moment:
            apply(zookeeper, reconcile(zookeeper, target(some.grown_from(before, after))))
        if isinstance(item, CopyBatch):
            batches.append(item)
        else:
            ends.append(item)
    records = records_of(batches)
    if moment < first_reading:
        assert comparable(read_image(records)) == comparable(image_from(zookeeper))
        assert topic_configs_as_brokers_replay_them(records) == topic_configs(image_from(zookeeper))
    assert [end.records for end in ends] == [sum(batch.records for batch in batches)]


@settings(max_examples=examples(30))
@given(some.images())
def test_without_changes_nothing_is_read_twice(image: MetadataImage) -> None:
    items = list(copy_of(cluster_of(image), 200).run())
    end = items[-1]
    assert isinstance(end, CopyEnd)
    assert end.read_again == 0
    assert comparable(read_image(records_of([i for i in items if isinstance(i, CopyBatch)]))) == comparable(image)


class RacingZooKeeper:
    """Right before a state is read for the first time, the topic's config changes, and then that state."""

    def __init__(self, zookeeper: ModelZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._raced = False

    def children(self, wanted: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
        return self._zookeeper.children(wanted)

    def read(self, wanted: Iterable[str]) -> Iterator[Znode | None]:
        for path in wanted:
            if path == paths.partition_state("a", 0) and not self._raced:
                self._raced = True
                self._zookeeper.set(paths.topic_config("a"), b'{"version":1,"config":{"retention.ms":"2"}}')
                held = self._zookeeper.get(path)
                assert held is not None
                self._zookeeper.set(path, held.data)
            yield self._zookeeper.get(path)


def test_a_change_is_not_hidden_by_a_later_one_to_another_znode_of_the_topic() -> None:
    partition = PartitionRegistration((1,), (1,), (), (), 1, recovering=False, leader_epoch=0, partition_epoch=0)
    topic = TopicImage("a", some.uuid(1), {0: partition})
    topics = TopicsImage(Map({topic.topic_id: topic}), Map({"a": topic.topic_id}))
    zookeeper = cluster_of(replace(EMPTY_IMAGE, topics=topics))
    run = list(copy_of(RacingZooKeeper(zookeeper)).run())
    copied = read_image(records_of([item for item in run if isinstance(item, CopyBatch)]))
    assert dict(copied.configs) == {ConfigResource(ConfigResourceType.TOPIC, "a"): {"retention.ms": "2"}}
    assert comparable(copied) == comparable(image_from(zookeeper))


def test_a_config_that_was_deleted_between_the_readings_is_not_copied() -> None:
    zookeeper = empty_cluster()
    zookeeper.load({paths.config("brokers/1"): b'{"version":1,"config":{"a":"b"}}'})
    run = copy_of(zookeeper).run()
    batches = [next(run)]
    zookeeper.delete(paths.config("brokers/1"))
    batches += list(run)
    copied = read_image(records_of([batch for batch in batches if isinstance(batch, CopyBatch)]))
    assert not copied.configs


def test_the_first_reading_names_every_fault_and_goes_on() -> None:
    zookeeper = empty_cluster()
    zookeeper.load(
        {
            paths.topic("broken"): b"{",
            paths.config("brokers/1"): b"not json",
            paths.config("users/alice"): b'{"version":1,"config":{"producer_byte_rate":"1024"}}',
        }
    )
    reports = list(decode_all(zookeeper, passwords=PASSWORDS, random=random.Random(3)))
    assert [report.done for report in reports][-1]
    faults = [fault for report in reports for fault in report.faults]
    assert {fault.who for fault in faults} == {paths.topic("broken"), paths.config("brokers/1")}
    assert all(fault.remedy for fault in faults)
    assert reports[-1].records == 1
