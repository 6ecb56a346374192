"""Versions of partition states, raised in turns with changes."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from migrator.image.model import EMPTY_IMAGE, PartitionRegistration, TopicImage, TopicsImage
from migrator.migration.translate.entity import EntityKind, EntityWrite, entity_name
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.multis import GUARDS, Limits
from migrator.migration.write_behind.versions import SETS_AT_ONCE, ZNODES_AT_ONCE, Versions, VersionsMissing
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.ops import SetData
from tests.migration.model.images import content_of, path_of
from tests.migration.support.images import uuid
from tests.migration.write_behind.support.rig import EPOCH, Rig

BEHIND = {"a": SETS_AT_ONCE, "b": 5}


class LaggingRig(Rig):
    """ZooKeeper has the content of every entity, with versions that are too low. A set takes a millisecond. As soon as
    the first entity is read again, each of them changes."""

    def __init__(self, behind: dict[str, int]) -> None:
        super().__init__(dict.fromkeys(behind, "1"), Limits(max_ops=1000))
        self.estimates: list[VersionsMissing] = []
        self.behind = dict(behind)
        self.turns: list[int] = []

    def perform(self, effect: messages.WriteEffect) -> messages.WriteEvent | None:
        if isinstance(effect, messages.SendMulti):
            self.now += len(effect.ops)
            self.estimates.append(self.core.versions_missing(self.now))
        if isinstance(effect, messages.ReadAgain):
            if not self.turns:
                self.publish(dict.fromkeys(self.behind, "2"))
            held, room, writes = content_of(effect.image), effect.sets, list[EntityWrite]()
            for name in effect.entities:
                now = min(room, self.behind[name])
                writes.append(EntityWrite(name, (SetData(path_of(name), held[name].encode()),) * now))
                room, self.behind[name] = room - now, self.behind[name] - now
            self.turns.append(effect.sets - room)
            left = {name: self.behind[name] for name in effect.entities if self.behind[name]}
            return messages.Repaired(effect.number, effect.entities, tuple(writes), left)
        return super().perform(effect)


def test_changes_are_written_in_turns_with_versions_and_the_rest_is_counted() -> None:
    rig = LaggingRig(BEHIND)
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 100)))
    rig(messages.ReconcileBegun(rig.image))
    rig(messages.ReconcileWrites((), last=True, behind=BEHIND))
    written = [{op.path for op in multi[GUARDS:]} for multi in rig.multis[1:]]
    a, b = path_of("a"), path_of("b")
    assert [paths for index, paths in enumerate(written) if not index or paths != written[index - 1]] == [
        {a},
        {a, b},
        {b},
    ]
    assert rig.estimates[1] == VersionsMissing(SETS_AT_ONCE + 5, None)
    assert rig.estimates[-1] == VersionsMissing(5, 1)
    assert rig.core.versions_missing(rig.now) == VersionsMissing(0, 0)
    assert rig.equal()
    assert rig.core.drained


def test_an_entity_of_very_many_sets_takes_several_turns() -> None:
    """Otherwise changes would wait for all of them."""
    rig = LaggingRig({"a": 2 * SETS_AT_ONCE + 1, "b": 5})
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 100)))
    rig(messages.ReconcileBegun(rig.image))
    rig(messages.ReconcileWrites((), last=True, behind=rig.behind))
    assert rig.turns == [SETS_AT_ONCE, SETS_AT_ONCE, 6]
    assert rig.core.versions_missing(rig.now) == VersionsMissing(0, 0)
    changed = next(
        index for index, ops in enumerate(rig.multis) if len({op.path for op in ops[GUARDS:]}) == len(BEHIND)
    )
    assert sum(len(ops) - GUARDS for ops in rig.multis[:changed]) == SETS_AT_ONCE
    assert rig.equal()


def test_a_turn_reads_a_bounded_number_of_znodes() -> None:
    """Few sets may lie in very many partitions, and changes wait for the reading."""
    partition = PartitionRegistration((1,), (1,), (), (), 1, recovering=False, leader_epoch=0, partition_epoch=0)
    partitions = Map(dict.fromkeys(range(ZNODES_AT_ONCE // 2), partition))
    ids = {name: uuid(number) for number, name in enumerate(("a", "b", "c"))}
    topics = {topic_id: TopicImage(name, topic_id, partitions) for name, topic_id in ids.items()}
    image = replace(EMPTY_IMAGE, topics=TopicsImage(Map(topics), Map(ids)))
    a, b, c = (entity_name(EntityKind.TOPIC, name) for name in ids)
    versions = Versions()
    versions.found({a: 1, b: 2, c: 3})
    versions.found({b: 1, c: 4})
    assert versions.begin(0, image) == (a, b)
    versions.ended()
    assert versions.missing(1000) == VersionsMissing(4, 2)
    assert versions.begin(0, image) == (c,)
    versions.found({}, ())
    versions.ended()
    assert versions.missing(1000) == VersionsMissing(0, 0)
    versions.found({a: 1})
    assert versions.missing(9000) == VersionsMissing(1, None)
