"""UpdateFeatures. Source: Kafka's ``FeatureControlManager`` and ``QuorumFeatures``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.context import SUPPORTED_FEATURES, Context, supports
from migrator.controller.decision import NO_ERROR, ApiError, Decision, decided
from migrator.image.model import MetadataImage
from migrator.records.metadata import FeatureLevelRecord, FeatureRange, MetadataRecord, ZkMigrationState
from migrator.records.versions import FEATURE_NAME, MINIMUM_BOOTSTRAP, MinLevel, changes_records
from migrator.values import value

_MIGRATING: Final = (ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION)


class UpgradeType(IntEnum):
    """Numbers of UpdateFeatures; others are unknown."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@value
class FeatureUpdate:
    """``upgrade_type`` None is one that we do not know."""

    name: str
    level: int
    upgrade_type: UpgradeType | None = UpgradeType.UPGRADE


@value
class UpdateFeaturesRequest:
    """Names are distinct."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, context: Context
) -> Decision[tuple[tuple[str, ApiError], ...]]:
    """Finalize levels that every broker and every voter supports; each feature on its own, in order of name."""
    results: list[tuple[str, ApiError]] = []
    records: list[MetadataRecord] = []
    for update in sorted(request.updates, key=lambda update: update.name):
        fault = next(_faults(image, update, context), None)
        if fault is None:
            records.append(FeatureLevelRecord(update.name, update.level))
            results.append((update.name, NO_ERROR))
        else:
            message = f"{update.name} can't be set to level {update.level}: {fault}."
            results.append((update.name, ApiError(ErrorCode.invalid_update_version, message)))
    return decided(tuple(results), [] if request.validate_only else records)


def _faults(image: MetadataImage, update: FeatureUpdate, context: Context) -> Iterator[str]:
    if update.upgrade_type is None:
        yield "the upgrade type is unknown"
    if update.level < 0:
        yield "a level can't be negative"
    yield from _unsupported(image, update, context)
    is_metadata_version = update.name == FEATURE_NAME
    current = image.features.metadata_version if is_metadata_version else image.features.levels.get(update.name, 0)
    if update.level < current and update.upgrade_type is UpgradeType.UPGRADE:
        yield "a lower level takes the upgrade type of a downgrade"
    if update.level > current and update.upgrade_type is not UpgradeType.UPGRADE:
        yield "a higher level is no downgrade"
    if is_metadata_version:
        yield from _metadata_version_faults(image, update.level, current)


def _unsupported(image: MetadataImage, update: FeatureUpdate, context: Context) -> Iterator[str]:
    """The nodes that lack the level. Controllers can't be asked below metadata.version 3.7-IV0."""
    own = context.settings.node_id
    yield from _lacks("this controller", SUPPORTED_FEATURES, update)
    for broker_id, broker in sorted(image.cluster.brokers.items()):
        yield from _lacks(f"broker {broker_id}", broker.features, update)
    if not supports(image, MinLevel.CONTROLLER_REGISTRATION):
        return
    for controller_id in sorted({*image.cluster.controllers, *context.voters} - {own}):
        controller = image.cluster.controllers.get(controller_id)
        if controller is None:
            yield f"controller {controller_id} has not registered"
        else:
            yield from _lacks(f"controller {controller_id}", controller.features, update)


def _lacks(who: str, features: Iterable[FeatureRange], update: FeatureUpdate) -> Iterator[str]:
    found = next((feature for feature in features if feature.name == update.name), FeatureRange(update.name, 0, 0))
    if not found.min_version <= update.level <= found.max_version:
        if found.max_version == 0:
            yield f"{who} does not have the feature"
        else:
            yield f"{who} supports levels {found.min_version} to {found.max_version}"


def _metadata_version_faults(image: MetadataImage, level: int, current: int) -> Iterator[str]:
    if image.features.zk_migration_state in _MIGRATING:
        yield "the migration from ZooKeeper is not finished"
    if level < MINIMUM_BOOTSTRAP:
        yield f"levels below {MINIMUM_BOOTSTRAP} can't be recorded"
    if level < current and changes_records(current, level):
        yield "the lower level lacks records that may be in use"
