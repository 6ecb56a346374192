"""The first records of a new leader.

Source: Kafka's ``ActivationRecordsGenerator``. Unlike in Kafka, the election of a leader without the migration flag
does not end the migration: `migrator.migration.machine.finish` decides that when the flag is off at every voter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from migrator.config.keys import FLAG
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.versions import FEATURE_NAME, MINIMUM_SUPPORTED, MinLevel, version_at

BOOTSTRAP: Final = "Bootstrap records"
FAILOVER: Final = "Controller failover"
SAME_AS_BROKERS: Final = (
    "with --release-version 3.6 or later. Give the release that inter.broker.protocol.version of the brokers names; if "
    "that is older than 3.6, upgrade the brokers first"
)
FORMAT_ANEW: Final = f"Empty the metadata directory of this controller, and format it {SAME_AS_BROKERS}"


def bootstrap_records(
    bootstrap: Sequence[MetadataRecord], *, migration_enabled: bool, transaction_open: bool
) -> tuple[MetadataRecord, ...]:
    """The first records of an empty log.

    :param bootstrap: from the format, metadata.version among them.
    :param transaction_open: whether an earlier leader has left its bootstrap transaction open.
    :raises OperatorError: the migration is on and the level of metadata.version is too low for it.
    """
    level = bootstrap_level(bootstrap)
    if migration_enabled:
        check_first_level(level)
    if level < MinLevel.TRANSACTIONS:
        return tuple(bootstrap)
    state = ZkMigrationState.PRE_MIGRATION if migration_enabled else ZkMigrationState.NONE
    return (
        *((AbortTransactionRecord(FAILOVER),) if transaction_open else ()),
        BeginTransactionRecord(BOOTSTRAP),
        *bootstrap,
        ZkMigrationStateRecord(state),
        EndTransactionRecord(),
    )


def bootstrap_level(bootstrap: Sequence[MetadataRecord]) -> int:
    """The metadata.version that a quorum begins with."""
    levels = [r.feature_level for r in bootstrap if isinstance(r, FeatureLevelRecord) and r.name == FEATURE_NAME]
    return levels[-1] if levels else MINIMUM_SUPPORTED


def check_first_level(level: int, *, where: str = FLAG, remedy: str = FORMAT_ANEW) -> None:
    """
    :param level: of metadata.version, with which a quorum would begin a migration.
    :raises OperatorError: it is too low for that.
    """
    if level < MinLevel.TRANSACTIONS:
        raise _too_low(level, MinLevel.TRANSACTIONS, where, remedy)


def activation_records(
    image: MetadataImage, *, migration_enabled: bool, transaction_open: bool
) -> tuple[MetadataRecord, ...]:
    """The first records of a new leader whose log is not empty: an open transaction is aborted.

    :param image: the image without the open transaction's records.
    :raises OperatorError: the migration is on, and the cluster cannot be migrated.
    """
    level = image.features.metadata_version
    if migration_enabled and level < MinLevel.ZK_MIGRATION:
        raise _too_low(level, MinLevel.ZK_MIGRATION, FLAG, f"Set {FLAG}=false")
    if migration_enabled and image.features.zk_migration_state is ZkMigrationState.NONE:
        raise OperatorError(
            "the cluster was created in KRaft mode, so there is nothing to migrate",
            where=FLAG,
            remedy="Set it to false; to migrate, format the directories of a new quorum with the flag on",
        )
    return (AbortTransactionRecord(FAILOVER),) if transaction_open else ()


def _too_low(level: int, needed: int, where: str, remedy: str) -> OperatorError:
    have, want = version_at(level).name, version_at(needed).name
    return OperatorError(
        f"metadata.version is {have}, and a migration needs {want} or later", where=where, remedy=remedy
    )
