"""Reads Kafka's metadata from a ZooKeeper, in bulk and in chunks: topics, configs, ACLs, tokens.

The copy, comparisons, checks and the rollback call it with a `ZkSource`. It reads and sorts, and decodes no data: the
caller of `read_topics` says which partitions a topic has. Topics stream through it. A znode that disappears between two
readings is not an error: the caller gets None, or nothing, for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat, tee
from typing import NamedTuple

from migrator.values import value
from migrator.zookeeper.ops import ZkSource, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import ROOTS
from migrator.zookeeper.znodes.entities import Held, grouped
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.topics import TopicAssignment

TOPICS_AT_ONCE = 500


@value
class TopicZnodes:
    """A topic as read. ``states`` has every partition that was asked for; ``partitions`` has the children of its
    ``partitions`` znode if they were asked for, None when that znode is missing."""

    name: str
    topic: Znode | None
    config: Znode | None
    partitions: tuple[str, ...] | None
    states: Mapping[int, Znode | None]

    @property
    def zxids(self) -> tuple[int, ...]:
        """The mzxid of each znode, that of the topic first, -1 where it is missing: equal only when nothing changed.
        The newest mzxid alone is not enough: a reading may see a write to one znode and miss an earlier write to
        another."""
        znodes = (self.topic, self.config, *self.states.values())
        return tuple([-1 if znode is None else znode.stat.mzxid for znode in znodes])


@value
class TopicReading:
    """A topic with its decoded assignment; None when the reader knew its partitions already."""

    znodes: TopicZnodes
    assignment: TopicAssignment | None


def chunks(names: Iterable[str], size: int = TOPICS_AT_ONCE) -> Iterator[list[str]]:
    iterator = iter(names)
    while chunk := list(islice(iterator, size)):
        yield chunk


def names_below(source: ZkSource, path: str) -> list[str]:
    """Sorted names of the children; none for a missing znode."""
    (names,) = source.children([path])
    return sorted(names or ())


def read_topics(
    source: ZkSource,
    names: Iterable[str],
    wanted: Callable[[str, Znode | None], Iterable[int]],
    *,
    list_partitions: bool = False,
    configs: bool = True,
) -> Iterator[TopicZnodes]:
    """Read topics: first the znodes of the topic itself, then the states of the wanted partitions, which are requested
    as soon as the topic has arrived. At most as many topics lie between the two as the source reads ahead.

    :param wanted: partition ids whose states to read, by topic name and topic znode.
    :param configs: whether to read the topics' configs, too.
    """
    heads, ahead = tee(_heads(source, list(names), wanted, list_partitions=list_partitions, configs=configs))
    states = source.read(paths.partition_state(head.name, partition) for head in ahead for partition in head.wanted)
    for head in heads:
        found = {partition: next(states) for partition in head.wanted}
        yield TopicZnodes(head.name, head.topic, head.config, head.partitions, found)


class _Head(NamedTuple):
    name: str
    topic: Znode | None
    config: Znode | None
    partitions: tuple[str, ...] | None
    wanted: tuple[int, ...]


def _heads(
    source: ZkSource,
    names: list[str],
    wanted: Callable[[str, Znode | None], Iterable[int]],
    *,
    list_partitions: bool,
    configs: bool,
) -> Iterator[_Head]:
    paths_of = (paths.topic, paths.topic_config) if configs else (paths.topic,)
    singles = source.read(path_of(name) for name in names for path_of in paths_of)
    listed = source.children(map(paths.partitions, names)) if list_partitions else repeat(None, len(names))
    for name, partitions in zip(names, listed, strict=True):
        topic = next(singles)
        config = next(singles) if configs else None
        yield _Head(name, topic, config, partitions, tuple(wanted(name, topic)))


def read_existing(source: ZkSource, wanted: Iterable[str]) -> list[Znode]:
    """The wanted znodes that exist, in order."""
    return [znode for znode in source.read(wanted) if znode is not None]


def broker_configs(source: ZkSource) -> list[str]:
    return [f"{paths.BROKER_CONFIGS}/{name}" for name in names_below(source, paths.BROKER_CONFIGS)]


def client_configs(source: ZkSource) -> list[str]:
    """Paths of all configs of users, clients, users' clients and ips, in the order of a copy."""
    users = names_below(source, paths.USER_CONFIGS)
    found = [f"{paths.USER_CONFIGS}/{name}" for name in users]
    found += [f"{paths.CLIENT_CONFIGS}/{name}" for name in names_below(source, paths.CLIENT_CONFIGS)]
    parents = [f"{paths.USER_CONFIGS}/{user}/clients" for user in users]
    for parent, clients in zip(parents, source.children(parents), strict=True):
        found += [f"{parent}/{client}" for client in sorted(clients or ())]
    return found + [f"{paths.IP_CONFIGS}/{name}" for name in names_below(source, paths.IP_CONFIGS)]


def config_names(listed: Iterable[str], on_fault: Callable[[ZnodeError], None]) -> dict[str, list[str]]:
    """The entities of the configs at these paths: names of their znodes by canonical name (`grouped`)."""
    return grouped(map(config_name, listed), on_fault)


def config_znodes(source: ZkSource, entities: Mapping[str, list[str]]) -> Iterator[tuple[str, list[Znode]]]:
    """Yield the existing znodes of each of these entities."""
    znodes = source.read(paths.config(name) for names in entities.values() for name in names)
    for entity, names in entities.items():
        yield entity, [znode for znode in islice(znodes, len(names)) if znode is not None]


def config_name(path: str) -> str:
    return path.removeprefix(f"{paths.CONFIG}/")


def held(znodes: Iterable[Znode]) -> Held:
    """Names and data of an entity's znodes."""
    return [(config_name(znode.path), znode.data) for znode in znodes]


def acl_resources(source: ZkSource) -> list[str]:
    """Paths of all resource patterns whose ACLs brokers read."""
    types = [f"{root}/{name}" for root in ROOTS.values() for name in paths.ACL_RESOURCE_TYPES]
    listed = zip(types, source.children(types), strict=True)
    return [f"{path}/{name}" for path, names in listed for name in sorted(names or ())]


def tokens(source: ZkSource) -> list[str]:
    """Paths of all delegation tokens."""
    return [paths.token(name) for name in names_below(source, paths.TOKENS)]


def subtrees(source: ZkSource, roots: Iterable[str]) -> dict[str, list[str]]:
    """Everything at and below the roots that exist, children before parents."""
    found: dict[str, list[str]] = {}
    level = {root: root for root in roots}
    while level:
        below: dict[str, str] = {}
        for (path, root), names in zip(level.items(), source.children(level), strict=True):
            if names is not None:
                found.setdefault(root, []).append(path)
                below |= {f"{path}/{name}": root for name in names}
        level = below
    return {root: list(reversed(listed)) for root, listed in found.items()}
