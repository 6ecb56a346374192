"""Which znodes make the canonical rows of the ZooKeeper side, and how they are read in bulk.

Where the znodes come from is a `ZkSource`: a live server (`BulkReader`), or the files that it leaves (`files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from migrator.verify.canonical import Row
from migrator.verify.zookeeper import znode_rows
from migrator.zookeeper.ops import ZkSource
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from migrator.zookeeper.znodes.quotas import parse_quotas

TOPICS_AT_ONCE = 500


def topic_names(tree: ZkSource) -> list[str]:
    """Topics in ZooKeeper without those that are about to be deleted: they are not migrated."""
    (names, doomed) = tree.children([paths.TOPICS, paths.DELETE_TOPICS])
    return sorted(set(names or ()) - set(doomed or ()))


def topics(tree: ZkSource, names: Sequence[str], encoder: PasswordEncoder, salt: bytes) -> Iterator[Row]:
    """Rows of these topics, their partitions and configs. A topic that vanished meanwhile has none."""
    for start in range(0, len(names), TOPICS_AT_ONCE):
        some = names[start : start + TOPICS_AT_ONCE]
        found = {}
        for name, znode in zip(some, tree.read(map(paths.topic, some)), strict=True):
            if znode is not None:
                found[name], rows = znode_rows.topic_rows(name, znode.data)
                yield from rows
        wanted = [(name, partition) for name, topic in found.items() for partition in topic.partitions]
        states = tree.read(paths.partition_state(name, partition) for name, partition in wanted)
        for (name, partition), state in zip(wanted, states, strict=True):
            content = None if state is None else (state.data, state.stat.version)
            yield from znode_rows.partition_rows(name, found[name], partition, content)
        for name, znode in zip(found, tree.read(map(paths.topic_config, found)), strict=True):
            if znode is not None:
                yield from znode_rows.resource_config_rows("topic", name, znode.data, encoder, salt)


def other_families(tree: ZkSource, encoder: PasswordEncoder, salt: bytes) -> Iterator[Row]:
    """Rows of everything but topics."""
    for name, data in _named(tree, paths.BROKER_CONFIGS):
        yield from znode_rows.resource_config_rows("broker", name, data, encoder, salt)
    yield from _entities(tree, salt)
    for root in (paths.LITERAL_ACLS, paths.PREFIXED_ACLS):
        types = _children(tree, root)
        for kind in types:
            for name, data in _named(tree, f"{root}/{kind}"):
                yield from znode_rows.acl_rows(f"{root}/{kind}/{name}", data)
    for name, data in _named(tree, paths.TOKENS):
        yield from znode_rows.delegation_token_rows(f"{paths.TOKENS}/{name}", data)
    (producer_ids,) = tree.read([paths.PRODUCER_IDS])
    if producer_ids is not None:
        yield from znode_rows.producer_id_rows(producer_ids.data)


def _entities(tree: ZkSource, salt: bytes) -> Iterator[Row]:
    for user, data in _named(tree, paths.USER_CONFIGS):
        path = f"{paths.USER_CONFIGS}/{user}"
        yield from znode_rows.user_rows(path, user, data, salt)
        for client, client_data in _named(tree, f"{path}/clients"):
            entity = {
                "user": znode_rows.entity_name(path, user),
                "client-id": znode_rows.entity_name(f"{path}/clients/{client}", client),
            }
            yield from _quotas(f"{path}/clients/{client}", entity, client_data)
    for root, kind in ((paths.CLIENT_CONFIGS, "client-id"), (paths.IP_CONFIGS, "ip")):
        for name, data in _named(tree, root):
            path = f"{root}/{name}"
            yield from _quotas(path, {kind: znode_rows.entity_name(path, name)}, data)


def _quotas(path: str, entity: dict[str, str | None], data: bytes | None) -> Iterable[Row]:
    return znode_rows.quota_rows(entity, parse_quotas(path, decode_config(path, data)))


def _children(tree: ZkSource, root: str) -> tuple[str, ...]:
    (names,) = tree.children([root])
    return tuple(sorted(names or ()))


def _named(tree: ZkSource, root: str) -> Iterator[tuple[str, bytes | None]]:
    """Name and data of every child."""
    names = _children(tree, root)
    for name, znode in zip(names, tree.read(f"{root}/{name}" for name in names), strict=True):
        if znode is not None:
            yield name, znode.data
