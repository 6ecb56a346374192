"""Checks that every node supports kraft.version 1, before the voters move from the configuration into the log.

Kafka 4.1 does the same check at UpdateFeatures for kraft.version; Kafka 3.9 has no such upgrade. There is no way back:
brokers before 3.9 end at a log with voters in it, also brokers that are down now and read it later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kio.schema.errors import ErrorCode

from migrator.controller.context import KRAFT_VERSION
from migrator.controller.decision import Decision, RefusedError
from migrator.image.model import MetadataImage
from migrator.raft.voter_set import DYNAMIC_VERSION
from migrator.records.metadata import FeatureRange
from migrator.records.versions import version_at

MINIMUM_METADATA_VERSION = 21
"""3.9-IV0, which Kafka 3.9 demands for kraft.version 1."""


def checked_upgrade(image: MetadataImage, voters: Collection[int]) -> Decision[None]:
    """Check all registered nodes. The decision has no records.

    :param voters: ids of the configured voters.
    :raises RefusedError: INVALID_UPDATE_VERSION, with all reasons.
    """
    reasons = list(_reasons(image, voters))
    if reasons:
        raise RefusedError(
            ErrorCode.invalid_update_version,
            f"The voters cannot be taken into the log (kraft.version {DYNAMIC_VERSION}): {'; '.join(reasons)}.",
        )
    return Decision(None, ())


def _reasons(image: MetadataImage, voters: Collection[int]) -> Iterator[str]:
    if image.features.zk_migration_state.is_under_way:
        yield "the migration is not finished; finish it first, or roll it back"
    level = image.features.metadata_version
    if level < MINIMUM_METADATA_VERSION:
        yield (
            f"metadata.version is {version_at(level).name}; upgrade it to "
            f"{version_at(MINIMUM_METADATA_VERSION).name} or newer first"
        )
    old = [
        broker_id for broker_id, broker in sorted(image.cluster.brokers.items()) if not reads_voters(broker.features)
    ]
    if old:
        yield (
            f"the brokers {', '.join(map(str, old))} are older than Kafka 3.9; upgrade them, or unregister those that "
            f"will not come back"
        )
    controllers = image.cluster.controllers
    if silent := sorted(set(voters) - set(controllers)):
        yield f"the controllers {', '.join(map(str, silent))} have not registered; start them"
    unable = [node_id for node_id, found in sorted(controllers.items()) if not reads_voters(found.features)]
    if unable:
        yield f"the controllers {', '.join(map(str, unable))} are older than Kafka 3.9; upgrade them"


def reads_voters(features: Iterable[FeatureRange]) -> bool:
    """Whether a node that registered these features can read a log with voters in it (Kafka 3.9 and newer)."""
    found = next((each for each in features if each.name == KRAFT_VERSION), None)
    return found is not None and found.min_version <= DYNAMIC_VERSION <= found.max_version
