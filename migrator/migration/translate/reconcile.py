"""Compares ZooKeeper with an image: the fewest writes that make ZooKeeper equal to it.

Unlike stock controllers, it notices missing and surplus partitions, a topic that was recreated under its name, states
whose version lags their partition epoch, and foreign configs, quotas, ACLs and tokens. It does not write a znode that
has the same meaning in another spelling. Configs come first, and deletions before creations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from migrator.image.model import PartitionRegistration, QuotaKey, TopicImage
from migrator.migration.translate import names, source
from migrator.migration.translate.entity import Effect, EntityKind, EntityWrite, entity_name, parse_entity
from migrator.migration.translate.source import TopicZnodes, subtrees
from migrator.migration.translate.target import (
    Target,
    assignment_of,
    config_notice,
    producer_ids_block,
    same_client_config,
)
from migrator.migration.translate.to_ops import (
    acl_entries,
    acl_write,
    config_write,
    create_partition,
    create_state,
    create_topic,
    is_writable,
    is_writable_token,
    token_write,
)
from migrator.records.metadata import ConfigResourceType
from migrator.zookeeper.ops import Create, Delete, Op, SetData, ZkSource, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import AclEntry, ResourcePattern, acl_path, decode_acls, parse_acl_path
from migrator.zookeeper.znodes.delegation_tokens import decode_token
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import decode_partition_state
from migrator.zookeeper.znodes.producer_ids import decode_producer_ids, encode_producer_ids
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
    only: Collection[str] | None = None,
    left: Collection[str] | None = None,
) -> Iterator[EntityWrite]:
    """Writes for all topics, or for some: deletions first, then what is missing or different.

    :param left: topics whose empty config is still to be created; None: no config was compared.
    """
    wanted = dict(target.image.topics.ids)
    if only is None:
        listed = {*source.names_below(zookeeper, paths.TOPICS), *source.names_below(zookeeper, paths.TOPIC_CONFIGS)}
        marked = set(source.names_below(zookeeper, paths.DELETE_TOPICS))
        every = sorted(wanted)
    else:
        listed, markers = {*only}, zookeeper.read(map(paths.delete_topic, only))
        marked = {name for name, marker in zip(only, markers, strict=True) if marker is not None}
        every = sorted(listed & wanted.keys())
    yield from _deletions(zookeeper, sorted((listed | marked) - wanted.keys()), marked)
    answered = sorted(marked & wanted.keys())
    orders = subtrees(zookeeper, map(paths.delete_topic, answered))
    for name in answered:
        marker_gone = tuple(map(Delete, orders.get(paths.delete_topic(name), ())))
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
        found = subtrees(zookeeper, [*roots, *(paths.delete_topic(name) for name in chunk if name in marked)])
        for name in chunk:
            topic, config = found.get(paths.topic(name), []), found.get(paths.topic_config(name), [])
            doomed = [*topic[:-1], *config, *topic[-1:]]
            doomed += found.get(paths.delete_topic(name), [])
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
        """The write that makes ZooKeeper's topic equal to the image's; None when both are equal."""
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
        """The assignment in ZooKeeper; None when it is missing or does not decode, so that it has to be written."""
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
        """The operations on the topic's config, and the notices to brokers. A new topic's config needs no notice."""
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
                if ops := self._state(partition, znode):
                    yield from ops
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
        if same and lag <= 0:
            return ()
        data = self._target.partition_state(partition)
        return self._target.raising(self._name, znode.path, data, lag, least=0 if same else 1)

    def _extra(self) -> list[Op]:
        """Deletes partitions that the image does not have."""
        extra = set(self._znodes.partitions or ()).difference(map(str, self._topic.partitions))
        roots = [f"{paths.partitions(self._name)}/{name}" for name in sorted(extra)]
        return [Delete(path) for doomed in subtrees(self._source, roots).values() for path in doomed] if roots else []


def reconcile(zookeeper: ZkSource, target: Target) -> Iterator[EntityWrite]:
    """Compare everything, lazily; yield the writes that make ZooKeeper equal the image. Configs of topics and of
    brokers come first: a broker that starts meanwhile in ZooKeeper mode reads them, and then its logs."""
    parents = Parents(zookeeper)
    left = set[str]()
    yield from reconcile_topic_configs(zookeeper, target, parents, left)
    yield from _brokers(zookeeper, target, parents)
    yield from reconcile_topics(zookeeper, target, parents, left=left)
    yield from _clients(zookeeper, target, parents)
    yield from _producer_ids(zookeeper, target, parents)
    yield from _acls(zookeeper, target, parents)
    yield from _tokens(zookeeper, target, parents)


def repair(zookeeper: ZkSource, target: Target, *entities: str) -> list[EntityWrite]:
    """Compare some entities, by the names that their writes have; topics together, because each reading takes a round
    trip.

    :raises InvariantViolation: a name is not from `entity_name`.
    """
    parents, topics, writes = Parents(zookeeper), dict[str, None](), list[EntityWrite]()
    for kind, name in map(parse_entity, entities):
        match kind:
            case EntityKind.TOPIC:
                topics[name] = None
            case EntityKind.CONFIG if name.startswith("topics/"):
                topics[name.removeprefix("topics/")] = None
            case EntityKind.CONFIG if name.startswith("brokers/"):
                writes += _brokers(zookeeper, target, parents, only=name)
            case EntityKind.CONFIG:
                writes += _clients(zookeeper, target, parents, only=name)
            case EntityKind.ACLS:
                writes += _acls(zookeeper, target, parents, only=name)
            case EntityKind.TOKEN:
                writes += _tokens(zookeeper, target, parents, only=name)
            case EntityKind.PRODUCER_IDS:
                writes += _producer_ids(zookeeper, target, parents)
    return [*reconcile_topics(zookeeper, target, parents, only=topics), *writes] if topics else writes


def _brokers(
    zookeeper: ZkSource, target: Target, parents: Parents, *, only: str | None = None
) -> Iterator[EntityWrite]:
    wanted = {
        names.config_name(resource) or "": resource
        for resource in target.image.configs
        if resource.resource_type == ConfigResourceType.BROKER
    }
    for name, znodes in _configs(zookeeper, target, wanted, source.broker_configs, only):
        config = target.config(wanted.get(name, names.broker_resource(paths.name_of(name))))
        if not target.same_configs([(znode.path, znode.data) for znode in znodes], config):
            yield _config_write(name, znodes, target, config, parents)


def _clients(
    zookeeper: ZkSource, target: Target, parents: Parents, *, only: str | None = None
) -> Iterator[EntityWrite]:
    wanted: dict[str, QuotaKey] = {}
    homeless: list[str] = []
    for key in {*target.image.quotas, *(names.user_key(scram.user) for scram in target.image.scram)}:
        name = names.quota_name(key)
        if name is not None:
            wanted[name] = key
        elif only is None:
            homeless.append(names.quota_text(key))
    for text in sorted(homeless):
        target.report(text, "ZooKeeper has no place for it")
    for name, znodes in _configs(zookeeper, target, wanted, source.client_configs, only):
        config = target.client_config(wanted[name]) if name in wanted else {}
        if not same_client_config(name, source.held(znodes), config):
            yield _config_write(name, znodes, target, config, parents)


def _configs(
    zookeeper: ZkSource,
    target: Target,
    wanted: Iterable[str],
    listed: Callable[[ZkSource], list[str]],
    only: str | None,
) -> Iterator[tuple[str, list[Znode]]]:
    """Yield canonical names and znodes of the configs that either side has; with ``only`` a user, those of its clients,
    too. Znodes that belong to no entity are left alone."""
    if only is None:
        found = listed(zookeeper)
    else:
        below = f"{paths.config(only)}/clients"
        found = [paths.config(name) for name in (only, *target.spellings.get(only, ()))]
        found += [f"{below}/{client}" for client in source.names_below(zookeeper, below)]
        wanted = [name for name in wanted if name == only or name.startswith(f"{only}/clients/")]
    entities = source.config_names(found, lambda fault: target.report(fault.where, fault.what))
    every = {name: entities.get(name, [name]) for name in sorted({*wanted, *entities})}  # parents before children
    for name, znodes in source.config_znodes(zookeeper, every):
        target.spellings.pop(name, None)
        if others := tuple(other for other, _ in source.held(znodes) if other != name):
            target.spellings[name] = others
        yield name, znodes


def _config_write(
    name: str, znodes: list[Znode], target: Target, config: Mapping[str, str], parents: Parents
) -> EntityWrite:
    """The write of one config. A missing canonical znode is created when the config is not empty: Kafka's tools know no
    other znode."""
    path, data, others = paths.config(name), target.encode_config(config), target.spellings.get(name, ())
    exists = any(znode.path == path for znode in znodes)
    missing = _parents(name, target, parents)
    write = config_write(name, data, exists=exists, others=others, parents=missing)
    if config or exists:
        parents.exists(path)  # a user's clients are below its znode
    if config:
        return write
    ops = write.ops if exists else tuple(op for op in write.ops if op.path != path)
    return EntityWrite(write.entity, ops, write.notices, Effect.DELETE)


def _parents(name: str, target: Target, parents: Parents) -> tuple[Op, ...]:
    """The creations of the missing parents of a config. If a client's user has another znode than the canonical one,
    that one is created with the user's config: a broker that listed an empty znode of the user after the other would
    forget the user's credentials (``UserConfigHandler``)."""
    missing = parents.of(paths.config(name), paths.CONFIG_CHANGE_PREFIX)
    owner = "/".join(name.split("/")[:2])
    config = {} if owner == name else target.client_config(frozenset(names.quota_entities(owner)))
    if not config:
        return missing
    created = Create(paths.config(owner), target.encode_config(config))
    return tuple(created if op.path == created.path else op for op in missing)


def _producer_ids(zookeeper: ZkSource, target: Target, parents: Parents) -> Iterator[EntityWrite]:
    """The write of the next producer id. It never goes back: ids below ZooKeeper's block may have been handed out."""
    next_id = target.image.producer_ids_next
    if next_id <= 0:
        return
    (znode,) = zookeeper.read([paths.PRODUCER_IDS])
    try:
        block = decode_producer_ids(znode.path, znode.data) if znode is not None else None
    except ZnodeError:
        block = None
    if block is not None and block.next_id >= next_id:
        return
    data = encode_producer_ids(producer_ids_block(next_id))
    op: Op = SetData(paths.PRODUCER_IDS, data) if znode is not None else Create(paths.PRODUCER_IDS, data)
    effect = Effect.CHANGE if block is not None else Effect.CREATE
    yield EntityWrite(entity_name(EntityKind.PRODUCER_IDS), (*parents.of(paths.PRODUCER_IDS), op), effect=effect)


def _acls(zookeeper: ZkSource, target: Target, parents: Parents, *, only: str | None = None) -> Iterator[EntityWrite]:
    wanted: dict[str, tuple[ResourcePattern, frozenset[AclEntry]]] = {
        acl_path(pattern): (pattern, entries)
        for pattern, entries in acl_entries(target.image).items()
        if (only is None or only == acl_path(pattern)) and is_writable(pattern, target)
    }
    listed = source.acl_resources(zookeeper) if only is None else [only]
    every = sorted({*wanted, *listed})
    for path, znode in zip(every, zookeeper.read(every), strict=True):
        pattern = wanted[path][0] if path in wanted else parse_acl_path(path)
        entries = wanted[path][1] if path in wanted else None
        if pattern is None or _held_acls(path, znode) == (entries or frozenset()):
            continue
        missing = parents.of(path, f"{paths.LITERAL_ACL_CHANGES}/", f"{paths.PREFIXED_ACL_CHANGES}/")
        yield acl_write(pattern, entries, exists=znode is not None, parents=missing)


def data_of(znode: Znode | None) -> bytes | None:
    """The data of a znode; None for a missing one."""
    return None if znode is None else znode.data


def _held_acls(path: str, znode: Znode | None) -> frozenset[AclEntry] | None:
    """The ACLs of a znode; None when it does not decode, which equals no other value."""
    try:
        return decode_acls(path, data_of(znode))
    except ZnodeError:
        return None


def _tokens(zookeeper: ZkSource, target: Target, parents: Parents, *, only: str | None = None) -> Iterator[EntityWrite]:
    images = target.image.tokens
    every = [only] if only is not None else sorted({*images, *source.names_below(zookeeper, paths.TOKENS)})
    legal = [token_id for token_id in every if is_writable_token(token_id, target)]
    for token_id, znode in zip(legal, zookeeper.read(map(paths.token, legal)), strict=True):
        token = images.get(token_id)
        try:
            if (decode_token(znode.path, znode.data) if znode is not None else None) == token:
                continue
        except ZnodeError:
            pass
        missing = parents.of(paths.token(token_id), paths.TOKEN_CHANGE_PREFIX)
        yield token_write(token_id, token, exists=znode is not None, parents=missing)


class Parents:
    """Finds missing parents. Each parent is looked up once, and a parent whose creation is on the way exists."""

    def __init__(self, zookeeper: ZkSource) -> None:
        self._source = zookeeper
        self._known: set[str] = set()

    def exists(self, path: str) -> None:
        """Note that this parent exists, or that its creation is on the way."""
        self._known.add(path)

    def of(self, *children: str) -> tuple[Op, ...]:
        """The creations of all missing parents of these paths, topmost first."""
        wanted = [path for child in children for path in paths.ancestors(child) if path not in self._known]
        if not wanted:
            return ()
        wanted = list(dict.fromkeys(wanted))
        self._known.update(wanted)
        found = zip(wanted, self._source.read(wanted), strict=True)
        return tuple(Create(path, None) for path, znode in found if znode is None)
