"""UpdateFeatures: raises and lowers the finalized levels of features. Pure.

A level is accepted only if every registered broker supports it, and from metadata.version 3.7-IV0 on every controller
and voter, too. Each feature is decided separately. The level of kraft.version stands in a control record, not in a
metadata record (`kraft_upgrade`). Source: Kafka's ``FeatureControlManager`` and ``QuorumFeatures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.context import KRAFT_VERSION, SUPPORTED_FEATURES, Context, supports
from migrator.controller.decision import NO_ERROR, ApiError, Decision, decided
from migrator.controller.way_back import check_feature
from migrator.image.model import MetadataImage
from migrator.records.metadata import FeatureLevelRecord, FeatureRange, MetadataRecord, ZkMigrationState
from migrator.records.versions import FEATURE_NAME, MINIMUM_BOOTSTRAP, MinLevel, changes_records, version_at
from migrator.values import value

RAISED: Final = (
    "This request does not move the voters into the log: kraft.version would be 1 in name only. Run 'migrator quorum "
    "upgrade' instead."
)
LOWERED: Final = "The voters cannot be taken out of the log again."
_MIGRATING: Final = (ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION)


class UpgradeType(IntEnum):
    """The numbers of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@value
class FeatureUpdate:
    """``upgrade_type`` is None for an unknown number."""

    name: str
    level: int
    upgrade_type: UpgradeType | None = UpgradeType.UPGRADE


@value
class UpdateFeaturesRequest:
    """Names are distinct."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


def finalized_levels(image: MetadataImage, kraft_version: int) -> dict[str, int]:
    """The finalized levels for ApiVersions. kraft.version is that of the control records, not of a metadata record;
    level 0 is left out (``FinalizedFeatures.setFinalizedLevel``)."""
    levels = {**image.features.levels, KRAFT_VERSION: kraft_version}
    return {name: level for name, level in levels.items() if level > 0 or name != KRAFT_VERSION}


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, context: Context
) -> Decision[tuple[tuple[str, ApiError], ...]]:
    """Finalize levels that every broker and every voter supports. Each feature is decided separately, by name."""
    results: list[tuple[str, ApiError]] = []
    records: list[MetadataRecord] = []
    for update in sorted(request.updates, key=lambda update: update.name):
        fault = next(_faults(image, update, context), None)
        if fault is None:
            records.append(FeatureLevelRecord(update.name, update.level))
            results.append((update.name, NO_ERROR))
        else:
            results.append((update.name, ApiError(ErrorCode.invalid_update_version, fault)))
    return decided(tuple(results), [] if request.validate_only else records)


def _faults(image: MetadataImage, update: FeatureUpdate, context: Context) -> Iterator[str]:
    """The reasons against an update, in Kafka's words and order."""
    if update.upgrade_type is None:
        yield _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        yield _invalid(update, "A feature version cannot be less than 0.")
    if closes := check_feature(image, context, update.name, update.level):
        yield _invalid(update, closes)
    yield from (_invalid(update, reason) for reason in _unsupported(image, update, context))
    is_metadata_version = update.name == FEATURE_NAME
    current = image.features.levels.get(update.name, 0)
    if is_metadata_version:
        current = image.features.metadata_version
    elif update.name == KRAFT_VERSION:
        current = context.kraft_version
    if update.level < current and update.upgrade_type is UpgradeType.UPGRADE:
        yield _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if update.level > current and update.upgrade_type is not UpgradeType.UPGRADE:
        yield _invalid(update, "Can't downgrade to a newer version.")
    if is_metadata_version:
        yield from _metadata_version_faults(image, update, current)
    elif update.name == KRAFT_VERSION and update.level != current:
        yield _invalid(update, RAISED if update.level > current else LOWERED)


def _invalid(update: FeatureUpdate, reason: str) -> str:
    return f"Invalid update version {update.level} for feature {update.name}. {reason}"


def _unsupported(image: MetadataImage, update: FeatureUpdate, context: Context) -> Iterator[str]:
    """The nodes that do not support the level. Controllers register only from metadata.version 3.7-IV0 on."""
    own = context.settings.node_id
    yield from _lacks(f"Local controller {own}", SUPPORTED_FEATURES, update)
    for broker_id, broker in sorted(image.cluster.brokers.items()):
        yield from _lacks(f"Broker {broker_id}", broker.features, update)
    if not supports(image, MinLevel.CONTROLLER_REGISTRATION):
        return
    for controller_id in sorted({*image.cluster.controllers, *context.voters} - {own}):
        controller = image.cluster.controllers.get(controller_id)
        if controller is None:
            yield f"controller {controller_id} has not registered, and may not support this feature"
        else:
            yield from _lacks(f"Controller {controller_id}", controller.features, update)


def _lacks(who: str, features: Iterable[FeatureRange], update: FeatureUpdate) -> Iterator[str]:
    found = next((feature for feature in features if feature.name == update.name), FeatureRange(update.name, 0, 0))
    low, high = found.min_version, found.max_version
    if not low <= update.level <= high:
        if high == 0:
            yield f"{who} does not support this feature."
        else:
            yield f"{who} only supports versions {low if low == high else f'{low}-{high}'}"


def _metadata_version_faults(image: MetadataImage, update: FeatureUpdate, current: int) -> Iterator[str]:
    level, begin = update.level, f"Invalid metadata.version {update.level}. "
    if image.features.zk_migration_state in _MIGRATING:
        yield f"{begin}Unable to modify metadata.version while a ZK migration is in progress."
    if level < MINIMUM_BOOTSTRAP:
        yield f"{begin}Unable to set a metadata.version less than {version_at(MINIMUM_BOOTSTRAP).name}"
    if level < current and changes_records(current, level):
        if update.upgrade_type is UpgradeType.UNSAFE_DOWNGRADE:
            yield f"{begin}Unsafe metadata downgrade is not supported in this version."
        yield f"{begin}Refusing to perform the requested downgrade because it might delete metadata information."
