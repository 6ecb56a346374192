"""Reads in bulk the znodes that make the canonical rows of the ZooKeeper side.

The znodes come from a `ZkSource`: a live server (`BulkReader`), or a server's files (`files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from migrator.verify.canonical import Row
from migrator.verify.zookeeper import znode_rows
from migrator.zookeeper.ops import ZkSource
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.entities import Held, grouped
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.passwords import PasswordEncoder

TOPICS_AT_ONCE = 500


def topic_names(tree: ZkSource) -> list[str]:
    """Topics in ZooKeeper, without those with a pending deletion, which are not migrated."""
    (names, doomed) = tree.children([paths.TOPICS, paths.DELETE_TOPICS])
    return sorted(set(names or ()) - set(doomed or ()))


def topics(
    tree: ZkSource, names: Sequence[str], encoder: PasswordEncoder, salt: bytes, *, is_part: bool = False
) -> Iterator[Row]:
    """Rows of these topics, their partitions and configs. A topic that has disappeared meanwhile has no rows.

    :param is_part: the tree is a part of ZooKeeper's: the config of a topic may be in it without the topic.
    """
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
        configured = some if is_part else found
        for name, znode in zip(configured, tree.read(map(paths.topic_config, configured)), strict=True):
            if znode is not None:
                yield from znode_rows.topic_config_rows(name, znode.data, encoder, salt)


def other_families(tree: ZkSource, encoder: PasswordEncoder, salt: bytes) -> Iterator[Row]:
    """Rows of everything except topics."""
    for name, held in _entities(tree, (f"brokers/{name}" for name in _children(tree, paths.BROKER_CONFIGS))):
        yield from znode_rows.broker_config_rows(name, held, encoder, salt)
    for name, held in _entities(tree, _client_names(tree)):
        yield from znode_rows.client_rows(name, held, salt)
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


def _client_names(tree: ZkSource) -> Iterator[str]:
    users = _children(tree, paths.USER_CONFIGS)
    yield from (f"users/{user}" for user in users)
    listed = tree.children(f"{paths.USER_CONFIGS}/{user}/clients" for user in users)
    for user, clients in zip(users, listed, strict=True):
        yield from (f"users/{user}/clients/{client}" for client in clients or ())
    yield from (f"clients/{client}" for client in _children(tree, paths.CLIENT_CONFIGS))
    yield from (f"ips/{ip}" for ip in _children(tree, paths.IP_CONFIGS))


def _entities(tree: ZkSource, names: Iterable[str]) -> Iterator[tuple[str, Held]]:
    """The entities of these configs, by canonical name, with their znodes."""
    entities = grouped(names, _refuse)
    znodes = tree.read(paths.config(name) for spellings in entities.values() for name in spellings)
    for entity, spellings in entities.items():
        found = zip(spellings, islice(znodes, len(spellings)), strict=True)
        yield entity, [(name, znode.data) for name, znode in found if znode is not None]


def _refuse(fault: ZnodeError) -> None:
    raise fault


def _children(tree: ZkSource, root: str) -> tuple[str, ...]:
    (names,) = tree.children([root])
    return tuple(sorted(names or ()))


def _named(tree: ZkSource, root: str) -> Iterator[tuple[str, bytes | None]]:
    """The name and the data of every child."""
    names = _children(tree, root)
    for name, znode in zip(names, tree.read(f"{root}/{name}" for name in names), strict=True):
        if znode is not None:
            yield name, znode.data
