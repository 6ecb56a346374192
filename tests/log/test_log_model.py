"""Random operations, crashes that lose unsynced bytes among them, against a log that is a plain list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from migrator.log.metadata_log import LogLimits, MetadataLog
from migrator.log.retention import Retention
from migrator.log.segment import segment_name
from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import NO_MEMBERSHIP, Membership, VoterSet
from migrator.records.batch import build_batch, iter_batches
from migrator.records.control import (
    ControlRecord,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    VotersRecord,
    build_control_batch,
)
from tests.lanes import seeds
from tests.log.support.builders import batch, voters_of, write_snapshot

STEPS = 60
LIMITS = LogLimits(segment_bytes=600, segment_ms=10**12)


class Harness:
    """A log on disk beside its model: ``batches`` are (first offset, epoch, count), oldest first. ``records`` are those
    about voters, also the ones that only snapshots hold by now."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.bottom = NO_MEMBERSHIP
        if random.random() < 0.5:
            self.bottom = Membership(1, voters_of(*random.sample(range(9), 3)))
            write_snapshot(folder, 0, 0, membership=self.bottom)
        self.records: list[tuple[int, VotersRecord]] = []
        self.opened_at = 0
        self.log = MetadataLog.open(folder, LIMITS)
        self.batches: list[tuple[int, int, int]] = []
        self.start = 0
        self.base = EpochOffset(0, 0)
        self.snapshots: list[EpochOffset] = []
        self.durable = 0
        self.epoch = 1

    @property
    def end(self) -> int:
        return self.batches[-1][0] + self.batches[-1][2] if self.batches else self.base.offset

    def append(self) -> None:
        self.epoch += self.random.random() < 0.2
        count = self.random.randint(1, 5)
        data = batch(self.end, self.epoch, count, size=self.random.choice([0, 40]))
        self.batches.append((self.end, self.epoch, count))
        assert self.log.append(data) == self.end

    def change_voters(self) -> None:
        changes: list[VotersRecord] = [KRaftVersion(1), KRaftVoters(voters_of(*self.random.sample(range(9), 3)).voters)]
        if self.membership_at(self.end).kraft_version == 1:
            changes = self.random.choice([changes, changes[1:]])
        control: list[ControlRecord] = [LeaderChange(1, (), ()), *changes]
        first, count = self.end, len(control)
        data = build_control_batch(control, timestamp_ms=1, base_offset=first, leader_epoch=self.epoch)
        self.batches.append((first, self.epoch, count))
        self.records += [(first + 1 + index, change) for index, change in enumerate(changes)]
        assert self.log.append(data) == self.end

    def membership_at(self, end_offset: int) -> Membership:
        """From the first record on, one after the other."""
        found = self.bottom
        for offset, record in self.records:
            if offset < end_offset:
                if isinstance(record, KRaftVersion):
                    found = replace(found, kraft_version=record.k_raft_version)
                else:
                    found = replace(found, voters=VoterSet.of(record.voters), offset=offset)
        return found if found.voters is None else replace(found, offset=max(found.offset, self.opened_at - 1))

    def sync(self) -> None:
        self.durable = self.log.sync()
        assert self.durable == self.end

    def truncate(self) -> None:
        floor = max([self.start, *(snapshot_id.offset for snapshot_id in self.snapshots)])
        offset = self.random.randint(floor, self.end)
        self.batches = [entry for entry in self.batches if entry[0] + entry[2] <= offset]
        self._cut_records()
        told = self.log.batch_start(offset)
        self.log.truncate_to(offset)
        assert self.end == self.log.end_offset() == told
        self.durable = min(self.durable, self.end)

    def snapshot(self) -> None:
        ends = [(first + count, epoch) for first, epoch, count in self.batches]
        newer = [end for end in ends if not self.snapshots or end[0] > self.snapshots[-1].offset]
        if newer:
            offset, epoch = self.random.choice(newer)
            self.sync()
            membership = self.log.membership_at(offset)
            self.snapshots.append(write_snapshot(self.folder, offset, epoch, membership=membership))
            self.log.store.add(self.snapshots[-1])

    def install(self) -> None:
        self.epoch += 1
        offset = self.end + self.random.randint(1, 9)
        voters = voters_of(*self.random.sample(range(9), 3))
        version = self.random.randint(0, 1)
        self.base = write_snapshot(self.folder, offset, self.epoch, membership=Membership(version, voters))
        self.bottom, self.records, self.opened_at = NO_MEMBERSHIP, [], offset
        if version:
            self.records = [(offset - 2, KRaftVersion(1)), (offset - 1, KRaftVoters(voters.voters))]
        self.log.store.add(self.base)
        self.log.truncate_fully_to_snapshot(self.base)
        self.start, self.durable = self.base.offset, self.base.offset
        self.batches, self.snapshots = [], [self.base]

    def clean(self) -> None:
        list(self.log.clean(Retention(max_bytes=1, max_ms=-1), now_ms=10**6))
        self.log.remove_deleted(now_ms=10**7)
        if len(self.snapshots) > 1:
            self.snapshots = self.snapshots[-1:]
            self.start = self.snapshots[0].offset

    def reopen(self) -> None:
        self.log.close()
        self._open(cut=0)

    def crash(self) -> None:
        """Only a part of what was not synced reaches the disk, which may end within a batch."""
        segments = self.log._segments
        last = segments[-1].path
        for segment in segments:
            segment.close()
        safe = sum(len(one.data) for one in iter_batches(last.read_bytes()) if one.header.next_offset <= self.durable)
        size = self.random.randint(safe, last.stat().st_size)
        with last.open("r+b") as file:
            file.truncate(size)
        whole = [one.header for one in iter_batches(last.read_bytes()[:size], partial_tail=True)]
        base = int(last.name.split(".")[0])
        end = whole[-1].next_offset if whole else base
        self.batches = [entry for entry in self.batches if entry[0] + entry[2] <= end]
        self._cut_records()
        self._open(cut=size - sum(header.size for header in whole))

    def _cut_records(self) -> None:
        self.records = [entry for entry in self.records if entry[0] < self.end]

    def _open(self, cut: int) -> None:
        self.opened_at = self.snapshots[-1].offset if self.snapshots else 0
        self.log = MetadataLog.open(self.folder, LIMITS)
        assert self.log.recovery.cut_bytes == cut
        self.start = int(min(path.name for path in self.log.directory.glob("*.log")).split(".")[0])
        self.durable = self.end
        self.epoch = max(self.epoch, self.log.last_epoch())

    def check(self) -> None:
        log = self.log
        assert (log.start_offset(), log.end_offset(), log.snapshots()) == (self.start, self.end, self.snapshots)
        assert log.last_epoch() == (self.batches[-1][1] if self.batches else self.base.epoch)
        epochs = {offset: epoch for first, epoch, count in self.batches for offset in range(first, first + count)}
        for offset in range(self.start, self.end):
            assert log.epoch_at(offset) == epochs[offset]
        read = [one.header for data in log.chunks(self.start, self.end, 300) for one in iter_batches(data)]
        kept = [entry for entry in self.batches if entry[0] + entry[2] > self.start]
        assert [(header.base_offset, header.leader_epoch, header.count) for header in read] == kept
        assert log.membership() == self.membership_at(self.end)
        assert log.membership() is log.membership()
        for offset in range(max([self.start, *(snapshot_id.offset for snapshot_id in self.snapshots)]), self.end):
            assert log.membership_at(offset) == self.membership_at(offset)
        for epoch in {*epochs.values()}:
            last = max(offset for offset in epochs if epochs[offset] == epoch)
            if last >= self.start:
                assert log.end_of_epoch(epoch) == EpochOffset(epoch, last + 1)


@pytest.mark.parametrize("numbers", seeds(60, 1000))
def test_a_log_is_a_list(tmp_path: Path, numbers: range) -> None:
    for seed in numbers:
        try_log(tmp_path / str(seed), Random(seed))


def try_log(folder: Path, random: Random) -> None:
    harness = Harness(folder, random)
    actions = [harness.append] * 8 + [harness.sync, harness.truncate, harness.snapshot, harness.reopen, harness.crash]
    actions += [harness.change_voters] * 2
    rare = [harness.install, harness.clean]
    for _ in range(STEPS):
        random.choice(rare if random.random() < 0.05 else actions)()
        harness.check()
    harness.log.close()


def test_syncs_in_another_thread_never_claim_too_much(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path, LogLimits(segment_bytes=3000))
    claims: list[tuple[int, int]] = []
    running = True

    def sync_all_the_time() -> None:
        while running:
            before = log.end_offset()
            claims.append((before, log.sync()))

    thread = Thread(target=sync_all_the_time)
    thread.start()
    try:
        for offset in range(1500):
            log.append(build_batch([b"x" * 50], timestamp_ms=0, base_offset=offset, leader_epoch=1 + offset // 100))
    finally:
        running = False
        thread.join()
    assert all(before <= claimed <= 1500 for before, claimed in claims)
    assert [claimed for _, claimed in claims] == sorted(claimed for _, claimed in claims)
    assert (tmp_path / "__cluster_metadata-0" / segment_name(0)).exists()
    log.close()
    again = MetadataLog.open(tmp_path)
    assert again.end_offset() == 1500
    again.close()
