"""The operations that are allowed before the copy from ZooKeeper, and during it.

Source: ``RUNS_IN_PREMIGRATION`` in Kafka's ``QuorumController``. The rule for the open transaction is this program's: a
change that an Abort would undo is not granted.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.image.model import MetadataImage
from migrator.records.metadata import ZkMigrationState


class Operation(Enum):
    """Every operation that writes to the log."""

    REGISTER_BROKER = "broker registration"
    UNREGISTER_BROKER = "broker removal"
    HEARTBEAT = "heartbeat"
    REGISTER_CONTROLLER = "controller registration"
    NO_OP = "no-op"
    FENCE_BROKER = "fencing"
    BALANCE_LEADERS = "preferred leader election"
    ELECT_UNCLEAN = "unclean leader election"
    ELECT_MISSING = "election of missing leaders"
    SWEEP_TOKENS = "delegation token sweep"
    CREATE_TOPICS = "topic creation"
    DELETE_TOPICS = "topic deletion"
    CREATE_PARTITIONS = "partition creation"
    ALTER_PARTITION = "ISR change"
    ELECT_LEADERS = "leader election"
    ALTER_REASSIGNMENTS = "reassignment"
    ASSIGN_DIRECTORIES = "log directory assignment"
    ALTER_CONFIGS = "configuration change"
    ALTER_QUOTAS = "quota change"
    ALTER_SCRAM = "SCRAM credential change"
    CREATE_ACLS = "ACL creation"
    DELETE_ACLS = "ACL deletion"
    DELEGATION_TOKENS = "delegation token change"
    ALLOCATE_PRODUCER_IDS = "producer id allocation"
    UPDATE_FEATURES = "feature update"
    REASSIGN_VOTERS = "reassignment of voters"
    ROLLOUT_LOCK = "change of the rollout's lock"
    CLOSE_WAY_BACK = "end of the way back"


ALLOWED_BEFORE_COPY: Final = frozenset(
    (
        Operation.REGISTER_BROKER,
        Operation.UNREGISTER_BROKER,
        Operation.HEARTBEAT,
        Operation.REGISTER_CONTROLLER,
        Operation.NO_OP,
        Operation.REASSIGN_VOTERS,
        Operation.ROLLOUT_LOCK,
        Operation.CLOSE_WAY_BACK,
    )
)
"""The operations before the copy. Reassignments of voters and the rollout's lock are refused during the whole migration
by other rules (`quorum_target`, `rollout_lock`), and so is the order to close the way back (`way_back`)."""
ALLOWED_IN_TRANSACTION: Final = frozenset((Operation.HEARTBEAT, Operation.NO_OP))
"""Heartbeats are answered then, but change nothing (`heartbeats`)."""


def refusal(image: MetadataImage, operation: Operation, *, transaction_open: bool) -> str | None:
    """Why the operation has to wait, or None.

    :param image: the speculative image, which includes an open transaction: near the end of the copy its state is
        already MIGRATION.
    """
    if transaction_open and operation not in ALLOWED_IN_TRANSACTION:
        return f"No {operation.value} while the metadata is being copied."
    before_copy = image.features.zk_migration_state is ZkMigrationState.PRE_MIGRATION
    if before_copy and operation not in ALLOWED_BEFORE_COPY:
        return f"No {operation.value} before the metadata has been copied from ZooKeeper."
    return None


def check_gate(image: MetadataImage, operation: Operation, *, transaction_open: bool) -> None:
    """Refuse an operation that has to wait.

    :raises RefusedError: NOT_CONTROLLER, at which brokers and clients try again.
    """
    reason = refusal(image, operation, transaction_open=transaction_open)
    if reason is not None:
        raise RefusedError(ErrorCode.not_controller, reason)
