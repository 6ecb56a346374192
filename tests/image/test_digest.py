"""The digest of an image: by steps, of the whole, and of a replay, over random histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.image import digest as module
from migrator.image.digest import MODULUS, digest_steps
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.snapshot import load_snapshot
from migrator.records import metadata as rec
from migrator.records.versions import LATEST_KNOWN
from migrator.turns import TURN_RECORDS
from tests.image.support.rows import image_rows
from tests.image.support.snapshots import snapshot_records
from tests.image.support.strategies import image_of, images, record_sequences, small_uuid, transactional_sequences
from tests.image.test_snapshot import at_level


def digest(image: MetadataImage) -> int:
    """Of a whole image, at once."""
    return sum(digest_steps(EMPTY_IMAGE, image)) % MODULUS


@given(transactional_sequences(), st.lists(st.integers(1, 6), min_size=1), st.data())
def test_the_digest_by_steps_is_that_of_the_image_of_its_snapshot_and_of_a_replay(
    log: list[rec.MetadataRecord], sizes: list[int], data: st.DataObject
) -> None:
    loader = ImageLoader()
    known, at = 0, EMPTY_IMAGE
    start = committed = cuts = 0
    while start < len(log):
        end = min(len(log), start + sizes[start % len(sizes)])
        loader.append(start, 1, 0, log[start:end])
        loader.apply()
        start = end
        happens = data.draw(st.sampled_from(["nothing", "commit", "ask", "cut"]))
        if happens == "commit":
            committed = max(committed, end)
            loader.commit(committed)
        elif happens == "ask":
            known, at = (known + sum(digest_steps(at, loader.published))) % MODULUS, loader.published
            assert known == digest(at)
        elif happens == "cut" and cuts < 3 and committed <= end:
            cuts += 1
            start = loader.truncate(data.draw(st.integers(committed, end)))
    loader.commit(loader.end_offset)
    image = loader.published
    assert (known + sum(digest_steps(at, image))) % MODULUS == digest(image) == digest(replayed(log, image))
    newest = at_level(image, LATEST_KNOWN)
    *_, read = load_snapshot(((record, 0) for record in snapshot_records(newest)), newest.provenance)
    assert read is not None
    assert digest(read) == digest(newest)


def replayed(log: list[rec.MetadataRecord], image: MetadataImage) -> MetadataImage:
    """From its first record on, in one batch."""
    loader = ImageLoader()
    loader.append(0, 1, 0, log)
    loader.apply()
    loader.commit(image.provenance.offset + 1)
    return loader.published


@given(images(), images())
def test_other_metadata_have_another_digest(one: MetadataImage, other: MetadataImage) -> None:
    assert (digest(one) == digest(other)) is (image_rows(one) == image_rows(other))


@given(record_sequences(), st.data())
def test_one_record_that_is_passed_over_is_found(log: list[rec.MetadataRecord], data: st.DataObject) -> None:
    topic = rec.TopicRecord("passed over", small_uuid(9000))
    at = data.draw(st.integers(0, len(log)))
    assert digest(image_of([*log[:at], topic, *log[at:]])) != digest(image_of(log))


def test_registrations_in_the_order_of_a_stock_snapshot_are_the_same_metadata() -> None:
    """Stock keeps listeners and features in a HashMap, and sorts directories. A controller that had its snapshot from a
    stock leader was said to disagree with one that had the log, and ``finish`` waited."""
    ends = (rec.Endpoint("REPLICATION", "a", 9093, 0), rec.Endpoint("CLIENT", "a", 9092, 0))
    features = (rec.FeatureRange("metadata.version", 1, 21), rec.FeatureRange("group.version", 0, 1))
    directories = (small_uuid(7), small_uuid(3))
    broker = rec.RegisterBrokerRecord(1, False, small_uuid(1), 5, ends, features, None, log_dirs=directories)
    controller = rec.RegisterControllerRecord(3000, small_uuid(2), True, ends, features)
    turned: dict[str, Any] = {"end_points": ends[::-1], "features": features[::-1]}
    log = image_of([broker, controller])
    snapshot = image_of([replace(broker, **turned, log_dirs=directories[::-1]), replace(controller, **turned)])
    assert digest(log) == digest(snapshot)
    assert sum(digest_steps(log, snapshot)) % MODULUS == 0


def test_the_name_of_a_copy_makes_no_other_metadata() -> None:
    """An older release passes over it, and a stock leader's snapshot does not keep it."""
    named = rec.ZkMigrationStateRecord(rec.ZkMigrationState.MIGRATION, copied_as="Pd3lHDFsQ0mpnkV4vkE0Aw")
    reopened = replace(named, reopening=rec.MigrationReopening(3001, 1, "CHG-44"))
    unnamed = rec.ZkMigrationStateRecord(rec.ZkMigrationState.MIGRATION)
    assert digest(image_of([named])) == digest(image_of([unnamed])) == digest(image_of([reopened]))
    assert digest(image_of([replace(named, reopened=reopened.reopening)])) == digest(image_of([named]))


def test_no_step_grows_with_the_cluster_and_what_is_shared_or_equal_is_not_hashed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = [rec.TopicRecord(f"t{number}", small_uuid(number)) for number in range(5 * TURN_RECORDS)]
    wide = [
        rec.PartitionRecord(number, small_uuid(0), (1,), (1,), (), (), 1, 0, 0, 0) for number in range(5 * TURN_RECORDS)
    ]
    image = image_of([*topics, *wide])
    assert len(list(digest_steps(EMPTY_IMAGE, image))) > 10
    monkeypatch.setattr(module, "_encode", lambda record: pytest.fail(f"{record} was hashed"))
    assert sum(digest_steps(image, image)) == 0
    steps = list(digest_steps(image, image_of([*topics, *wide])))
    assert (sum(steps), len(steps) > 10) == (0, True)


def test_controllers_of_two_releases_have_the_same_digest_of_the_same_metadata() -> None:
    """Another number here means that controllers disagree while they are upgraded one by one."""
    image = image_of(
        [
            rec.FeatureLevelRecord("metadata.version", 21),
            rec.TopicRecord("orders", small_uuid(1)),
            rec.PartitionRecord(0, small_uuid(1), (1, 2), (1,), (), (), 1, 0, 4, 7),
            rec.ConfigRecord(2, "orders", "retention.ms", "5"),
            rec.ProducerIdsRecord(1, 2, 3000),
        ]
    )
    assert f"{digest(image):032x}" == "1315b47c856b14f8acfe692093a8cbfb"
