"""The metadata log of a migration without its quorum: one directory, one epoch, everything committed.

A rehearsal copies into a `LocalLog` with the code of the real copy, and writes a snapshot of it. It formats its own
directory and touches no other. No other process takes part, so every record counts as committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import Self

from migrator.clock import wall_ms
from migrator.controller.activation import bootstrap_records
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.image.replay import replay
from migrator.log import bootstrap
from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.image_snapshot import write_snapshot
from migrator.log.metadata_log import MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.raft.messages import EpochOffset
from migrator.raft.states import ElectionState
from migrator.records.batch import build_batch, iter_batches, restamp
from migrator.records.codec import encode_all
from migrator.records.control import LeaderChange, Voter, build_control_batch
from migrator.records.metadata import MetadataRecord
from migrator.records.versions import MetadataVersion

EPOCH = 1


class LocalLog:
    """A `TransactionLog`, and the image of the records in it."""

    def __init__(self, log: MetadataLog, level: int) -> None:
        self._log = log
        self._level = level
        self._loader = ImageLoader()

    @classmethod
    def create(cls, directory: Path, cluster_id: str, node_id: int, version: MetadataVersion) -> Self:
        """Format the directory as a migrating controller's, elect its node, and append the first records.

        :raises OperatorError: the disk refuses, or the version is too old for a migration.
        """
        plan = FormatPlan((directory,), directory, cluster_id, node_id, version)
        records = bootstrap_records(
            bootstrap.bootstrap_records(version), migration_enabled=True, transaction_open=False
        )
        format_directories(plan, random=SystemRandom(), now_ms=wall_ms())
        log = cls(MetadataLog.open(directory), version.level)
        QuorumStateFile(log.directory, [node_id]).write(ElectionState(EPOCH, leader_id=node_id))
        leader = LeaderChange(node_id, (Voter(node_id),), (Voter(node_id),))
        log._log.append(build_control_batch([leader], timestamp_ms=wall_ms(), base_offset=0, leader_epoch=EPOCH))
        log._add(log._encoded(records))
        return log

    @property
    def directory(self) -> Path:
        """``__cluster_metadata-0``."""
        return self._log.directory

    @property
    def end(self) -> EpochOffset:
        """The offset and epoch of the last record."""
        return EpochOffset(EPOCH, self._log.end_offset() - 1)

    async def append(self, epoch: int, records: Sequence[MetadataRecord]) -> int:
        """Append one batch; returns its last offset (see `TransactionLog`).

        :raises StorageError: the disk refuses.
        """
        del epoch  # this log has one epoch only
        return self._add(self._encoded(records))

    async def append_encoded(self, epoch: int, batches: bytes) -> int:
        """Append complete batches from a worker (see `TransactionLog`).

        :raises StorageError: the disk refuses.
        """
        return self._add(restamp(batches, self._log.end_offset(), epoch)[0])

    def commit(self) -> MetadataImage:
        """Make everything durable; returns the image of it."""
        self._log.sync()
        self._loader.commit(self._log.end_offset())
        return self._loader.published

    async def write_snapshot(self, image: MetadataImage) -> None:
        await write_snapshot(self.directory, image)

    def close(self) -> None:
        self._log.close()

    def _encoded(self, records: Sequence[MetadataRecord]) -> bytes:
        values = encode_all(records, self._level)
        return build_batch(values, timestamp_ms=wall_ms(), base_offset=self._log.end_offset(), leader_epoch=EPOCH)

    def _add(self, data: bytes) -> int:
        end_offset = self._log.append(data)
        for batch in iter_batches(data):
            replay(self._loader, batch)
        return end_offset - 1
