"""The files of a log directory, for readers in other processes than the node that owns the directory.

A node removes snapshots and segments while it runs, so a listing may name files that are gone when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from migrator.log.errors import storage_errors
from migrator.log.snapshots import SUFFIX, snapshot_id_of
from migrator.machine import machine
from migrator.raft.messages import EpochOffset
from migrator.values import value

SEGMENT_SUFFIX = ".log"


@value
class LogListing:
    """The files of one ``__cluster_metadata-0``: snapshots by id, and segments in the order of their offsets."""

    snapshots: Mapping[EpochOffset, Path]
    segments: tuple[Path, ...]

    def newest_snapshot(self, until: int | None = None) -> EpochOffset | None:
        """The newest snapshot whose last record is at ``until`` or before; with None, the newest of all."""
        usable = (one for one in self.snapshots if until is None or one.offset <= until + 1)
        return max(usable, key=lambda one: (one.offset, one.epoch), default=None)

    def segments_from(self, offset: int) -> tuple[Path, ...]:
        """The segment that holds this offset, and all later ones."""
        following = [int(segment.stem) for segment in self.segments[1:]]
        ends = [*following, offset + 1]
        return tuple(segment for segment, end in zip(self.segments, ends, strict=False) if end > offset)


def list_log(directory: Path) -> LogListing:
    """List the directory. Snapshots of offset 0, such as ``bootstrap.checkpoint``, are left out: they hold no records
    of the log.

    :raises StorageError: the directory cannot be read.
    """
    with storage_errors("cannot read", directory):
        files = sorted(machine().names(directory))
    named = {snapshot_id_of(path): path for path in files if path.suffix == SUFFIX}
    snapshots = {one: path for one, path in named.items() if one is not None and one.offset > 0}
    return LogListing(snapshots, tuple(path for path in files if _is_segment(path)))


def _is_segment(path: Path) -> bool:
    return path.suffix == SEGMENT_SUFFIX and path.stem.isdigit()
