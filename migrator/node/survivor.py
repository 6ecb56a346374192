"""The directory of a surviving controller when the majority of the voters is lost, and the recovery that is written to
it.

`migrator.raft.recovery` decides, docs/adr/0024-a-lost-majority.md has the reasons. The controller must not run:
`Survivor` holds the directory's lock. The next call of `recover` completes an unfinished recovery.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace

from migrator.clock import wall_ms
from migrator.config.settings import Settings
from migrator.controller.given_up import given_up_records, recovered_of
from migrator.errors import InvariantViolation, OperatorError
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.replay import replay, snapshot_image
from migrator.log.recovery_file import RecoveryEntry
from migrator.node.core import OpenedDirectory
from migrator.observe.journal import Journal
from migrator.raft.messages import EpochOffset
from migrator.raft.recovery import RecoveryPlan, plan_recovery
from migrator.raft.refused import Recovered, merged
from migrator.raft.states import NEVER_ELECTED, ElectionState
from migrator.raft.voter_set import Membership, ReplicaKey, VoterSet
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.control import KRaftVoters, build_control_batch
from migrator.records.metadata import AbortTransactionRecord, MetadataRecord, ZkMigrationState
from migrator.records.uuid import ZERO_UUID
from migrator.rpc.identity import local_user
from migrator.values import value

JOURNAL_KIND = "recovery"
ABORTED = "the majority of the voters was lost"


@value
class SurvivorEvidence:
    """The content of the directory, for the operator's decision and for the journal.

    ``log_end``: epoch of the last record, and the offset after it. ``snapshot``: the newest one; ``after_snapshot``:
    how many records follow it. ``epoch_start``: the offset at which the last record's epoch begins, None when the log
    no longer has it. ``open_transaction``: the offset at which a transaction without end begins. ``is_whole``: the
    directory did not begin empty, or has since had everything that a leader had.
    """

    cluster_id: str
    survivor: ReplicaKey
    membership: Membership
    log_end: EpochOffset
    known_epoch: int
    snapshot: EpochOffset | None
    after_snapshot: int
    epoch_start: int | None
    open_transaction: int | None
    is_whole: bool = True


class Survivor:
    """The directory, opened and locked until `close`."""

    def __init__(self, settings: Settings) -> None:
        """
        :raises OperatorError: the controller runs, or the directory is not formatted, belongs to another node, or is
            damaged.
        """
        self._settings = settings
        self._directory = directory = OpenedDirectory(settings)
        self._log = directory.storage.log
        try:
            self._image, self._open_transaction = self._read_image()
        except InvariantViolation as error:
            directory.close()
            raise OperatorError(
                f"the records of the log do not fit: {error}",
                where=str(self._log.directory),
                remedy="Run the command on another voter that is left, or restore this directory from a copy",
            ) from error
        except BaseException:
            directory.close()
            raise

    def close(self) -> None:
        """Close the files and release the lock."""
        self._directory.close()

    def evidence(self) -> SurvivorEvidence:
        log, identity = self._log, self._directory.identity
        stored = self._directory.election.read() or NEVER_ELECTED
        snapshot = log.store.latest()
        return SurvivorEvidence(
            cluster_id=identity.cluster_id,
            survivor=ReplicaKey(self._settings.node_id, identity.directory_id or ZERO_UUID),
            membership=log.membership(),
            log_end=EpochOffset(log.last_epoch(), log.end_offset()),
            known_epoch=max(stored.epoch, log.last_epoch()),
            snapshot=snapshot,
            after_snapshot=log.end_offset() - (0 if snapshot is None else snapshot.offset),
            epoch_start=log.epoch_start(log.last_epoch()),
            open_transaction=self._open_transaction,
            is_whole=not self._directory.storage.must_fetch_first,
        )

    def unfinished(self) -> RecoveryEntry | None:
        """A recovery whose records are in the log and which is not complete."""
        return next((it for it in self._directory.recoveries if it.counts(self._log) and not it.is_done), None)

    def voters_before(self, entry: RecoveryEntry) -> VoterSet | None:
        """The voters in force before a recovery's records."""
        return self._log.membership_at(entry.offset).voters

    def plan(self, lost: Collection[ReplicaKey]) -> RecoveryPlan:
        """Plan the recovery.

        :raises OperatorError: the quorum cannot be recovered in this way, or need not be.
        """
        found = self.evidence()
        plan = plan_recovery(found.membership, found.survivor, lost, found.known_epoch, found.log_end.offset)
        if self._image.provenance.offset < 0:
            raise OperatorError(
                "the log is empty, so there is nothing to go on from",
                where=str(self._log.directory),
                remedy="Run the command on another voter that is left. If none has a log, format a new quorum",
            )
        if self._image.features.zk_migration_state in {ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION}:
            raise OperatorError(
                "a migration is under way: ZooKeeper and the brokers may hold what this log lacks",
                where=str(self._log.directory),
                remedy="Return the cluster to ZooKeeper with 'migrator rollback', and migrate with a new quorum",
            )
        return plan

    def recover(self, plan: RecoveryPlan) -> Iterator[str]:
        """Write the recovery, step by step; yields what is durable after each step.

        :raises StorageError: the disk fails. The command can be run again.
        """
        batches, entry = self._records(plan)
        kept = [it for it in self._directory.recoveries if it.counts(self._log)]
        self._directory.write_recoveries([*kept, entry])
        yield "the file beside the log"
        self._log.append(batches)
        self._log.sync()
        yield f"the records in the log, offsets {entry.offset} to {entry.end_offset - 1}, epoch {entry.epoch}"
        yield from self.finish(entry)

    def finish(self, entry: RecoveryEntry) -> Iterator[str]:
        """Do the steps after the records; errors as in `recover`."""
        stored = self._directory.election.read() or NEVER_ELECTED
        if stored.epoch < entry.epoch:
            self._directory.election.write(ElectionState(entry.epoch))
        yield "the election state"
        self._note(entry)
        yield "the journal"
        others = [it for it in self._directory.recoveries if it.epoch != entry.epoch]
        self._directory.write_recoveries([*others, replace(entry, is_done=True)])
        yield "the end of the recovery in the file beside the log"

    def _records(self, plan: RecoveryPlan) -> tuple[bytes, RecoveryEntry]:
        """The records of a recovery. The configurations come first, so the voters change only when everything is
        written. An open transaction is aborted here; otherwise its later abort would drop the configurations, too."""
        marker = [] if self._open_transaction is None else [AbortTransactionRecord(ABORTED)]
        end_offset = plan.offset + len(marker) + 3  # two configurations, and the voters
        own = Recovered(frozenset(plan.lost), plan.epoch, end_offset)
        known = merged([self._directory.recovered(), recovered_of(self._image), own])
        records: list[MetadataRecord] = [*marker, *given_up_records(known)]
        now_ms, level = wall_ms(), self._image.features.metadata_version
        data = build_batch(
            encode_all(records, level), timestamp_ms=now_ms, base_offset=plan.offset, leader_epoch=plan.epoch
        )
        voters = build_control_batch(
            [KRaftVoters(plan.after.voters)],
            timestamp_ms=now_ms,
            base_offset=end_offset - 1,
            leader_epoch=plan.epoch,
        )
        survivor = plan.after.key(self._settings.node_id)
        return data + voters, RecoveryEntry(plan.epoch, plan.offset, end_offset, survivor, plan.lost)

    def _note(self, entry: RecoveryEntry) -> None:
        """Put the recovery into the journal, once: an earlier, killed run may have done it."""
        journal = Journal(self._settings.metadata_directory, self._settings.migrator_journal_max_bytes)
        try:
            events = (dict(event.details) for event in journal.after(-1) if event.kind == JOURNAL_KIND)
            if any(details.get("epoch") == str(entry.epoch) for details in events):
                return
            before = self.voters_before(entry)
            journal.append(
                wall_ms(),
                JOURNAL_KIND,
                f"the majority of the voters was lost; the operator has made {entry.survivor} the only voter",
                epoch=str(entry.epoch),
                records=f"{entry.offset} to {entry.end_offset - 1}",
                voters_before=", ".join(str(before.key(it)) for it in sorted(before.ids)) if before else "",
                confirmed_as_wiped=", ".join(map(str, entry.lost)),
                log_end_before=str(entry.offset),
                last_epoch_before=str(self._log.epoch_at(entry.offset - 1)),
                cluster_id=self._directory.identity.cluster_id,
                by=local_user(os.geteuid()),
                address=self._settings.source,
            )
        finally:
            journal.close()

    def _read_image(self) -> tuple[MetadataImage, int | None]:
        """The image at the log's end without an open transaction, and the offset at which that transaction begins."""
        storage, latest = self._directory.storage, self._log.store.latest()
        start = self._log.start_offset() if latest is None else latest.offset
        image = EMPTY_IMAGE
        if latest is not None:
            image = snapshot_image(latest.offset, latest.epoch, storage.snapshot(latest))
        loader = ImageLoader(image)
        for batch in storage.batches_from(min(start, self._log.end_offset())):
            replay(loader, batch)
            loader.commit(loader.end_offset)
        return loader.published, loader.transaction_start
