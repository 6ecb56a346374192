from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from immutables import Map

from migrator.errors import InvariantViolation
from migrator.image.model import EMPTY_IMAGE, FeaturesImage, MetadataImage
from migrator.image.snapshot import load_snapshot
from migrator.records import metadata as rec
from migrator.records.uuid import ZERO_UUID
from migrator.records.versions import FEATURE_NAME, LATEST_KNOWN, record_version
from tests.image.support.rows import image_rows
from tests.image.support.snapshots import snapshot_records
from tests.image.support.strategies import image_of, images, small_uuid


def at_level(image: MetadataImage, level: int) -> MetadataImage:
    levels = image.features.levels.set(FEATURE_NAME, level)
    return replace(image, features=FeaturesImage(levels, image.features.zk_migration_state))


@given(images())
def test_an_image_out_of_its_snapshot_is_the_same(image: MetadataImage) -> None:
    image = at_level(image, LATEST_KNOWN)
    records = list(snapshot_records(image))
    *pauses, loaded = load_snapshot(((record, 0) for record in records), image.provenance)
    assert loaded is not None
    assert image_rows(loaded) == image_rows(image)
    assert loaded.provenance == image.provenance
    assert pauses == [None] * (len(records) // 1024)
    assert list(snapshot_records(loaded)) == records, "equal images make equal snapshots"


def test_records_come_in_the_order_of_stock_controllers() -> None:
    topics = [rec.TopicRecord("b", small_uuid(1)), rec.TopicRecord("a", small_uuid(2))]
    partitions = [
        rec.PartitionRecord(n, id_, (1,), (1,), (), (), 1, 0, 0, 0) for n in (1, 0) for id_ in map(small_uuid, (1, 2))
    ]
    image = at_level(
        image_of(
            [
                rec.UserScramCredentialRecord("u", 1, b"", b"", b"", 4096),
                rec.DelegationTokenRecord("User:a", "User:a", (), 1, 2, 3, "t"),
                rec.AccessControlEntryRecord(small_uuid(3), 2, "t", 3, "User:a", "*", 2, 3),
                rec.ProducerIdsRecord(1, 5, 1000),
                rec.ClientQuotaRecord((rec.QuotaEntity("user", None),), "producer_byte_rate", 1.0, remove=False),
                rec.ConfigRecord(2, "a", "k", "v"),
                *topics,
                *partitions,
                rec.RegisterControllerRecord(3000, ZERO_UUID, True, (), ()),
                rec.RegisterBrokerRecord(1, True, ZERO_UUID, 4, (), (), None),
                rec.ZkMigrationStateRecord(1),
                rec.FeatureLevelRecord("group.version", 1),
            ]
        ),
        21,
    )
    records = list(snapshot_records(image))
    assert [type(record).__name__.removesuffix("Record") for record in records] == [
        *["FeatureLevel"] * 2, "ZkMigrationState", "RegisterBroker", "RegisterController",
        *["Topic", "Partition", "Partition"] * 2, "Config", "ClientQuota", "ProducerIds", "AccessControlEntry",
        "UserScramCredential", "DelegationToken",
    ]  # fmt: skip
    assert records[0] == rec.FeatureLevelRecord(FEATURE_NAME, 21)
    assert rec.ProducerIdsRecord(-1, -1, 1000) in records
    written = [record for record in records if isinstance(record, rec.PartitionRecord)]
    assert [(record.topic_id, record.partition_id) for record in written] == [
        (small_uuid(2), 0), (small_uuid(2), 1), (small_uuid(1), 0), (small_uuid(1), 1),
    ]  # fmt: skip
    assert all(record.directories == (ZERO_UUID,) for record in written), "stock names MIGRATING directories"


def test_every_record_of_a_snapshot_exists_in_its_metadata_version() -> None:
    image = image_of(
        [rec.TopicRecord("t", small_uuid(1)), rec.RegisterBrokerRecord(1, False, ZERO_UUID, 4, (), (), None)]
    )
    for level in range(1, LATEST_KNOWN + 1):
        for record in snapshot_records(at_level(image, level)):
            record_version(type(record), level)
    assert [type(record) for record in snapshot_records(image)] == [rec.RegisterBrokerRecord, rec.TopicRecord]


@pytest.mark.parametrize(
    ("level", "record"),
    [
        (7, rec.ZkMigrationStateRecord(2)),
        (14, rec.RegisterControllerRecord(3000, ZERO_UUID, True, (), ())),
        (16, rec.RegisterBrokerRecord(1, True, ZERO_UUID, 4, (), (), None, log_dirs=(small_uuid(1),))),
        (10, rec.UserScramCredentialRecord("u", 1, b"", b"", b"", 4096)),
        (13, rec.DelegationTokenRecord("User:a", "User:a", (), 1, 2, 3, "t")),
    ],
)
def test_what_the_metadata_version_cannot_hold_is_never_dropped_silently(
    level: int, record: rec.MetadataRecord
) -> None:
    assert list(snapshot_records(at_level(image_of([record]), level + 1)))
    with pytest.raises(InvariantViolation, match=f"level {level} cannot hold"):
        list(snapshot_records(at_level(image_of([record]), level)))


def test_a_transaction_in_a_snapshot_is_refused() -> None:
    with pytest.raises(InvariantViolation, match="record 2 of the snapshot, a BeginTransactionRecord, does not fit"):
        list(load_snapshot([(rec.NoOpRecord(), 0), (rec.BeginTransactionRecord(), 0)], EMPTY_IMAGE.provenance))


def test_an_empty_image_has_an_empty_snapshot() -> None:
    assert list(snapshot_records(EMPTY_IMAGE)) == []
    assert EMPTY_IMAGE.features.levels == Map()
