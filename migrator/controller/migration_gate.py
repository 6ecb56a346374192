"""What may be written while the cluster's metadata is still in ZooKeeper, and while it is being copied.

Source: ``RUNS_IN_PREMIGRATION`` in Kafka's ``QuorumController``; the rule for the open transaction is ours: what an
Abort would take back is not granted in the first place.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.image.model import MetadataImage
from migrator.records.metadata import ZkMigrationState


class Operation(Enum):
    """Everything that writes to the log."""

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


ALLOWED_BEFORE_COPY: Final = frozenset(
    (
        Operation.REGISTER_BROKER,
        Operation.UNREGISTER_BROKER,
        Operation.HEARTBEAT,
        Operation.REGISTER_CONTROLLER,
        Operation.NO_OP,
        Operation.REASSIGN_VOTERS,
        Operation.ROLLOUT_LOCK,
    )
)
"""Reassignments of voters and the lock of a rollout are refused during a whole migration, with reasons of their own
(`quorum_target`, `rollout_lock`)."""
ALLOWED_IN_TRANSACTION: Final = frozenset((Operation.HEARTBEAT, Operation.NO_OP))
"""Heartbeats are answered then, but change nothing (`heartbeats`)."""


def refusal(image: MetadataImage, operation: Operation, *, transaction_open: bool) -> str | None:
    """Why the operation has to wait, or None.

    :param image: the speculative one, which holds an open transaction's records: near the end of the copy it says
        MIGRATION already.
    """
    if transaction_open and operation not in ALLOWED_IN_TRANSACTION:
        return f"No {operation.value} while the metadata is being copied."
    before_copy = image.features.zk_migration_state is ZkMigrationState.PRE_MIGRATION
    if before_copy and operation not in ALLOWED_BEFORE_COPY:
        return f"No {operation.value} before the metadata has been copied from ZooKeeper."
    return None


def check_gate(image: MetadataImage, operation: Operation, *, transaction_open: bool) -> None:
    """Let an operation through, or not.

    :raises RefusedError: NOT_CONTROLLER, upon which brokers and clients try again.
    """
    reason = refusal(image, operation, transaction_open=transaction_open)
    if reason is not None:
        raise RefusedError(ErrorCode.not_controller, reason)
