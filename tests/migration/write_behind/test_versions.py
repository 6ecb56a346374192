"""Versions of partition states, raised in turns with changes."""

from __future__ import annotations

from migrator.migration.translate.entity import EntityWrite
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.multis import GUARDS, Limits
from migrator.migration.write_behind.versions import SETS_AT_ONCE, VersionsMissing
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.ops import SetData
from tests.migration.model.images import content_of, path_of
from tests.migration.write_behind.support.rig import EPOCH, Rig

BEHIND = {"a": SETS_AT_ONCE, "b": 5}


class LaggingRig(Rig):
    """ZooKeeper has the content of every entity, with versions that are too low. A set takes a millisecond. As soon as
    the first entity is read again, each of them changes."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(BEHIND, "1"), Limits(max_ops=1000))
        self.estimates: list[VersionsMissing] = []

    def perform(self, effect: messages.WriteEffect) -> messages.WriteEvent | None:
        if isinstance(effect, messages.SendMulti):
            self.now += len(effect.ops)
            self.estimates.append(self.core.versions_missing(self.now))
        if isinstance(effect, messages.ReadAgain):
            if "a" in effect.entities:
                self.publish(dict.fromkeys(BEHIND, "2"))
            held = content_of(effect.image)
            sets = {name: (SetData(path_of(name), held[name].encode()),) * BEHIND[name] for name in effect.entities}
            writes = tuple(EntityWrite(name, ops) for name, ops in sets.items())
            return messages.Repaired(effect.number, effect.entities, writes)
        return super().perform(effect)


def test_changes_are_written_in_turns_with_versions_and_the_rest_is_counted() -> None:
    rig = LaggingRig()
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
