"""Reads ZooKeeper in the driver, beside Spark: how far it follows the log, and single entities again.

`verify`, the second reading and the search for foreign writes use a `ZooKeeperSide`. It has one session and only reads.
Its rows are canonical as those of Spark's workers, with secrets hashed under the same key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.values import value
from migrator.verify.canonical import Row
from migrator.verify.zookeeper.reading import other_families, topic_names, topics
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Stat
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, options_from
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id
from migrator.zookeeper.znodes.migration import INITIAL_STATE, MigrationState, decode_migration
from migrator.zookeeper.znodes.passwords import PasswordEncoder

Key = tuple[str, str, str]
"""(kind, entity, field): one leaf."""

TOPIC_CONFIG = "topic:"
READ_RETRY_SECONDS = 15.0
"""Seconds for which one reading is repeated after lost connections."""


def topic_of(kind: str, entity: str) -> str | None:
    """The topic of a leaf, by its kind and entity; None for a leaf of no topic, and for a topic's config."""
    if kind == "topic":
        return entity
    return entity.rpartition("-")[0] if kind == "partition" else None


@value
class MigrationMark:
    """``/migration``: ZooKeeper holds everything up to ``state``'s offset, when ``copied``. ``zxid``: of the
    server when it was read."""

    state: MigrationState
    zxid: int

    @property
    def copied(self) -> bool:
        """Whether a KRaft quorum writes, or wrote, to this ZooKeeper."""
        return self.state.copied

    @property
    def offset(self) -> int:
        """The offset of the last record that ZooKeeper holds, -1 without a migration."""
        return self.state.kraft_metadata_offset if self.copied else -1


class ZooKeeperSide:
    """A session of the driver; a context manager.

    :param hosts: connection string; None for that of ``config``, a controller's property file.
    :param salt: the key under which secrets are hashed, as on the other side.
    """

    def __init__(self, hosts: str | None, config: str | None, salt: bytes) -> None:
        options, encoder = access(hosts, config)
        self._encoder = encoder
        self._salt = salt
        self._session = ZooKeeperSession(options)
        self._reader = BulkReader(self._session, retry_seconds=READ_RETRY_SECONDS)

    def __enter__(self) -> Self:
        self._session.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @property
    def chroot(self) -> str:
        """The chroot of Kafka's znodes, "" for the root."""
        return self._session.chroot

    @property
    def zxid(self) -> int:
        """The last transaction that the server had seen when it last answered."""
        return int(self._session.client.last_zxid)

    def cluster_id(self) -> str | None:
        """The content of ``/cluster/id``; None if it is missing. Errors as `mark`."""
        (znode,) = self._reader.read([paths.CLUSTER_ID])
        return None if znode is None else decode_cluster_id(paths.CLUSTER_ID, znode.data)

    def mark(self) -> MigrationMark:
        """Read how far ZooKeeper follows the log.

        :raises OperatorError: ZooKeeper does not answer, or the znode does not decode.
        """
        (znode,) = self._reader.read([paths.MIGRATION])
        state = None if znode is None else decode_migration(paths.MIGRATION, znode.data)
        return MigrationMark(state or INITIAL_STATE, self.zxid)

    def stats(self, roots: Iterable[str]) -> Mapping[str, Stat]:
        """Stat of every znode at and below some paths. Errors as `mark`."""
        found: dict[str, Stat] = {}
        waiting = list(roots)
        while waiting:
            parents = []
            for path, znode in zip(waiting, self._reader.read(waiting), strict=True):
                if znode is not None:
                    found[path] = znode.stat
                    if znode.stat.children_count:
                        parents.append(path)
            listed = zip(parents, self._reader.children(parents), strict=True)
            waiting = [f"{path}/{name}" for path, names in listed for name in names or ()]
        return found

    def rows(self, keys: Iterable[Key]) -> Mapping[Key, str]:
        """Read the leaves of ``keys``; a missing one is left out. Errors as `mark`."""
        wanted = frozenset(keys)
        concerned = {topic_of(kind, entity) for kind, entity, _ in wanted} - {None}
        concerned |= {
            entity.removeprefix(TOPIC_CONFIG)
            for kind, entity, _ in wanted
            if kind == "config" and entity.startswith(TOPIC_CONFIG)
        }
        found: list[Row] = []
        if concerned:
            names = [name for name in topic_names(self._reader) if name in concerned]
            found += topics(self._reader, names, self._encoder, self._salt)
        if any(topic_of(kind, entity) is None for kind, entity, _ in wanted):
            found += other_families(self._reader, self._encoder, self._salt)
        return {(kind, entity, field): text for kind, entity, field, text in found if (kind, entity, field) in wanted}


def access(hosts: str | None, config: str | None) -> tuple[SessionOptions, PasswordEncoder]:
    """The options to reach ZooKeeper, and the decoder of passwords.

    :raises OperatorError: neither is given, or the file is not valid.
    """
    if config is None:
        if hosts is None:
            raise OperatorError(
                "no ZooKeeper is named", where="--zookeeper", remedy="Give --zookeeper, or a property file with -c"
            )
        return SessionOptions(hosts), PasswordEncoder(None, os.urandom)
    settings, _ = load_settings(Path(config))
    options = options_from(settings, hosts)
    secret = settings.password_encoder_secret
    return options, PasswordEncoder(None if secret is None else secret.reveal(), os.urandom)
