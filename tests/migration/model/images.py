"""The smallest images that still exercise the write-behind: a few topic configurations, one key each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from immutables import Map

from migrator.image.model import (
    EMPTY_IMAGE,
    Changes,
    ConfigResource,
    FeaturesImage,
    ImageDelta,
    MetadataImage,
    Provenance,
)
from migrator.migration.translate.entity import Effect, EntityWrite
from migrator.migration.write_behind.recent import RecentChanges
from migrator.records.metadata import ConfigResourceType, ZkMigrationState
from migrator.zookeeper.ops import Create, Delete, Op, SetData
from migrator.zookeeper.znodes.paths import TOPIC_CONFIGS
from tests.migration.model.zookeeper import ModelZooKeeper

Content = Mapping[str, str]
"""Value by name: all that a cluster is to the model."""


def resource(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


def image_of(content: Content, offset: int, epoch: int, *, finished: bool = False) -> MetadataImage:
    """An image after the copy, its last record at ``offset``."""
    return replace(
        EMPTY_IMAGE,
        provenance=Provenance(offset, epoch, 0),
        features=FeaturesImage(Map(), ZkMigrationState.POST_MIGRATION if finished else ZkMigrationState.MIGRATION),
        configs=Map({resource(name): Map({"v": text}) for name, text in content.items()}),
    )


def crc_at(offset: int) -> int:
    """The CRC of our log's batch at an offset, which holds one record: no two leaders commit at the same offset."""
    return 1_000_000 + offset


def content_of(image: MetadataImage) -> dict[str, str]:
    return {config.name: values["v"] for config, values in image.configs.items()}


def delta(before: MetadataImage, after: MetadataImage, records: int = 1) -> ImageDelta:
    """The change from one image to the other; without a difference it stands for NoOps."""
    names = {key for key in {*before.configs, *after.configs} if before.configs.get(key) != after.configs.get(key)}
    return ImageDelta(before, after, Changes(configs=frozenset(names), records=records))


def path_of(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


RAISED = 2
"""The version that brokers know, where versions matter."""


def derive(before: MetadataImage, after: MetadataImage, changes: Changes) -> Iterator[EntityWrite]:
    """As the real translation: blind operations, from two images."""
    for key in sorted(changes.configs, key=lambda found: found.name):
        old, new = before.configs.get(key), after.configs.get(key)
        if old == new:
            continue
        yield _write(key.name, None if old is None else old["v"], None if new is None else new["v"])


def _write(name: str, old: str | None, new: str | None) -> EntityWrite:
    op: Op
    if new is None:
        op = Delete(path_of(name))
    elif old is None:
        op = Create(path_of(name), new.encode())
    else:
        op = SetData(path_of(name), new.encode())
    return EntityWrite(name, (op,), effect=Effect.DELETE if new is None else Effect.CHANGE)


def recent_changes() -> RecentChanges:
    """A controller's memory of the log."""
    return RecentChanges(
        lambda found: frozenset(key.name for key in found.changes.configs), lambda changes: len(changes.configs)
    )


def compare(zookeeper: ModelZooKeeper, image: MetadataImage, names: Iterable[str] | None = None) -> list[EntityWrite]:
    """As the real reconcile: operations from what ZooKeeper holds now; deletions first."""
    wanted, found = content_of(image), stored(zookeeper)
    writes: list[tuple[bool, EntityWrite]] = []
    for name in sorted(names if names is not None else wanted.keys() | found.keys()):
        old, new = found.get(name), wanted.get(name)
        if old == new:
            continue
        writes.append((new is not None, _write(name, old, new)))
    return [write for _, write in sorted(writes, key=lambda item: item[0])]


def lagging(zookeeper: ModelZooKeeper, image: MetadataImage) -> dict[str, int]:
    """How many sets each znode that the image has still needs, by entity; one that is still to be created, too."""
    nodes = {name: zookeeper.get(path_of(name)) for name in content_of(image)}
    versions = {name: 0 if node is None else node.stat.version for name, node in nodes.items()}
    return {name: RAISED - version for name, version in versions.items() if version < RAISED}


def compare_raising(zookeeper: ModelZooKeeper, image: MetadataImage, names: Iterable[str]) -> list[EntityWrite]:
    """As `compare`, and with what is `lagging`."""
    differing = {write.entity: write for write in compare(zookeeper, image, names)}
    behind, wanted = lagging(zookeeper, image), content_of(image)
    for name in names:
        if name in behind and name not in differing:
            differing[name] = EntityWrite(name, (SetData(path_of(name), wanted[name].encode()),) * behind[name])
    return list(differing.values())


def stored(zookeeper: ModelZooKeeper) -> dict[str, str]:
    names = zookeeper.list_children(TOPIC_CONFIGS) or ()
    nodes = zookeeper.read(path_of(name) for name in names)
    return {name: (node.data or b"").decode() for name, node in zip(names, nodes, strict=True) if node is not None}
