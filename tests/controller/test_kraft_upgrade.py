"""Nodes that could not read the log keep the voters from moving into it."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.features import finalized_levels
from migrator.controller.kraft_upgrade import checked_upgrade
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.records.metadata import (
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    RegisterControllerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED
from tests.controller.support.leading_controller import LeadingController, some_uuid

VOTERS = (1, 2, 3)
CAN = FeatureRange("kraft.version", 0, 1)
CANNOT = FeatureRange("kraft.version", 0, 0)


def registered(*ids: int, features: tuple[FeatureRange, ...] = (CAN,)) -> list[RegisterControllerRecord]:
    return [RegisterControllerRecord(each, some_uuid(each), False, (), features) for each in ids]


def able() -> MetadataImage:
    """All three voters and one broker can."""
    controller = LeadingController(*registered(*VOTERS))
    controller.register(7, features=(FeatureRange(FEATURE_NAME, 1, LATEST_SUPPORTED), CAN))
    return controller.image


def reasons(image: MetadataImage) -> str:
    with pytest.raises(RefusedError) as refusal:
        checked_upgrade(image, VOTERS)
    assert refusal.value.error.code is ErrorCode.invalid_update_version
    return str(refusal.value)


def test_everybody_of_kafka_3_9_can() -> None:
    assert checked_upgrade(able(), VOTERS).records == ()


REASONS: dict[str, tuple[MetadataRecord, str]] = {
    "migration": (ZkMigrationStateRecord(ZkMigrationState.MIGRATION), "the migration is not finished"),
    "before the copy": (ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION), "the migration is not finished"),
    "version": (FeatureLevelRecord(FEATURE_NAME, 20), "metadata.version is 3.8-IV0; upgrade it to 3.9-IV0"),
    "controller": (registered(2, features=())[0], "the controllers 2 are older than Kafka 3.9"),
    "observer": (registered(9, features=(CANNOT,))[0], "the controllers 9 are older than Kafka 3.9"),
}


@pytest.mark.parametrize("case", REASONS)
def test_each_that_cannot_is_named(case: str) -> None:
    record, reason = REASONS[case]
    controller = LeadingController(*registered(*VOTERS))
    controller.write(record)
    assert reason in reasons(controller.image)


def test_a_broker_that_is_older_and_a_voter_that_has_not_registered_are_named_together() -> None:
    controller = LeadingController(*registered(1, 3))
    controller.register(7)  # as those of Kafka 3.8, which do not know the feature
    said = reasons(controller.image)
    assert "the brokers 7 are older than Kafka 3.9; upgrade them, or unregister those" in said
    assert "the controllers 2 have not registered; start them" in said


def test_what_is_finalized_is_the_logs_kraft_version_whatever_a_record_claims() -> None:
    """Stock 3.9 writes a level of the feature when it is asked to, and moves no voters."""
    loader = ImageLoader()
    loader.append(0, 1, 0, [FeatureLevelRecord(FEATURE_NAME, 21), FeatureLevelRecord("kraft.version", 1)])
    loader.apply()
    assert finalized_levels(loader.speculative, 0) == {FEATURE_NAME: 21}
    assert finalized_levels(loader.speculative, 1) == {FEATURE_NAME: 21, "kraft.version": 1}
