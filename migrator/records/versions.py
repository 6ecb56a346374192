"""metadata.version: its levels, their names, and the features that each of them adds, as data.

This program can control a cluster at levels up to `LATEST_SUPPORTED`. Higher levels are known only to read logs of
Kafka 4.x. Source: ``org.apache.kafka.server.common.MetadataVersion`` (3.9 and 4.1).
"""

from __future__ import annotations

from enum import IntEnum

from migrator.errors import require
from migrator.records import metadata as m
from migrator.values import value

FEATURE_NAME = "metadata.version"

MINIMUM_SUPPORTED = 1
MINIMUM_BOOTSTRAP = 4
"""The first level that the log records itself, so the first one for formatting a directory."""
LATEST_SUPPORTED = 21


@value
class MetadataVersion:
    """One level. ``changes_records``: whether the level has added a record type or version, so that a downgrade below
    it may lose metadata."""

    level: int
    release: str
    increment: int
    changes_records: bool

    @property
    def name(self) -> str:
        """Name as Kafka prints it, e.g. ``3.9-IV0``."""
        return f"{self.release}-IV{self.increment}"


VERSIONS = (
    MetadataVersion(1, "3.0", 1, changes_records=True),
    MetadataVersion(2, "3.1", 0, changes_records=False),
    MetadataVersion(3, "3.2", 0, changes_records=True),
    MetadataVersion(4, "3.3", 0, changes_records=False),
    MetadataVersion(5, "3.3", 1, changes_records=True),
    MetadataVersion(6, "3.3", 2, changes_records=True),
    MetadataVersion(7, "3.3", 3, changes_records=True),
    MetadataVersion(8, "3.4", 0, changes_records=True),
    MetadataVersion(9, "3.5", 0, changes_records=False),
    MetadataVersion(10, "3.5", 1, changes_records=False),
    MetadataVersion(11, "3.5", 2, changes_records=True),
    MetadataVersion(12, "3.6", 0, changes_records=False),
    MetadataVersion(13, "3.6", 1, changes_records=True),
    MetadataVersion(14, "3.6", 2, changes_records=True),
    MetadataVersion(15, "3.7", 0, changes_records=True),
    MetadataVersion(16, "3.7", 1, changes_records=False),
    MetadataVersion(17, "3.7", 2, changes_records=True),
    MetadataVersion(18, "3.7", 3, changes_records=False),
    MetadataVersion(19, "3.7", 4, changes_records=False),
    MetadataVersion(20, "3.8", 0, changes_records=False),
    MetadataVersion(21, "3.9", 0, changes_records=False),
    MetadataVersion(22, "4.0", 0, changes_records=False),
    MetadataVersion(23, "4.0", 1, changes_records=True),
    MetadataVersion(24, "4.0", 2, changes_records=False),
    MetadataVersion(25, "4.0", 3, changes_records=False),
    MetadataVersion(26, "4.1", 0, changes_records=False),
    MetadataVersion(27, "4.1", 1, changes_records=False),
    MetadataVersion(28, "4.2", 0, changes_records=False),
    MetadataVersion(29, "4.2", 1, changes_records=False),
)
LATEST_KNOWN = VERSIONS[-1].level


class MinLevel(IntEnum):
    """The first level that has a feature: ``level >= MinLevel.TRANSACTIONS``."""

    LEADER_RECOVERY = 3
    NO_OP_RECORD = 5
    REGISTRATION_CHANGE = 6
    CONTROLLED_SHUTDOWN_STATE = 7
    ZK_MIGRATION = 8
    SCRAM = 11
    NO_LEADER_EPOCH_BUMP_ON_ISR_SHRINK = 12
    TRANSACTIONS = 13
    DELEGATION_TOKENS = 14
    CONTROLLER_REGISTRATION = 15
    DIRECTORY_ASSIGNMENT = 17
    ELIGIBLE_LEADER_REPLICAS = 23


RECORD_VERSIONS: dict[type[m.MetadataRecord], tuple[tuple[int, int], ...]] = {
    m.RegisterBrokerRecord: ((1, 0), (7, 1), (8, 2), (17, 3)),
    m.UnregisterBrokerRecord: ((1, 0),),
    m.TopicRecord: ((1, 0),),
    m.PartitionRecord: ((1, 0), (17, 1), (23, 2)),
    m.ConfigRecord: ((1, 0),),
    m.PartitionChangeRecord: ((1, 0), (17, 1), (23, 2)),
    m.FenceBrokerRecord: ((1, 0),),
    m.UnfenceBrokerRecord: ((1, 0),),
    m.RemoveTopicRecord: ((1, 0),),
    m.DelegationTokenRecord: ((14, 0),),
    m.UserScramCredentialRecord: ((11, 0),),
    m.FeatureLevelRecord: ((4, 0),),
    m.ClientQuotaRecord: ((1, 0),),
    m.ProducerIdsRecord: ((1, 0),),
    m.BrokerRegistrationChangeRecord: ((6, 0), (7, 1), (17, 2)),
    m.AccessControlEntryRecord: ((1, 0),),
    m.RemoveAccessControlEntryRecord: ((1, 0),),
    m.NoOpRecord: ((5, 0),),
    m.ZkMigrationStateRecord: ((8, 0),),
    m.RemoveUserScramCredentialRecord: ((11, 0),),
    m.BeginTransactionRecord: ((13, 0),),
    m.EndTransactionRecord: ((13, 0),),
    m.AbortTransactionRecord: ((13, 0),),
    m.RemoveDelegationTokenRecord: ((14, 0),),
    m.RegisterControllerRecord: ((15, 0),),
    m.ClearElrRecord: ((23, 0),),
}
"""Pairs of a level and the highest record version from that level on, by record type, oldest first."""

_BY_LEVEL = {version.level: version for version in VERSIONS}
_BY_TEXT = {version.release: version for version in VERSIONS} | {version.name: version for version in VERSIONS}


def version_at(level: int) -> MetadataVersion:
    """The version with that level.

    :raises ValueError: when there is none.
    """
    try:
        return _BY_LEVEL[level]
    except KeyError:
        raise ValueError(f"no metadata.version has level {level}: known are 1 to {LATEST_KNOWN}") from None


def parse_version(text: str) -> MetadataVersion:
    """Parse ``3.9`` (the last level of that release), ``3.9.1`` or ``3.9-IV0``, as Kafka does.

    :raises ValueError: when it names no version.
    """
    version = _BY_TEXT.get(".".join(text.strip().split(".")[:2]))
    if version is None:
        raise ValueError(f"{text!r} is not a metadata.version: known are {VERSIONS[0].name} to {VERSIONS[-1].name}")
    return version


def record_version(record_type: type[m.MetadataRecord], level: int) -> int:
    """The highest version of a record type that a cluster of that level reads.

    :raises InvariantViolation: when the level does not have the record type at all.
    """
    versions = [version for since, version in RECORD_VERSIONS[record_type] if level >= since]
    require(bool(versions), f"{record_type.__name__} does not exist in metadata.version level {level}")
    return versions[-1]


def changes_records(from_level: int, to_level: int) -> bool:
    """Whether record types or versions change between two levels, up or down."""
    low, high = sorted((from_level, to_level))
    return any(version.changes_records for version in VERSIONS if low < version.level <= high)
