"""The disk of one controller as consensus needs it: log, snapshots, election state, and the mark of an empty disk.

`QuorumRunner` calls it to perform the effects of the core; snapshotter and proofs read it. It runs on the event loop,
except `finish_snapshot`. A method whose effect is durable on return says so. A failing disk is a `StorageError`, and
the runner stops the process, except when an append finds no room, or a snapshot cannot be downloaded or read for a
peer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kio.schema.errors import ErrorCode

from migrator.log.empty_mark import EmptyMark, EmptyReason
from migrator.log.errors import StorageError
from migrator.log.metadata_log import MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.log.snapshots import SnapshotReceiver, iter_snapshot
from migrator.raft.effects import AppendLeaderChange, AppendVoters
from migrator.raft.messages import EpochOffset, FetchSnapshotResponse
from migrator.raft.states import ElectionState
from migrator.raft.voter_set import VoterSet
from migrator.records.batch import Batch, iter_batches, restamp
from migrator.records.control import (
    ControlRecord,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    Voter,
    build_control_batch,
    control_records,
)

log = logging.getLogger(__name__)

SOME_BYTES = 256 * 1024


class NodeStorage:
    """Log, snapshots and election state below one metadata directory."""

    def __init__(self, metadata_log: MetadataLog, quorum_state: QuorumStateFile) -> None:
        self.log = metadata_log
        self._quorum_state = quorum_state
        self._empty_mark = EmptyMark(metadata_log.directory)
        self._receiver: SnapshotReceiver | None = None
        self._taken: SnapshotReceiver | None = None
        self._led_by_stock: dict[int, bool] = {}
        """The answer for the latest epoch whose leader is known from the log; it is asked often, and never changes."""

    @property
    def directory(self) -> Path:
        """``__cluster_metadata-0``."""
        return self.log.directory

    def persist_election_state(self, state: ElectionState) -> None:
        """Write the election state; durable on return."""
        self._quorum_state.write(state)

    def mark_if_empty(self) -> bool:
        """Whether the disk began empty, at this start or an earlier one, and has not yet had everything that a leader
        had. The mark of this is durable on return. The file that formatting leaves at offset 0 is no log."""
        if self._empty_mark.read() is None and not self.log.end_offset() and not self.log.snapshots():
            self._empty_mark.write(EmptyReason.UNKNOWN)
        return self.must_fetch_first

    @property
    def must_fetch_first(self) -> bool:
        """Whether the disk has the mark of an empty disk, and the quorum is not known to be new."""
        return self._empty_mark.read() is EmptyReason.UNKNOWN

    def note_new_quorum(self) -> None:
        """Note that the disk began empty together with the quorum; durable on return."""
        self._empty_mark.write(EmptyReason.NEW_QUORUM)
        log.info("The metadata directories of all voters are empty: the quorum is new")

    def unmark(self) -> None:
        """Remove the mark, because the log is whole; durable on return."""
        if self._empty_mark.read() is not None:
            self._empty_mark.remove()
            log.info("The metadata directory holds all that is committed")

    def leader_change(self, effect: AppendLeaderChange, now_ms: int) -> bytes:
        """The control batch that opens a leader's epoch, encoded for the log's end."""
        record = LeaderChange(
            effect.leader_id,
            tuple(Voter(voter) for voter in effect.voters),
            tuple(Voter(voter) for voter in effect.granting_voters),
            led_by_migrator=True,
        )
        begun = effect.bootstrap
        named = [] if begun is None else _about_voters(begun.kraft_version, begun.voters)
        return self._control_batch([record, *named], effect.epoch, now_ms)

    def voters(self, effect: AppendVoters, now_ms: int) -> bytes:
        """The control batch with a changed voter set, encoded for the log's end."""
        return self._control_batch(_about_voters(effect.kraft_version, effect.voters), effect.epoch, now_ms)

    def stamped(self, batches: bytes, epoch: int) -> bytes:
        """Batches of the leader, with offsets from the log's end on."""
        return restamp(batches, self.log.end_offset(), epoch)[0]

    def _control_batch(self, records: Sequence[ControlRecord], epoch: int, now_ms: int) -> bytes:
        return build_control_batch(records, timestamp_ms=now_ms, base_offset=self.log.end_offset(), leader_epoch=epoch)

    def some_batches(self, offset: int) -> Iterator[Batch]:
        """The next batches from the one that holds ``offset`` on, about `SOME_BYTES` of them; none at the log's end."""
        return iter_batches(self.log.read(offset, SOME_BYTES))

    def leader_of(self, epoch: int) -> LeaderChange | None:
        """The leader of an epoch, from the log's first record of that epoch; None when the log does not have it."""
        start = self.log.epoch_start(epoch)
        if start is None:
            return None
        batch = next(iter_batches(self.log.read(start, 1)), None)
        if batch is None or not batch.header.is_control:
            return None
        record, _ = control_records(batch)[0]
        return record if isinstance(record, LeaderChange) else None

    def is_led_by_stock(self, epoch: int) -> bool:
        """Whether one of Kafka's own controllers led in an epoch; False also while that is unknown."""
        if epoch not in self._led_by_stock:
            change = self.leader_of(epoch)
            if change is None:
                return False
            self._led_by_stock = {epoch: not change.led_by_migrator}
        return self._led_by_stock[epoch]

    def batches_from(self, offset: int) -> Iterator[Batch]:
        """Every batch from the one that holds ``offset`` to the log's end."""
        for chunk in self.log.chunks(offset, self.log.end_offset()):
            yield from iter_batches(chunk)

    def snapshot(self, snapshot_id: EpochOffset) -> Iterator[Batch]:
        """Every batch of a snapshot, control batches included."""
        return iter_snapshot(self.log.store.path(snapshot_id))

    def read_snapshot_chunk(self, response: FetchSnapshotResponse, max_bytes: int) -> FetchSnapshotResponse:
        """Complete the response with bytes from its position on, or with an error."""
        try:
            data, size = self.log.store.read(response.snapshot_id, response.position, max_bytes)
        except StorageError as error:
            log.info("A snapshot that a peer asked for cannot be read: %s", error)
            return replace(response, error=ErrorCode.snapshot_not_found)
        if response.position >= size:
            return replace(response, error=ErrorCode.position_out_of_range)
        return replace(response, data=data, size=size)

    def write_snapshot_chunk(self, snapshot_id: EpochOffset, position: int, data: bytes) -> None:
        """Write a part of a downloaded snapshot; position 0 begins it anew."""
        if position == 0:
            self.drop_download()
            self._receiver = SnapshotReceiver(self.directory, snapshot_id)
        if self._receiver is None or self._receiver.snapshot_id != snapshot_id:
            raise StorageError(
                f"no download of snapshot {snapshot_id} is under way",
                where=str(self.directory),
                remedy="Nothing: the snapshot is fetched again from its beginning",
            )
        self._receiver.write(position, data)

    def take_download(self, snapshot_id: EpochOffset) -> SnapshotReceiver | None:
        """End the download of that snapshot, and return it. None when writing a part of it has failed."""
        if self._receiver is None or self._receiver.snapshot_id != snapshot_id:
            return None
        self._taken, self._receiver = self._receiver, None
        return self._taken

    def finish_snapshot(self, receiver: SnapshotReceiver) -> None:
        """Check a downloaded snapshot, make it durable and register it. For any thread."""
        with receiver:
            receiver.finish()
        self.log.store.add(receiver.snapshot_id)

    def drop_download(self) -> None:
        """Drop the parts of an unfinished download."""
        if self._receiver is not None:
            self._receiver.abort()
            self._receiver = None

    def install_snapshot(self, snapshot_id: EpochOffset) -> None:
        """Replace the whole log by a finished snapshot; durable on return."""
        self.log.truncate_fully_to_snapshot(snapshot_id)

    def close(self) -> None:
        """Close all files, that of a taken download among them: a stop may come before a thread begins to finish it."""
        self.drop_download()
        if self._taken is not None:
            self._taken.abort()
        self.log.close()


def _about_voters(kraft_version: int | None, voters: VoterSet | None) -> list[ControlRecord]:
    records: list[ControlRecord] = [] if kraft_version is None else [KRaftVersion(kraft_version)]
    return records if voters is None else [*records, KRaftVoters(voters.voters)]
