"""Reads a log that no process has open."""

from __future__ import annotations

from pathlib import Path

from migrator.log.files import iter_file_batches
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.segment import SUFFIX
from migrator.records.batch import BatchHeader
from migrator.records.errors import CorruptRecordsError


def header_at(metadata_directory: Path, offset: int) -> BatchHeader | None:
    """The header of the batch that holds an offset; None when no segment below ``__cluster_metadata-0`` does.

    :raises StorageError: when a segment cannot be read.
    """
    bases = {int(path.stem): path for path in (metadata_directory / DIRECTORY_NAME).glob(f"*{SUFFIX}")}
    below = [base for base in bases if base <= offset]
    if not below:
        return None
    try:
        for _, batch in iter_file_batches(bases[max(below)]):
            if batch.header.base_offset <= offset < batch.header.next_offset:
                return batch.header
    except CorruptRecordsError:
        pass  # a torn end at the end of the last segment holds no batch
    return None
