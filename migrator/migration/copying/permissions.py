"""Lists the existing znodes that a migration creates, sets and deletes, and tests our permissions on them.

The worker tests them before the claim, and preflight before the migration. The operations are tried in multis that
fail, so nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from migrator.migration.translate import source
from migrator.zookeeper.ops import FORBIDDEN_REMEDY, ZkSource
from migrator.zookeeper.permissions import WantedPaths, forbidden
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.errors import ZnodeError

PROBES_MAX = 200
"""The number of znodes of a family in which the permission to write is tested."""


def entities(reader: ZkSource) -> dict[str, list[str]]:
    """Paths of the znodes that are copied, by family.

    :raises MigratorError: ZooKeeper cannot be read.
    """
    return {
        "topics": [paths.topic(name) for name in source.names_below(reader, paths.TOPICS)],
        "topic configs": [paths.topic_config(name) for name in source.names_below(reader, paths.TOPIC_CONFIGS)],
        "broker configs": source.broker_configs(reader),
        "client configs": source.client_configs(reader),
        "acls": source.acl_resources(reader),
        "tokens": source.tokens(reader),
    }


def wanted(reader: ZkSource, listed: Mapping[str, list[str]]) -> WantedPaths:
    """The operations of a migration on this ZooKeeper; of a big family, a sample that is spread over all of it.

    :param listed: see `entities`.
    :raises MigratorError: ZooKeeper cannot be read.
    """
    parents = [
        *("/", paths.TOPICS, paths.TOPIC_CONFIGS, paths.BROKER_CONFIGS, paths.USER_CONFIGS, paths.CLIENT_CONFIGS),
        *(paths.IP_CONFIGS, paths.CONFIG_CHANGES, paths.ADMIN, paths.DELETE_TOPICS, paths.TOKENS),
        *(path for path in paths.SECURITY_PATHS if path not in (paths.TOKENS, paths.TOKEN_CHANGES)),
    ]
    nodes = [paths.CONTROLLER_EPOCH, paths.MIGRATION, paths.PRODUCER_IDS]
    spread = {family: _spread(found) for family, found in listed.items()}
    for found in spread.values():
        nodes += found
    nodes += [f"{topic}/partitions/0/state" for topic in spread["topics"]]
    removable = [paths.CONTROLLER, paths.DELETE_TOPICS, *(found[0] for found in spread.values() if found)]
    return WantedPaths(_there(reader, parents), _there(reader, nodes), _there(reader, removable))


def forbidden_to(session: ZooKeeperSession, reader: ZkSource) -> Iterator[ZnodeError]:
    """The operations of a migration that our identity may not do here. They are tried in multis that fail, so nothing
    changes.

    :raises MigratorError: ZooKeeper went away.
    """
    for where, what in forbidden(session, wanted(reader, entities(reader))):
        yield ZnodeError(where, what, FORBIDDEN_REMEDY)


def _there(reader: ZkSource, candidates: list[str]) -> tuple[str, ...]:
    """The candidates that exist and may be read. The reader reports those that may not be read."""
    found = reader.read(candidates)
    return tuple(path for path, znode in zip(candidates, found, strict=True) if znode is not None)


def _spread(found: list[str]) -> list[str]:
    step = max(1, len(found) // PROBES_MAX)
    return list(islice(found, 0, None, step))[:PROBES_MAX]
