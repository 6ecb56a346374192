"""The topics' part of `reconcile`: assignment, config, partitions and states of each, in chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from migrator.image.model import PartitionRegistration, TopicImage
from migrator.migration.translate import names, source
from migrator.migration.translate.entity import Effect, EntityKind, EntityWrite, entity_name
from migrator.migration.translate.parents import Parents
from migrator.migration.translate.source import TopicZnodes, subtrees
from migrator.migration.translate.target import Target, assignment_of, config_notice, state_sets
from migrator.migration.translate.to_ops import config_write, create_partition, create_state, create_topic
from migrator.zookeeper.ops import Create, Delete, Op, SetData, ZkSource, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import decode_partition_state
from migrator.zookeeper.znodes.topics import TopicAssignment, decode_topic, encode_topic

_TOPIC_PARENTS = (f"{paths.TOPICS}/", f"{paths.TOPIC_CONFIGS}/", paths.CONFIG_CHANGE_PREFIX)


def reconcile_topic_configs(
    zookeeper: ZkSource, target: Target, parents: Parents, left: set[str]
) -> Iterator[EntityWrite]:
    """Writes for the configs of topics, which come before everything else of topics.

    A broker in ZooKeeper mode takes the config of a topic from there when it starts, and may have a log of a topic that
    ZooKeeper does not know yet. Without its config, the broker would delete old records of a compacted topic.

    :param left: receives the names of the topics that have no config, neither here nor in ZooKeeper: the empty znode
        comes with the topic.
    """
    for chunk in source.chunks(sorted(target.image.topics.ids)):
        for name, znode in zip(chunk, zookeeper.read(map(paths.topic_config, chunk)), strict=True):
            config = target.config(names.topic_resource(name))
            if znode is None and not config:
                left.add(name)
            elif znode is None or not target.same_config(znode.path, znode.data, config):
                missing = parents.of(*_TOPIC_PARENTS)
                data = target.encode_config(config)
                yield config_write(f"topics/{name}", data, exists=znode is not None, parents=missing)


def reconcile_topics(
    zookeeper: ZkSource,
    target: Target,
    parents: Parents,
    *,
    only: str | None = None,
    left: Collection[str] | None = None,
) -> Iterator[EntityWrite]:
    """Writes for all topics, or for one: deletions first, then what is missing or different.

    :param left: topics whose empty config is still to be created; None: no config was compared.
    """
    wanted = dict(target.image.topics.ids)
    if only is None:
        listed = {*source.names_below(zookeeper, paths.TOPICS), *source.names_below(zookeeper, paths.TOPIC_CONFIGS)}
        marked = set(source.names_below(zookeeper, paths.DELETE_TOPICS))
        every = sorted(wanted)
    else:
        (marker,) = zookeeper.read([paths.delete_topic(only)])
        listed, marked = {only}, {only} if marker is not None else set()
        every = [only] if only in wanted else []
    yield from _deletions(zookeeper, sorted((listed | marked) - wanted.keys()), marked)
    for name in sorted(marked & wanted.keys()):
        marker_gone = (Delete(paths.delete_topic(name)),)
        yield EntityWrite(entity_name(EntityKind.TOPIC, name), marker_gone, effect=Effect.FINISH_DELETION)
    by_name = {name: target.image.topics.by_id[wanted[name]] for name in every}

    def partitions(name: str, _topic: Znode | None) -> list[int]:
        return sorted(by_name[name].partitions)

    for znodes in source.read_topics(zookeeper, every, partitions, list_partitions=True, configs=left is None):
        topic = _Topic(zookeeper, by_name[znodes.name], znodes, target, left)
        write = topic.write(parents)
        if write is not None:
            yield write


def _deletions(zookeeper: ZkSource, gone: list[str], marked: set[str]) -> Iterator[EntityWrite]:
    """Deletes topics and configs of topics that the image does not have; the deletion marker goes last."""
    for chunk in source.chunks(gone):
        roots = [path for name in chunk for path in (paths.topic(name), paths.topic_config(name))]
        found = subtrees(zookeeper, roots)
        for name in chunk:
            topic, config = found.get(paths.topic(name), []), found.get(paths.topic_config(name), [])
            doomed = [*topic[:-1], *config, *topic[-1:]]
            if name in marked:
                doomed.append(paths.delete_topic(name))
            if doomed:
                effect = Effect.FINISH_DELETION if name in marked else Effect.DELETE
                yield EntityWrite(entity_name(EntityKind.TOPIC, name), tuple(map(Delete, doomed)), effect=effect)


class _Topic:
    """One topic of the image, and its znodes."""

    def __init__(
        self,
        zookeeper: ZkSource,
        topic: TopicImage,
        znodes: TopicZnodes,
        target: Target,
        left: Collection[str] | None,
    ) -> None:
        self._source = zookeeper
        self._topic = topic
        self._znodes = znodes
        self._target = target
        self._name = topic.name
        self._left = left

    def write(self, parents: Parents) -> EntityWrite | None:
        """The write that makes them equal; None when they are equal."""
        held = self._held_assignment()
        entity = entity_name(EntityKind.TOPIC, self._name)
        if held is not None and held.topic_id not in {None, self._topic.topic_id}:
            return EntityWrite(entity, (*self._delete_namesake(), *self._create()), effect=Effect.REPLACE)
        config, notices = self._config()
        changes = (*self._assignment(held), *config, *self._partitions(), *self._extra())
        if not changes:
            return None
        effect = Effect.CREATE if self._znodes.topic is None else Effect.CHANGE
        if any(isinstance(op, Delete) for op in changes):
            effect = Effect.DELETE
        return EntityWrite(entity, (*parents.of(*_TOPIC_PARENTS), *changes), notices, effect)

    def _held_assignment(self) -> TopicAssignment | None:
        """The assignment in ZooKeeper; None when it is missing or does not decode: it is written in both cases."""
        topic = self._znodes.topic
        try:
            return decode_topic(topic.path, topic.data) if topic is not None else None
        except ZnodeError:
            return None

    def _delete_namesake(self) -> list[Op]:
        roots = [paths.topic(self._name), paths.topic_config(self._name)]
        found = subtrees(self._source, roots)
        return [Delete(path) for root in reversed(roots) for path in found.get(root, [])]

    def _create(self) -> Iterator[Op]:
        return create_topic(self._topic, self._target)

    def _assignment(self, held: TopicAssignment | None) -> tuple[Op, ...]:
        wanted = assignment_of(self._topic)
        if held == wanted:
            return ()
        path, data = paths.topic(self._name), encode_topic(wanted)
        return (Create(path, data),) if self._znodes.topic is None else (SetData(path, data),)

    def _config(self) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
        """Operations and notices. A new topic's config needs no notice."""
        path, znode = paths.topic_config(self._name), self._znodes.config
        if self._left is not None:
            return ((Create(path, self._target.encode_config({})),) if self._name in self._left else ()), ()
        config = self._target.config(names.topic_resource(self._name))
        if znode is None:
            created = (Create(path, self._target.encode_config(config)),)
            return created, (
                config_notice(f"topics/{self._name}"),
            ) if config and self._znodes.topic is not None else ()
        if self._target.same_config(path, znode.data, config):
            return (), ()
        return (SetData(path, self._target.encode_config(config)),), (config_notice(f"topics/{self._name}"),)

    def _partitions(self) -> Iterator[Op]:
        listed = self._znodes.partitions
        if listed is None:
            yield Create(paths.partitions(self._name), None)
        known = frozenset(listed or ())
        for number, znode in self._znodes.states.items():
            partition = self._topic.partitions[number]
            if znode is not None:
                yield from self._state(partition, znode)
            elif str(number) in known:
                yield from create_state(self._name, number, partition, self._target)
            else:
                yield from create_partition(self._name, number, partition, self._target)

    def _state(self, partition: PartitionRegistration, znode: Znode) -> tuple[Op, ...]:
        """Sets until the content is right and the version has reached the partition epoch. A different controller epoch
        in the state is no difference."""
        lag = partition.partition_epoch - znode.stat.version
        try:
            held = decode_partition_state(znode.path, znode.data)
            same = (
                held.leader == partition.leader
                and held.leader_epoch == partition.leader_epoch
                and held.isr == partition.isr
                and held.recovering == partition.recovering
            )
        except ZnodeError:
            same = False
        sets = max(lag, 0 if same else 1)
        return state_sets(znode.path, self._target.partition_state(partition), sets) if sets > 0 else ()

    def _extra(self) -> list[Op]:
        """Deletes partitions that the image does not have."""
        extra = frozenset(self._znodes.partitions or ()) - set(map(str, self._topic.partitions))
        roots = [f"{paths.partitions(self._name)}/{name}" for name in sorted(extra)]
        return [Delete(path) for doomed in subtrees(self._source, roots).values() for path in doomed] if roots else []
