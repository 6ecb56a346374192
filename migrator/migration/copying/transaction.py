"""Appends the one metadata transaction of a migration, as a worker streams it.

The executor calls `append_copy` for the log of a quorum, and a rehearsal for its own. Kafka's brokers and controllers
see all of it or nothing (KIP-868): after a failure the transaction stays open, until the executor aborts it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from migrator.migration.copying.reading import CopyBatch, CopyEnd
from migrator.migration.copying.worker import Message, WorkerFailedError
from migrator.records.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)

TRANSACTION_NAME = "ZK Migration"
BEGIN: tuple[MetadataRecord, ...] = (BeginTransactionRecord(TRANSACTION_NAME),)


def end_of_copy(copied_as: str | None = None) -> tuple[MetadataRecord, ...]:
    """The batch that completes the copy: ZkMigrationState MIGRATION and the end of the transaction are durable
    together."""
    return ZkMigrationStateRecord(ZkMigrationState.MIGRATION, copied_as=copied_as), EndTransactionRecord()


class TransactionLog(Protocol):
    """The log that a copy is appended to."""

    async def append(self, epoch: int, records: Sequence[MetadataRecord]) -> int:
        """Append one batch; return its last offset. Raises a `MigratorError` when ``epoch`` is over."""

    async def append_encoded(self, epoch: int, batches: bytes) -> int:
        """Append whole batches, which get their offsets from the log. Errors as in `append`."""


async def append_copy(log: TransactionLog, epoch: int, messages: AsyncIterator[Message]) -> CopyEnd:
    """Append what lies between `BEGIN` and `end_of_copy`.

    :raises MigratorError: the worker failed, or the log refused the append; the transaction stays open.
    """
    async for message in messages:
        if isinstance(message, CopyEnd):
            return message
        if isinstance(message, CopyBatch):
            await log.append_encoded(epoch, message.data)
    raise WorkerFailedError("the worker ended without a result")
