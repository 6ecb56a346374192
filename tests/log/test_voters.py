"""The voters in the files of a directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from migrator.log.errors import StorageError
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.log.quorum_state import FILE_NAME as QUORUM_STATE
from migrator.log.quorum_state import QuorumStateFile, decode_quorum_state
from migrator.log.snapshots import SnapshotReceiver, SnapshotStore, iter_snapshot
from migrator.raft.messages import EpochOffset
from migrator.raft.states import ElectionState
from migrator.raft.voter_set import NO_MEMBERSHIP, Membership, VoterSet
from migrator.records.batch import build_batch
from migrator.records.contents import check_contents
from migrator.records.control import (
    ControlRecord,
    DynamicVoter,
    KRaftVersion,
    KRaftVersionRange,
    KRaftVoters,
    LeaderChange,
    SnapshotHeader,
    VoterEndpoint,
    build_control_batch,
    control_records,
    encode_control,
)
from migrator.records.errors import CorruptRecordsError
from tests.log.support.builders import batch, voters_of, write_snapshot
from tests.log.support.golden import DYNAMIC, STATIC

FORMATTED = Membership(1, voters_of(1, 2, 3))


def twice(voter_id: int) -> KRaftVoters:
    return KRaftVoters(voters_of(voter_id).voters * 2)


BAD: list[list[ControlRecord]] = [
    [KRaftVersion(1), twice(4)],
    [KRaftVoters(())],
    [KRaftVoters((DynamicVoter(-1, voters_of(1).voters[0].voter_directory_id, (), KRaftVersionRange(0, 1)),))],
    [KRaftVersion(2)],
    [KRaftVersion(-1)],
]


def control(offset: int, *records: ControlRecord, epoch: int = 1) -> bytes:
    return build_control_batch(records, timestamp_ms=1, base_offset=offset, leader_epoch=epoch)


def test_stock_directories_say_who_votes() -> None:
    """As the stock tool prints the same files; the snapshot of a dynamic quorum carries the voters."""
    directory = DYNAMIC / DIRECTORY_NAME
    store = SnapshotStore(directory)
    membership = store.membership(store.ids()[0])
    assert membership.kraft_version == 1
    assert membership.offset == store.ids()[0].offset - 1
    assert membership.voters is not None
    (voter,) = membership.voters.voters
    assert (voter.voter_id, voter.k_raft_version_feature) == (7, KRaftVersionRange(0, 1))
    assert [endpoint.name for endpoint in voter.endpoints] == ["CONTROLLER"]
    static = SnapshotStore(STATIC / DIRECTORY_NAME)
    assert {static.membership(snapshot_id) for snapshot_id in static.ids()} == {NO_MEMBERSHIP}


@pytest.mark.parametrize("without", ["", "*.checkpoint"])
def test_a_stock_log_opens_with_its_voters(tmp_path: Path, without: str) -> None:
    """From the snapshot, and without one from the log alone."""
    copy = tmp_path / "data"
    shutil.copytree(DYNAMIC, copy)
    for path in (copy / DIRECTORY_NAME).glob(without) if without else ():
        path.unlink()
    log = MetadataLog.open(copy)
    membership = log.membership()
    log.close()
    assert (membership.kraft_version, membership.offset >= 0) == (1, True)
    assert membership.voters is not None
    assert membership.voters.ids == {7}


def test_the_formatted_voters_count_until_log_or_snapshot_name_others(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 0, 0, membership=FORMATTED)
    log = MetadataLog.open(tmp_path)
    assert (log.membership(), log.snapshots()) == (FORMATTED, [])
    log.append(control(0, LeaderChange(1, (), ()), KRaftVersion(1), KRaftVoters(voters_of(1, 2).voters)))
    assert log.membership() == Membership(1, voters_of(1, 2), 2)
    assert log.membership_at(2) == FORMATTED
    log.truncate_to(1)
    assert (log.end_offset(), log.membership()) == (0, FORMATTED)
    log.close()


def test_a_snapshot_takes_the_place_of_the_formatted_voters(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 0, 0, membership=FORMATTED)
    write_snapshot(tmp_path, 9, 2)
    log = MetadataLog.open(tmp_path)
    assert log.membership() == NO_MEMBERSHIP
    log.close()


def test_an_installed_snapshot_replaces_what_the_log_said(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path)
    log.append(control(0, KRaftVersion(1), KRaftVoters(voters_of(1, 2).voters)))
    snapshot_id = write_snapshot(tmp_path, 40, 3, membership=Membership(1, voters_of(4, 5, 6)))
    log.store.add(snapshot_id)
    log.truncate_fully_to_snapshot(snapshot_id)
    assert log.membership() == Membership(1, voters_of(4, 5, 6), 39)
    log.append(batch(40, 3))
    assert log.membership().offset == 39
    log.close()


def test_a_snapshot_of_kraft_version_1_has_one_header_batch(tmp_path: Path) -> None:
    """Laid out as stock's: header, version and voters in one batch, the footer in another."""
    snapshot_id = write_snapshot(tmp_path, 9, 2, membership=FORMATTED)
    head, *data, foot = iter_snapshot(tmp_path / DIRECTORY_NAME / f"{9:020d}-{2:010d}.checkpoint")
    assert [type(record) for record, _ in control_records(head)] == [SnapshotHeader, KRaftVersion, KRaftVoters]
    assert [one.header.base_offset for one in (*data, foot)] == [3, 6]
    assert SnapshotStore(tmp_path / DIRECTORY_NAME).membership(snapshot_id).voters == FORMATTED.voters


@pytest.mark.parametrize("records", BAD)
def test_what_no_quorum_could_go_by_is_never_appended(tmp_path: Path, records: list[ControlRecord]) -> None:
    log = MetadataLog.open(tmp_path)
    data = batch(0) + control(1, *records)
    with pytest.raises(CorruptRecordsError):
        check_contents(data)
    with pytest.raises(CorruptRecordsError):
        log.append(data)
    assert (log.end_offset(), log.membership()) == (0, NO_MEMBERSHIP)
    log.append(batch(0))
    log.close()


def test_a_voters_record_that_does_not_decode_is_never_appended(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path)
    key, content = encode_control(KRaftVoters(voters_of(1).voters))
    with pytest.raises(CorruptRecordsError, match="does not decode"):
        log.append(build_batch([content[:-4]], timestamp_ms=1, control_keys=[key]))
    assert log.end_offset() == 0
    log.close()


@pytest.mark.parametrize("records", BAD)
def test_what_no_quorum_could_go_by_is_not_cut_at_boot(tmp_path: Path, records: list[ControlRecord]) -> None:
    """The checksum holds: it is no torn end, and who cut it would drop what was acknowledged."""
    log = MetadataLog.open(tmp_path)
    log.append(batch(0))
    log.close()
    segment = next(log.directory.glob("*.log"))
    segment.write_bytes(segment.read_bytes() + control(1, *records))
    before = segment.read_bytes()
    with pytest.raises(StorageError, match="does not say who votes"):
        MetadataLog.open(tmp_path)
    assert segment.read_bytes() == before


@pytest.mark.parametrize("records", BAD)
def test_a_snapshot_that_no_quorum_could_go_by_is_refused(tmp_path: Path, records: list[ControlRecord]) -> None:
    header = control(0, SnapshotHeader(0), *records)
    whole = write_snapshot(tmp_path, 9, 1)
    path = SnapshotStore(tmp_path / DIRECTORY_NAME).path(whole)
    head, *_ = iter_snapshot(path)
    rest = path.read_bytes()[head.header.size :]
    with SnapshotReceiver(tmp_path, EpochOffset(1, 9)) as receiver:
        receiver.write(0, header)
        with pytest.raises(StorageError, match=r"voters|kraft\.version"):
            receiver.finish()
    path.chmod(0o600)
    path.write_bytes(header + rest)
    with pytest.raises(StorageError, match="the snapshot is damaged"):
        MetadataLog.open(tmp_path)


def test_endpoints_and_order_survive(tmp_path: Path) -> None:
    voters = VoterSet.of(
        [
            DynamicVoter(
                300,
                voters_of(1).voters[0].voter_directory_id,
                (VoterEndpoint("SSL", "h", 1), VoterEndpoint("PLAIN", "::1", 65535)),
                KRaftVersionRange(0, 1),
            ),
            *voters_of(2).voters,
        ]
    )
    write_snapshot(tmp_path, 5, 1, membership=Membership(1, voters))
    log = MetadataLog.open(tmp_path)
    assert log.membership() == Membership(1, voters, 4)
    log.close()


def test_the_election_state_follows_the_log_at_the_next_write(tmp_path: Path) -> None:
    """After the change to kraft.version 1 the file stays as it is until then; when the record that made it is cut, the
    node starts all the same."""
    log = MetadataLog.open(tmp_path)
    log.append(batch(0))
    file = QuorumStateFile(log.directory, [1, 2], log)
    path = log.directory / QUORUM_STATE
    file.write(ElectionState(1, leader_id=1))
    log.append(control(1, KRaftVersion(1), KRaftVoters(voters_of(1, 2).voters)))
    assert decode_quorum_state(path.read_bytes()) == (ElectionState(1, leader_id=1), 0)
    vote = ElectionState(2, voted_id=2, voted_directory_id=voters_of(2).voters[0].voter_directory_id)
    file.write(vote)
    assert decode_quorum_state(path.read_bytes()) == (vote, 1)
    log.truncate_to(1)
    assert file.read() == vote
    file.write(ElectionState(3))
    assert decode_quorum_state(path.read_bytes()) == (ElectionState(3), 0)
    log.close()
