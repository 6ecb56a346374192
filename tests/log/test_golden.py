"""Every file that stock Kafka wrote is read, and written again to the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from migrator.errors import OperatorError
from migrator.log.bootstrap import bootstrap_records, read_bootstrap, write_bootstrap
from migrator.log.files import iter_file_batches
from migrator.log.formatting import open_formatted
from migrator.log.meta_properties import decode_meta_properties, encode_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.log.quorum_state import QuorumStateFile, decode_quorum_state, encode_quorum_state
from migrator.log.recovery import Recovery
from migrator.log.snapshots import SnapshotReceiver, SnapshotWriter, iter_snapshot, snapshot_id_of
from migrator.log.synced_end import FILE_NAME
from migrator.raft.messages import EpochOffset
from migrator.records.batch import Batch, build_batch
from migrator.records.codec import decode, encode
from migrator.records.control import SnapshotHeader, control_records, encode_control
from migrator.records.versions import parse_version
from tests.log.support.golden import BATCH_FILES, DYNAMIC, STATIC, STOCK, name_of


def rewritten(batch: Batch) -> bytes:
    """The batch made anew from its decoded records."""
    header = batch.header
    keys: tuple[bytes, ...] = ()
    if header.is_control:
        keys, values = zip(*(encode_control(*decoded) for decoded in control_records(batch)), strict=True)
    else:
        values = tuple(encode(*decode(raw.value)) for raw in batch.raw_records())
    return build_batch(
        values,
        timestamp_ms=header.base_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        control_keys=keys,
    )


@pytest.mark.parametrize("path", BATCH_FILES, ids=name_of)
def test_decoding_and_encoding_gives_the_same_bytes(path: Path) -> None:
    assert b"".join(rewritten(batch) for _, batch in iter_file_batches(path)) == path.read_bytes()


def test_there_is_something_of_everything() -> None:
    assert len(BATCH_FILES) >= 10
    kinds = {type(record) for path in BATCH_FILES for _, batch in iter_file_batches(path) if not batch.header.is_control
             for record, _ in batch.records()}  # fmt: skip
    assert len(kinds) >= 15


@pytest.mark.parametrize("path", [path for path in BATCH_FILES if path.parent.name == DIRECTORY_NAME], ids=name_of)
def test_our_snapshot_writer_writes_what_stock_wrote(path: Path, tmp_path: Path) -> None:
    snapshot_id = snapshot_id_of(path)
    if snapshot_id is None or path.is_relative_to(DYNAMIC):
        return  # a segment, or a snapshot of kraft.version 1, which carries the voters
    header, *data, footer = iter_snapshot(path)
    ((first, _),) = control_records(header)
    assert isinstance(first, SnapshotHeader)
    stamp = first.last_contained_log_timestamp
    now = header.header.base_timestamp
    with SnapshotWriter(tmp_path, snapshot_id, last_contained_log_timestamp_ms=stamp, now_ms=now) as writer:
        for batch in data:
            writer.append([raw.value for raw in batch.raw_records()], now_ms=batch.header.base_timestamp)
        written = writer.freeze(now_ms=footer.header.base_timestamp)
    assert (written.name, written.read_bytes()) == (path.name, path.read_bytes())
    assert written.stat().st_mode & 0o777 == 0o400


@pytest.mark.parametrize("path", sorted(STOCK.rglob("*-*.checkpoint")), ids=name_of)
def test_a_stock_snapshot_is_received_in_parts(path: Path, tmp_path: Path) -> None:
    content, snapshot_id = path.read_bytes(), snapshot_id_of(path)
    assert snapshot_id is not None
    with SnapshotReceiver(tmp_path, snapshot_id) as receiver:
        for position in range(0, len(content), 100):
            receiver.write(position, content[position : position + 100])
        received = receiver.finish()
    assert (received.name, received.read_bytes()) == (path.name, content)


@pytest.mark.parametrize("source", [STATIC, DYNAMIC], ids=name_of)
def test_a_stock_directory_opens_as_it_is(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(source, copy)
    log = MetadataLog.open(copy)
    assert log.recovery == Recovery()
    assert (log.start_offset(), log.last_epoch()) == (0, 3)
    assert len(log.snapshots()) >= 2
    assert all(snapshot_id.epoch > 0 for snapshot_id in log.snapshots())
    log.close()
    before = {path.name: path.read_bytes() for path in (source / DIRECTORY_NAME).iterdir()}
    (copy / DIRECTORY_NAME / FILE_NAME).unlink()
    after = {path.name: path.read_bytes() for path in (copy / DIRECTORY_NAME).iterdir()}
    assert after == before


def test_quorum_state_of_both_versions() -> None:
    for source, voters in ((STATIC, [7]), (DYNAMIC, None)):
        content = (source / DIRECTORY_NAME / "quorum-state").read_bytes()
        state, version = decode_quorum_state(content)
        assert (version, state.epoch, state.leader_id, state.voted_id) == (int(voters is None), 3, 7, None)
        assert encode_quorum_state(state, voters) == content


def test_a_directory_with_voters_in_its_log_is_taken_into_use(tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(DYNAMIC, copy)
    _, lock = open_formatted(copy, 7, random=Random(1))
    log = MetadataLog.open(copy)
    file = QuorumStateFile(log.directory, [], log)
    state = file.read()
    assert state is not None
    file.write(state)
    assert (log.directory / "quorum-state").read_bytes() == (DYNAMIC / DIRECTORY_NAME / "quorum-state").read_bytes()
    log.close()
    lock.close()


@pytest.mark.parametrize("voters", [[7], []])
def test_a_vote_without_the_log_that_names_the_voters_is_refused(tmp_path: Path, voters: list[int]) -> None:
    """The configuration alone would make another quorum of it. A new observer has no voters, and reads on."""
    log = MetadataLog.open(tmp_path)
    shutil.copy(DYNAMIC / DIRECTORY_NAME / "quorum-state", log.directory)
    file = QuorumStateFile(log.directory, voters, log)
    if voters:
        with pytest.raises(OperatorError, match=r"kraft\.version 1.*the log is empty"):
            file.read()
    else:
        assert file.read() is not None
    log.close()


@pytest.mark.parametrize("source", [STATIC, DYNAMIC], ids=name_of)
def test_meta_properties_but_for_the_date(source: Path) -> None:
    content = (source / "meta.properties").read_text()
    properties = decode_meta_properties(content)
    assert (properties.cluster_id, properties.node_id) == ("Z29sZGVuLWNsdXN0ZXItMQ", 7)
    lines = [line for line in content.splitlines(keepends=True) if not line.startswith("#")]
    assert encode_meta_properties(properties).decode() == "".join(lines)


def test_bootstrap_checkpoint(tmp_path: Path) -> None:
    records = bootstrap_records(parse_version("3.9-IV0"))
    assert read_bootstrap(STATIC) == records
    stamps = [batch.header.base_timestamp for _, batch in iter_file_batches(STATIC / "bootstrap.checkpoint")]
    written = write_bootstrap(tmp_path, records, now_ms=stamps[0])
    ours, stock = (
        [batch for _, batch in iter_file_batches(path)] for path in (written, STATIC / "bootstrap.checkpoint")
    )
    assert [batch.raw_records() for batch in ours] == [batch.raw_records() for batch in stock]
    assert [batch.header.attributes for batch in ours] == [batch.header.attributes for batch in stock]
    assert read_bootstrap(tmp_path) == records
    assert read_bootstrap(tmp_path / "elsewhere") is None
    assert EpochOffset(0, 0) not in [snapshot_id_of(path) for path in tmp_path.iterdir()]
