"""Which cluster a controller is formatted for: what ZooKeeper says, and what was typed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.log.meta_properties import MetaProperties
from migrator.records.uuid import uuid_from_text
from migrator.zookeeper.clusters import NoClusterError, read_cluster_id
from migrator.zookeeper.session import ZooKeeperSession, options_from
from migrator.zookeeper.znodes import paths

TYPED = "--cluster-id"
CONNECT_MS = 3_000
"""To find ZooKeeper at most, when the id was typed: scripts format machines from which it may not be reached yet."""


def cluster_id_of(
    settings: Settings, typed: str | None, *, kept: MetaProperties | None, directory: Path
) -> tuple[str, str, tuple[str, ...]]:
    """The id, who says so, and warnings.

    :param kept: of the metadata directory, if that stays as it was formatted. Then ZooKeeper may be away.
    :raises OperatorError: nobody does, or ZooKeeper says otherwise.
    """
    if not settings.zookeeper_connect:
        if typed is None:
            raise OperatorError(
                f"no cluster id is given, and {settings.source} names no ZooKeeper to ask",
                where=TYPED,
                remedy="Give -t with the cluster.id in meta.properties of a broker, or set zookeeper.connect",
            )
        return typed, TYPED, _doubted(typed)
    try:
        found = _in_zookeeper(settings, patient=typed is None and kept is None)
    except OperatorError as error:
        known, said_by = (kept.cluster_id, str(directory)) if typed is None and kept is not None else (typed, TYPED)
        if known is None or (isinstance(error, NoClusterError) and error.chroots):
            raise
        return known, said_by, (f"cluster id {known} is not compared with ZooKeeper: {error}",)
    source = f"{paths.CLUSTER_ID} of ZooKeeper at {settings.zookeeper_connect}"
    if typed not in (None, found):
        raise OperatorError(
            f"{typed} was typed, and {source} is {found}",
            where=TYPED,
            remedy=f"Nothing was formatted. Leave -t away, or correct zookeeper.connect in {settings.source}",
        )
    return found, source, ()


def _doubted(typed: str) -> tuple[str, ...]:
    try:
        uuid_from_text(typed)
    except ValueError:
        return (f"cluster id {typed!r} does not look like one that Kafka has made: see that all brokers have it",)
    return ()


def _in_zookeeper(settings: Settings, *, patient: bool) -> str:
    options = options_from(settings)
    if not patient:
        options = replace(options, connection_timeout_ms=min(options.connection_timeout_ms, CONNECT_MS))
    with ZooKeeperSession(options) as session:
        return read_cluster_id(session)
