"""What a new leader writes before anything else, and when the migration is over.

Source: Kafka's ``ActivationRecordsGenerator``. Unlike it, a leader whose migration flag is off does not end the
migration by being elected: `finish` decides that, when every voter says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from migrator.controller.context import metadata_version
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
from migrator.values import value

BOOTSTRAP: Final = "Bootstrap records"
FAILOVER: Final = "Controller failover"
FLAG: Final = "zookeeper.metadata.migration.enable"


def bootstrap_records(
    bootstrap: Sequence[MetadataRecord], *, migration_enabled: bool, transaction_open: bool
) -> tuple[MetadataRecord, ...]:
    """The first records of an empty log.

    :param bootstrap: from the format, metadata.version among them.
    :param transaction_open: whether an earlier leader got no further than into its bootstrap transaction.
    :raises OperatorError: the migration is on and the level of metadata.version is too low for it.
    """
    levels = [r.feature_level for r in bootstrap if isinstance(r, FeatureLevelRecord) and r.name == FEATURE_NAME]
    level = levels[-1] if levels else MINIMUM_SUPPORTED
    if level < MinLevel.TRANSACTIONS:
        if migration_enabled:
            raise _too_low(level, MinLevel.TRANSACTIONS, "Format it anew with --release-version 3.6 or later.")
        return tuple(bootstrap)
    state = ZkMigrationState.PRE_MIGRATION if migration_enabled else ZkMigrationState.NONE
    return (
        *((AbortTransactionRecord(FAILOVER),) if transaction_open else ()),
        BeginTransactionRecord(BOOTSTRAP),
        *bootstrap,
        ZkMigrationStateRecord(state),
        EndTransactionRecord(),
    )


def activation_records(
    image: MetadataImage, *, migration_enabled: bool, transaction_open: bool
) -> tuple[MetadataRecord, ...]:
    """The first records of a new leader whose log is not empty: an open transaction is aborted.

    :param image: without the open transaction's records.
    :raises OperatorError: the migration is on in a cluster that can't be migrated.
    """
    level = metadata_version(image)
    if migration_enabled and level < MinLevel.ZK_MIGRATION:
        raise _too_low(level, MinLevel.ZK_MIGRATION, f"Set {FLAG}=false.")
    if migration_enabled and image.features.zk_migration_state is ZkMigrationState.NONE:
        raise OperatorError(
            "the cluster was created in KRaft mode, so there is nothing to migrate",
            where=FLAG,
            remedy="Set it to false; to migrate, format the directories of a new quorum with the flag on.",
        )
    return (AbortTransactionRecord(FAILOVER),) if transaction_open else ()


@value
class Finish:
    """Whether the migration ends now. Exactly one of the three is given, or none while it goes on.

    ``waiting_for``: voters that have not signalled that their flag is off, too. ``resign_to``: voters whose flag is
    on; one of them should lead, because brokers in ZooKeeper mode are still registered (``zk_brokers``).
    """

    records: tuple[MetadataRecord, ...] = ()
    waiting_for: tuple[int, ...] = ()
    resign_to: tuple[int, ...] = ()
    zk_brokers: tuple[int, ...] = ()


def finish(image: MetadataImage, *, node_id: int, migration_enabled: bool, ready: Mapping[int, bool | None]) -> Finish:
    """Decide as leader whether to write POST_MIGRATION, after which there is no way back.

    :param ready: what each voter last signalled as ZkMigrationReady in its ApiVersions: its flag; None when it has not
        been heard of.
    """
    if image.features.zk_migration_state is not ZkMigrationState.MIGRATION or migration_enabled:
        return Finish()
    zk_brokers = tuple(
        sorted(b for b, registration in image.cluster.brokers.items() if registration.is_migrating_zk_broker)
    )
    if zk_brokers:
        return Finish(resign_to=tuple(sorted(v for v, on in ready.items() if on)), zk_brokers=zk_brokers)
    waiting_for = tuple(sorted(v for v, on in ready.items() if on is not False and v != node_id))
    if waiting_for:
        return Finish(waiting_for=waiting_for)
    return Finish(records=(ZkMigrationStateRecord(ZkMigrationState.POST_MIGRATION),))


def _too_low(level: int, needed: int, remedy: str) -> OperatorError:
    have, want = version_at(level).name, version_at(needed).name
    return OperatorError(
        f"metadata.version is {have}, and a migration needs {want} or later", where=FLAG, remedy=remedy
    )
