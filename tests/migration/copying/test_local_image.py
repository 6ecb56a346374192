"""The image at an offset, beside an owner that goes on writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import MigratorError, OperatorError
from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, Provenance
from migrator.migration.copying.local_image import bytes_to_load, load_image
from migrator.migration.copying.worker import LoadAhead, loaded_ahead
from migrator.raft.messages import EpochOffset
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    TopicRecord,
)
from migrator.records.uuid import Uuid

LEVEL = 21
RECORDS: list[list[MetadataRecord]] = [
    [FeatureLevelRecord("metadata.version", LEVEL)],
    [BeginTransactionRecord("copy"), TopicRecord("a", Uuid(bytes(15) + b"\xf1"))],
    [TopicRecord("b", Uuid(bytes(15) + b"\xf2")), EndTransactionRecord()],
    [TopicRecord("c", Uuid(bytes(15) + b"\xf3"))],
]


def write(directory: Path, *, torn: bool = False) -> None:
    """Two segments, the second one being written."""
    offset, batches = 0, []
    for records in RECORDS:
        values = encode_all(records, LEVEL)
        batches.append((offset, build_batch(values, timestamp_ms=1, base_offset=offset, leader_epoch=3)))
        offset += len(values)
    (directory / f"{0:020d}.log").write_bytes(b"".join(batch for _, batch in batches[:2]))
    tail = batches[3][1][:-5] if torn else batches[3][1]
    (directory / f"{batches[2][0]:020d}.log").write_bytes(batches[2][1] + tail)


@pytest.mark.parametrize("torn", [True, False])
def test_it_ends_exactly_where_asked_whatever_follows(tmp_path: Path, torn: bool) -> None:
    write(tmp_path, torn=torn)
    builder = ImageBuilder(EMPTY_IMAGE)
    for record in (RECORDS[0][0], RECORDS[1][1], RECORDS[2][0]):
        builder.replay(record)
    assert load_image(tmp_path, EpochOffset(3, 4)) == builder.build(Provenance(4, 3, 1))[0]


def test_what_was_loaded_in_advance_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path)
    order = LoadAhead(tmp_path, EpochOffset(3, 0))
    known = loaded_ahead(LoadAhead(tmp_path, EpochOffset(3, 4)), loaded_ahead(order, EMPTY_IMAGE))
    later = EpochOffset(3, 5)
    whole, expected = bytes_to_load(tmp_path, later), load_image(tmp_path, later)
    first = tmp_path / f"{0:020d}.log"
    content = first.read_bytes()
    first.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert load_image(tmp_path, later, known=known) == expected
    assert bytes_to_load(tmp_path, later, known) < whole
    with pytest.raises(CorruptRecordsError):
        load_image(tmp_path, later, known=loaded_ahead(order, EMPTY_IMAGE))
    first.unlink()
    second = tmp_path / f"{3:020d}.log"
    second.rename(tmp_path / f"{6:020d}.log")
    with pytest.raises(MigratorError):
        load_image(tmp_path, EpochOffset(3, 9), known=known)


def test_an_offset_within_a_transaction_or_beyond_the_log_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(OperatorError, match="does not hold a complete image at offset 2, only at 0"):
        load_image(tmp_path, EpochOffset(3, 2))
    with pytest.raises(OperatorError, match="at offset 9, only at 5"):
        load_image(tmp_path, EpochOffset(3, 9))
