"""Compares ZooKeeper with an image: the fewest writes that make ZooKeeper equal to it.

Unlike stock controllers, it notices missing and surplus partitions, a topic that was recreated under its name, states
whose version lags their partition epoch, and foreign configs, quotas, ACLs and tokens. It does not write a znode that
has the same meaning in another spelling. Configs come first, and deletions before creations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from migrator.image.model import QuotaKey
from migrator.migration.translate import names, source
from migrator.migration.translate.entity import Effect, EntityKind, EntityWrite, entity_name, parse_entity
from migrator.migration.translate.parents import Parents
from migrator.migration.translate.target import (
    Target,
    producer_ids_block,
    same_client_config,
)
from migrator.migration.translate.to_ops import (
    acl_entries,
    acl_write,
    config_write,
    is_writable,
    is_writable_token,
    token_write,
)
from migrator.migration.translate.topics import reconcile_topic_configs, reconcile_topics
from migrator.records.metadata import ConfigResourceType
from migrator.zookeeper.ops import Create, Op, SetData, ZkSource, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import AclEntry, ResourcePattern, acl_path, decode_acls, parse_acl_path
from migrator.zookeeper.znodes.delegation_tokens import decode_token
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.producer_ids import decode_producer_ids, encode_producer_ids


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


def repair(zookeeper: ZkSource, target: Target, entity: str) -> list[EntityWrite]:
    """Compare one entity, by the name that its write has.

    :raises InvariantViolation: the name is not from `entity_name`.
    """
    kind, name = parse_entity(entity)
    parents = Parents(zookeeper)
    match kind:
        case EntityKind.TOPIC:
            writes = reconcile_topics(zookeeper, target, parents, only=name)
        case EntityKind.CONFIG if name.startswith("topics/"):
            writes = reconcile_topics(zookeeper, target, parents, only=name.removeprefix("topics/"))
        case EntityKind.CONFIG if name.startswith("brokers/"):
            writes = _brokers(zookeeper, target, parents, only=name)
        case EntityKind.CONFIG:
            writes = _clients(zookeeper, target, parents, only=name)
        case EntityKind.ACLS:
            writes = _acls(zookeeper, target, parents, only=name)
        case EntityKind.TOKEN:
            writes = _tokens(zookeeper, target, parents, only=name)
        case EntityKind.PRODUCER_IDS:
            writes = _producer_ids(zookeeper, target, parents)
    return list(writes)


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
    for key in {*target.image.quotas, *(names.user_key(scram.user) for scram in target.image.scram)}:
        name = names.quota_name(key)
        if name is not None:
            wanted[name] = key
        elif only is None:
            target.report(f"quota entity {sorted(map(repr, key))}", "ZooKeeper has no place for it")
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
    missing = parents.of(path, paths.CONFIG_CHANGE_PREFIX)
    write = config_write(name, data, exists=exists, others=others, parents=missing)
    if config or exists:
        parents.exists(path)  # a user's clients are below its znode
    if config:
        return write
    ops = write.ops if exists else tuple(op for op in write.ops if op.path != path)
    return EntityWrite(write.entity, ops, write.notices, Effect.DELETE)


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
