"""A takeover that begins to write at once, and compares all of ZooKeeper meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, Changes, ImageDelta
from migrator.migration.coordinator import remembered
from migrator.migration.translate.entity import Effect, EntityWrite
from migrator.migration.translate.touched import touched, touched_at_most
from migrator.migration.write_behind import comparison, messages
from migrator.migration.write_behind.comparison import MAX_ENTITIES, are_too_many
from migrator.migration.write_behind.recent import RecentChanges
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import (
    AccessControlEntryRecord,
    MetadataRecord,
    NoOpRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    ZkMigrationState,
)
from migrator.records.uuid import Uuid
from tests.image.support.differences import changes_between
from tests.migration.model.images import compare, delta, image_of, recent_changes, stored
from tests.migration.support.images import read_image
from tests.migration.write_behind.support.rig import EPOCH, HELD, Rig
from tests.migration.write_behind.test_sizes import topic

NUMBER = 7


def resumed(zookeeper: dict[str, str], log: dict[str, str], *changed: str) -> Rig:
    """ZooKeeper holds offset 100; the log has another content since, at offset 101."""
    rig = Rig(zookeeper)
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 100)))
    rig.image = image_of(log, 101, EPOCH)
    return rig(messages.Resumed(rig.image, NUMBER, changed))


def compared(rig: Rig, *found: EntityWrite) -> Rig:
    return rig(messages.ReconcileWrites(found, number=NUMBER))(messages.ReconcileWrites((), last=True, number=NUMBER))


def reconciled(rig: Rig) -> bool:
    return messages.Reconciled(0, None) in rig.effects


def test_what_changed_since_the_mark_is_written_before_anything_was_compared() -> None:
    rig = resumed({"a": "1"}, {"a": "2", "b": "1"}, "a", "b")
    assert rig.equal()
    rig.publish({"a": "3", "b": "1", "c": "1"})
    assert rig.equal()
    assert rig.lag == 0
    assert rig.core.drained, "a stop need not wait for the comparison"
    assert not rig.core.compared
    assert not reconciled(rig)
    assert reconciled(compared(rig))
    assert rig.core.compared


def test_removals_and_what_follows_them_wait_for_the_comparison() -> None:
    rig = resumed({"a": "1", "b": "1"}, {"b": "2"}, "a", "b")
    assert stored(rig.zookeeper) == {"a": "1", "b": "1"}
    assert rig.mark.kraft_metadata_offset == 100
    rig.publish({"b": "2", "c": "1"})
    assert rig.lag == 1
    compared(rig)
    assert rig.equal()
    assert reconciled(rig)


def test_changes_before_a_removal_are_written_and_the_mark_waits() -> None:
    rig = resumed({"a": "1", "b": "1"}, {"a": "1", "b": "1"})
    rig.publish({"b": "2"})
    assert "a" in stored(rig.zookeeper)
    assert rig.mark.kraft_metadata_offset == 101
    assert compared(rig).equal()


def test_a_difference_that_is_only_a_change_meanwhile_is_none() -> None:
    rig = resumed({"a": "1"}, {"a": "1"})
    found = tuple(compare(rig.zookeeper, image_of({"a": "0", "c": "1"}, 90, EPOCH)))
    assert reconciled(compared(rig, *found))
    assert not rig.stops()


def test_a_difference_that_stays_stops_it_with_its_name() -> None:
    rig = resumed({"a": "1", "c": "9"}, {"a": "1"})
    compared(rig, *compare(rig.zookeeper, rig.image))
    (stopped,) = rig.stops()
    assert not stopped.fenced
    assert "(c)" in stopped.reason
    assert stored(rig.zookeeper) == {"a": "1", "c": "9"}, "nothing is removed by the way"
    assert not reconciled(rig)
    assert not rig.core.drained
    rig(messages.ReconcileBegun(rig.image, 8))
    assert not rig.core.drained, "ZooKeeper is known to differ"
    rig(messages.ReconcileWrites(tuple(compare(rig.zookeeper, rig.image)), last=True, number=8))
    assert rig.equal()


def test_what_another_comparison_found_counts_for_nothing() -> None:
    rig = resumed({"a": "1"}, {"a": "1"})
    rig(messages.ReconcileWrites(tuple(compare(rig.zookeeper, image_of({}, 90, EPOCH))), last=True, number=NUMBER - 1))
    assert not reconciled(rig)
    assert reconciled(compared(rig))


@pytest.mark.parametrize(
    "event",
    [
        messages.ReconcileWrites((), last=True, held=HELD, number=NUMBER),
        messages.ReconcileWrites(tuple(EntityWrite(str(n), ()) for n in range(MAX_ENTITIES + 1)), number=NUMBER),
    ],
)
def test_more_than_can_be_read_again_is_compared_without_the_writes(event: messages.ReconcileWrites) -> None:
    assert resumed({"a": "1"}, {"a": "1"})(event).stops()


def test_topics_with_many_partitions_are_too_many_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    image = read_image(topic(3))
    monkeypatch.setattr(comparison, "MAX_ZNODES", 4)
    assert not are_too_many(image, ["topic large"])
    assert are_too_many(image, ["topic large", "token x"])
    assert are_too_many(image, ["config topics/large", "acls /kafka-acl/Topic/large"])


def test_a_config_that_was_written_meanwhile_is_read_again() -> None:
    """It may have a second znode, of which only the comparison tells."""
    rig = resumed({"a": "1"}, {"a": "1"})
    config = EntityWrite("config users/x", ())
    rig.core._derive = lambda *_: iter([config])
    rig.publish({"a": "2"})
    rig.effects.clear()
    compared(rig)
    assert [effect.entities for effect in rig.effects if isinstance(effect, messages.ReadAgain)] == [(config.entity,)]


def test_the_log_is_remembered_up_to_a_bound_and_without_gaps() -> None:
    recent = recent_changes()
    assert recent.since(0) is None
    names = [f"n{number}" for number in range(600)]
    images = [image_of(dict.fromkeys(names, str(at)), at, EPOCH) for at in range(10, 13)]
    recent.add(delta(images[0], images[1]))
    assert recent.since(9) is None, "it has not followed from there"
    assert recent.since(10) == tuple(sorted(names))
    assert recent.since(11) == ()
    recent.add(delta(images[1], images[2]))
    assert recent.since(10) is None, "the older half is forgotten"
    assert recent.since(11) == tuple(sorted(names))
    large = image_of({f"n{number}": "9" for number in range(1_001)}, 13, EPOCH)
    recent.add(delta(images[2], large))
    assert recent.since(12) is None
    assert recent.since(13) == ()
    later = image_of({}, 20, EPOCH)
    recent.add(delta(later, later))
    assert recent.since(13) is None, "nobody knows what was between 13 and 20"
    assert recent.since(20) == ()


def test_an_entity_that_removes_says_so() -> None:
    assert [effect for effect in Effect if EntityWrite("x", (), effect=effect).removes] == [
        Effect.DELETE,
        Effect.REPLACE,
        Effect.FINISH_DELETION,
    ]


ONE = Uuid(b"1" * 16)
MADE_AND_REMOVED: list[tuple[MetadataRecord, MetadataRecord]] = [
    (TopicRecord("t", ONE), RemoveTopicRecord(ONE)),
    (AccessControlEntryRecord(ONE, 2, "t", 3, "User:u", "*", 3, 3), RemoveAccessControlEntryRecord(ONE)),
]


@pytest.mark.parametrize("records", MADE_AND_REMOVED, ids=["a topic", "access control"])
def test_what_was_removed_again_before_it_could_be_named_is_not_taken_for_nothing(
    records: tuple[MetadataRecord, MetadataRecord],
) -> None:
    """The leader before may have written what it made, and died before it removed that."""
    loader, recent = ImageLoader(image_of({}, 100, EPOCH)), RecentChanges(touched, touched_at_most)
    for offset, record in enumerate((NoOpRecord(), *records), 101):
        loader.append(offset, EPOCH, 1, [record])
    loader.apply()
    for committed in (102, 104):
        published = loader.commit(committed)
        assert published is not None
        recent.add(published)
    assert recent.since(101) is recent.since(102) is None
    assert recent.since(103) == ()


def test_a_snapshot_hides_what_was_changed_and_changed_back() -> None:
    recent = RecentChanges(touched, touched_at_most)
    before, after = image_of({"a": "1"}, 100, EPOCH), image_of({"a": "1"}, 105, EPOCH)
    recent.add(ImageDelta(before, before, Changes(records=1)))
    recent.add(ImageDelta(before, after, Changes()))
    assert recent.since(104) is None
    assert recent.since(105) == ()


@pytest.mark.parametrize("state", ZkMigrationState)
def test_only_a_migration_remembers_the_log(state: ZkMigrationState) -> None:
    features = replace(EMPTY_IMAGE.features, zk_migration_state=state)
    before, after = (replace(read_image(topic(count)), features=features) for count in (1, 2))
    found = remembered(ImageDelta(before, after, changes_between(before, after)))
    assert found == (frozenset({"topic large"}) if state.is_under_way else None)
