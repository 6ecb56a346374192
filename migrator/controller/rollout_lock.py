"""The lock of `migrator rollout`, kept in the image after the migration has ended.

It is a configuration of the resource that also has a reassignment's target. Stock controllers keep it in snapshots, and
accept no change of it from clients. A change names the value that it replaces, so that only the first of two succeeds.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.decision import Decision, RefusedError
from migrator.controller.given_up import QUORUM
from migrator.image.model import MetadataImage
from migrator.observe.status import LockAnswer
from migrator.records.metadata import ConfigRecord, ZkMigrationState

KEY: Final = "rollout.lock"
BYTES_MAX: Final = 1024


def lock_text(image: MetadataImage) -> str:
    """The text of the lock; "" without one."""
    return image.configs.get(QUORUM, {}).get(KEY, "")


def read_lock(image: MetadataImage) -> Decision[LockAnswer]:
    """
    :raises RefusedError: INVALID_REQUEST before the end of the migration.
    """
    _check(image)
    return Decision(LockAnswer(lock_text(image), moved=False), ())


def move_lock(image: MetadataImage, before: str, after: str) -> Decision[LockAnswer]:
    """Write ``after``, or remove the lock if it is "", on condition that the lock is ``before`` now.

    :raises RefusedError: INVALID_REQUEST before the end of the migration, or for a text that is too long.
    """
    _check(image)
    if len(after.encode()) > BYTES_MAX:
        raise RefusedError(ErrorCode.invalid_request, f"A lock has no more than {BYTES_MAX} bytes.")
    held = lock_text(image)
    if held != before:
        return Decision(LockAnswer(held, moved=False), ())
    record = ConfigRecord(QUORUM.resource_type, QUORUM.name, KEY, after or None)
    return Decision(LockAnswer(after, moved=True), () if after == before else (record,))


def _check(image: MetadataImage) -> None:
    if image.features.zk_migration_state in {ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION}:
        raise RefusedError(
            ErrorCode.invalid_request,
            "The lock of a rollout is in ZooKeeper until the migration has ended: a stock Kafka controller that leads "
            "meanwhile could not write it to ZooKeeper, and would stop.",
        )
