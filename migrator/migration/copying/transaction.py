"""The one metadata transaction of a migration, as a worker streams it, into a log: a quorum's, or a rehearsal's."""

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
    """Complete, and nothing but complete, together with this batch."""
    return ZkMigrationStateRecord(ZkMigrationState.MIGRATION, copied_as=copied_as), EndTransactionRecord()


class TransactionLog(Protocol):
    """Where a copy goes."""

    async def append(self, epoch: int, records: Sequence[MetadataRecord]) -> int:
        """Append one batch; gives its last offset. Raises a `MigratorError` when ``epoch`` is over."""

    async def append_encoded(self, epoch: int, batches: bytes) -> int:
        """Append whole batches, which get their offsets from the log; errors likewise."""


async def append_copy(log: TransactionLog, epoch: int, messages: AsyncIterator[Message]) -> CopyEnd:
    """Append what lies between `BEGIN` and `end_of_copy`.

    :raises MigratorError: the worker failed, or the log refused; the transaction is as open as it was.
    """
    async for message in messages:
        if isinstance(message, CopyEnd):
            return message
        if isinstance(message, CopyBatch):
            await log.append_encoded(epoch, message.data)
    raise WorkerFailedError("the worker ended without a result")
