"""Proves with this node's log that the offset in ``/migration`` belongs to it, and tells which records the proof needs.

The guards of a takeover ask for `evidence`; `runtime` asks `kept_from` for the snapshotter which records it must not
delete. The proof is the checksum of the batch that holds the offset: another quorum's log has another one. Stock
controllers note no checksum; then the log has to name that stock controller as the leader of the mark's epoch. See
docs/adr/0011-whose-mark-it-is.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from migrator.errors import MigratorError
from migrator.log.errors import StorageError
from migrator.migration.machine.guards import MarkEvidence
from migrator.node.quorum.storage import NodeStorage
from migrator.raft.messages import EpochOffset
from migrator.wire.voters import VoterAnswer
from migrator.zookeeper.leadership import ClaimView
from migrator.zookeeper.znodes.migration import MigrationState

log = logging.getLogger(__name__)


class MarkProofs:
    """Finds proofs of the mark in ``/migration``; one object per node.

    :param ask: asks one voter what it says of itself; None when it does not answer.
    """

    def __init__(self, storage: NodeStorage, node_id: int, ask: Callable[[int], Awaitable[VoterAnswer | None]]) -> None:
        self._storage = storage
        self._node_id = node_id
        self._ask = ask
        self._mark: MigrationState | None = None

    def crc_at(self, offset: int) -> int | None:
        """The checksum of the batch at that offset (see `CrcAt`). Reads the index and some headers."""
        try:
            header = self._storage.log.header_at(offset)
        except StorageError as error:
            log.warning("/migration is not updated: %s", error)
            return None
        return None if header is None else header.crc

    async def evidence(self, mark: MigrationState) -> MarkEvidence:
        """The log's evidence about a mark that says copied, and about the controller that wrote it.

        :raises StorageError: the disk fails.
        """
        metadata_log = self._storage.log
        start = metadata_log.start_offset()
        if mark.kraft_metadata_offset < start:
            first = metadata_log.epoch_at(start)
            newest = metadata_log.last_epoch() if first is None else first
            return MarkEvidence(compacted=mark.kraft_metadata_epoch <= newest)
        header = metadata_log.header_at(mark.kraft_metadata_offset)
        if header is None:
            return MarkEvidence()
        by_stock = mark.batch_crc is None and await self._wrote_as_stock(mark)
        return MarkEvidence(header.leader_epoch, header.crc, stock_wrote=by_stock)

    async def kept_from(self, view: Callable[[], ClaimView], base: EpochOffset) -> int:
        """The offset from which on the log has to be kept, so that a leader can prove the mark in ``/migration``.

        :param view: reads ZooKeeper, in a thread. While ZooKeeper does not answer, the mark that was read last counts.
        :param base: the end of the copy, used as long as no mark was read.
        """
        try:
            self._mark = (await asyncio.to_thread(view)).migration
        except MigratorError as error:
            log.debug("It is unknown which controller wrote /migration: %s", error)
        if self._mark is None or not self._mark.copied:
            return max(0, base.offset)
        return self.needed_from(self._mark)

    def needed_from(self, mark: MigrationState) -> int:
        """The offset from which on the log has to be kept for `evidence`."""
        if mark.batch_crc is not None:
            return mark.kraft_metadata_offset
        elected = self._storage.log.epoch_start(mark.kraft_controller_epoch)
        return mark.kraft_metadata_offset if elected is None else min(elected, mark.kraft_metadata_offset)

    async def _wrote_as_stock(self, mark: MigrationState) -> bool:
        """Whether the log shows that a stock controller led, with the id and in the epoch that the mark names.

        Old versions of this program left no trace in the log. So a voter that runs this program now is not taken for a
        stock controller of that time.
        """
        change = self._storage.leader_of(mark.kraft_controller_epoch)
        if change is None or change.led_by_migrator or change.leader_id != mark.kraft_controller_id:
            return False
        if change.leader_id == self._node_id:
            return False
        answer = await self._ask(change.leader_id)
        return answer is None or not answer.is_ours
