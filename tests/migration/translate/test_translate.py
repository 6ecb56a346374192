"""ZooKeeper <-> image: identities in both directions, deltas against full reconciles, and repairs."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.image.model import ImageDelta, MetadataImage
from migrator.migration.translate.entity import Effect
from migrator.migration.translate.reconcile import reconcile, repair
from migrator.migration.translate.to_ops import delta_writes
from migrator.migration.translate.touched import touched
from migrator.zookeeper.znodes import paths
from tests.image.support.differences import changes_between
from tests.lanes import examples
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support import images as some
from tests.migration.support.images import (
    apply,
    apply_with_repairs,
    comparable,
    content,
    empty_cluster,
    image_from,
    target,
)

FEWER = settings(max_examples=examples(50))


def cluster_of(image: MetadataImage) -> ModelZooKeeper:
    zookeeper = empty_cluster()
    apply(zookeeper, reconcile(zookeeper, target(image)))
    return zookeeper


def states_reach_their_epochs(zookeeper: ModelZooKeeper, image: MetadataImage) -> bool:
    versions = zookeeper.dump_versions()
    return all(
        versions[paths.partition_state(topic.name, number)] >= partition.partition_epoch
        for topic in image.topics.by_id.values()
        for number, partition in topic.partitions.items()
    )


@FEWER
@given(some.images())
def test_image_to_zookeeper_to_image_is_the_identity(image: MetadataImage) -> None:
    assert comparable(image_from(cluster_of(image))) == comparable(image)


@FEWER
@given(some.images())
def test_a_second_reconcile_finds_nothing(image: MetadataImage) -> None:
    assert list(reconcile(cluster_of(image), target(image))) == []


@FEWER
@given(some.images())
def test_zookeeper_to_image_to_zookeeper_is_the_identity(image: MetadataImage) -> None:
    zookeeper = cluster_of(image)
    assert list(reconcile(zookeeper, target(image_from(zookeeper)))) == []


@FEWER
@given(some.images(), some.images())
def test_a_delta_leads_to_what_a_reconcile_from_scratch_writes(before: MetadataImage, after: MetadataImage) -> None:
    after = some.grown_from(before, after)
    zookeeper, goal = cluster_of(before), target(after)
    writes = delta_writes(before, goal, changes_between(before, after))
    apply_with_repairs(zookeeper, writes, lambda entity: repair(zookeeper, goal, entity))
    assert list(reconcile(zookeeper, goal)) == []
    assert states_reach_their_epochs(zookeeper, after)
    expected = dict(content(cluster_of(after)))
    if after.producer_ids_next < before.producer_ids_next:
        expected[paths.PRODUCER_IDS] = content(zookeeper)[paths.PRODUCER_IDS]  # never backwards
    assert content(zookeeper) == expected


@FEWER
@given(some.images(), some.images())
def test_what_a_change_touches_is_enough_to_read_again(before: MetadataImage, after: MetadataImage) -> None:
    after = some.grown_from(before, after)
    zookeeper, goal = cluster_of(before), target(after)
    for entity in sorted(touched(ImageDelta(before, after, changes_between(before, after))) or ()):
        apply(zookeeper, repair(zookeeper, goal, entity))
    assert list(reconcile(zookeeper, goal)) == []


@FEWER
@given(some.images(), some.images())
def test_a_reconcile_leads_from_anything_to_the_image(before: MetadataImage, after: MetadataImage) -> None:
    zookeeper = cluster_of(before)
    apply(zookeeper, reconcile(zookeeper, target(after)))
    assert list(reconcile(zookeeper, target(after))) == []
    assert states_reach_their_epochs(zookeeper, after)
    image = comparable(image_from(zookeeper))
    wanted = comparable(after)
    assert image.pop("producer ids") == max(before.producer_ids_next, after.producer_ids_next, 0)
    wanted.pop("producer ids")
    for _, partitions in [*image["topics"].values(), *wanted["topics"].values()]:
        for number, partition in partitions.items():
            partitions[number] = (partition.replicas, partition.isr, partition.leader, partition.leader_epoch)
    assert image == wanted


@FEWER
@given(some.images(), st.data())
def test_damage_of_every_kind_is_repaired(image: MetadataImage, data: st.DataObject) -> None:
    """Znodes gone, garbage, foreign ones: a reconcile mends it, and the repair of an entity does so for that entity."""
    zookeeper = cluster_of(image)
    damaged = [path for path in zookeeper.dump() if path.count("/") >= 3 and not path.startswith(some.NOTICES)]
    for path in data.draw(st.lists(st.sampled_from(damaged), unique=True, max_size=4) if damaged else st.just([])):
        znode = zookeeper.get(path)
        if znode is not None and znode.data and data.draw(st.booleans()):
            zookeeper.set(path, b"{")
        else:
            for doomed in sorted((p for p in zookeeper.dump() if p == path or p.startswith(f"{path}/")), reverse=True):
                zookeeper.delete(doomed)
    goal = target(image)
    by_entity: dict[str, Any] = {write.entity: write for write in reconcile(zookeeper, goal)}
    for entity in by_entity:
        apply(zookeeper, repair(zookeeper, goal, entity))
    assert list(reconcile(zookeeper, goal)) == []
    assert content(zookeeper) == content(cluster_of(image))


@FEWER
@given(some.images(), some.images())
def test_effects_tell_what_is_lost(before: MetadataImage, after: MetadataImage) -> None:
    """The bound on deletes relies on this: no other effect removes an entity."""
    zookeeper = cluster_of(before)
    writes = list(reconcile(zookeeper, target(after)))
    harmless = [write for write in writes if write.effect in {Effect.CREATE, Effect.CHANGE}]
    apply(zookeeper, harmless)
    left = comparable(image_from(zookeeper))
    for topic in before.topics.by_id.values():
        assert topic.name in left["topics"]
    assert {acl.resource_name for acl in before.acls.values()} <= {acl.resource_name for acl in left["acls"]}
    assert set(before.tokens) <= left["tokens"].keys()
