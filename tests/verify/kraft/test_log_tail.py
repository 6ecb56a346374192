"""Following a log that grows, is cut, or is compacted away, by what reading it as a whole gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.image.model import Changes, MetadataImage
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.records.batch import Batch, build_batch, iter_batches, restamp
from migrator.records.codec import encode_all
from migrator.records.metadata import NoOpRecord
from migrator.verify.kraft.files import read_image
from migrator.verify.kraft.log_tail import LogTail
from tests.golden.stock import STOCK_391


def batches() -> list[Batch]:
    return list(iter_batches(STOCK_391.log.read_bytes()))


def written(directory: Path, some: list[Batch], base: int = 0) -> Path:
    segment = directory / DIRECTORY_NAME / f"{base:020d}.log"
    segment.parent.mkdir(exist_ok=True)
    segment.write_bytes(b"".join(bytes(batch.data) for batch in some))
    return segment


def test_it_follows_a_log_that_grows_within_batches_and_over_segments(tmp_path: Path) -> None:
    every = batches()
    half = len(every) // 2
    segment = written(tmp_path, every[:half])
    tail = LogTail(tmp_path)
    steps: list[int] = []

    def step(before: MetadataImage, after: MetadataImage, changes: Changes) -> None:
        steps.append(after.provenance.offset)

    tail.on_step = step
    with segment.open("ab") as file:
        file.write(bytes(every[half].data[:-1]))
    tail.advance()
    assert (tail.end_offset, steps) == (every[half].header.base_offset, []), "half a batch is none"
    with segment.open("ab") as file:
        file.write(bytes(every[half].data[-1:]))
    written(tmp_path, every[half + 1 :], every[half + 1].header.base_offset)
    tail.advance()
    assert tail.image == read_image(tmp_path)
    assert tail.end_offset == every[-1].header.next_offset
    assert steps == sorted(steps)
    assert len(steps) > 1
    assert tail.generation == 1


def test_an_end_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    every = batches()
    segment = written(tmp_path, every)
    tail = LogTail(tmp_path)
    last = every[-1].header
    other = build_batch(encode_all([NoOpRecord()], 20), timestamp_ms=1)
    stamped, end = restamp(other, last.base_offset, last.leader_epoch + 1)
    segment.write_bytes(segment.read_bytes()[: -last.size] + stamped)
    tail.advance()
    assert (tail.generation, tail.end_offset) == (2, end)
    assert tail.image == read_image(tmp_path)


def test_it_ends_where_it_was_told_to(tmp_path: Path) -> None:
    every = batches()
    written(tmp_path, every)
    until = every[len(every) // 2].header.last_offset
    tail = LogTail(tmp_path, until)
    assert tail.end_offset == until + 1
    assert tail.image.provenance.offset <= until < read_image(tmp_path).provenance.offset


def test_a_log_that_begins_too_late_is_refused(tmp_path: Path) -> None:
    every = batches()
    written(tmp_path, every[5:], every[5].header.base_offset)
    with pytest.raises(OperatorError, match="no snapshot holds what was before"):
        LogTail(tmp_path)


def test_damage_names_the_file(tmp_path: Path) -> None:
    segment = written(tmp_path, batches())
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with pytest.raises(OperatorError, match=segment.name):
        LogTail(tmp_path)
