"""Batches and files for the tests of the log: small, valid, with chosen offsets and epochs."""

from __future__ import annotations

from pathlib import Path

from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.snapshots import SnapshotWriter
from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import NO_MEMBERSHIP, Membership, VoterSet
from migrator.records.batch import build_batch
from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from migrator.records.uuid import Uuid

NO_OP = bytes.fromhex("01140000")


def batch(offset: int, epoch: int = 1, count: int = 1, *, timestamp_ms: int = 1000, size: int = 0) -> bytes:
    """A batch of ``count`` NoOps, or of values of ``size`` bytes."""
    values = [b"\x07" * size if size else NO_OP] * count
    return build_batch(values, timestamp_ms=timestamp_ms, base_offset=offset, leader_epoch=epoch)


def voters_of(*ids: int) -> VoterSet:
    """Voters on disks of their own."""
    return VoterSet.of(
        DynamicVoter(
            voter_id,
            Uuid(b"directory of" + voter_id.to_bytes(4, "big")),
            (VoterEndpoint("CONTROLLER", "localhost", 9093),),
            KRaftVersionRange(0, 1),
        )
        for voter_id in ids
    )


def write_snapshot(
    metadata_directory: Path, offset: int, epoch: int, *, timestamp_ms: int = 0, membership: Membership = NO_MEMBERSHIP
) -> EpochOffset:
    """A small, whole snapshot file in the log's directory."""
    folder = metadata_directory / DIRECTORY_NAME
    folder.mkdir(parents=True, exist_ok=True)
    snapshot_id = EpochOffset(epoch, offset)
    writer = SnapshotWriter(
        folder,
        snapshot_id,
        last_contained_log_timestamp_ms=timestamp_ms,
        now_ms=timestamp_ms,
        membership=membership,
    )
    with writer:
        writer.append([NO_OP] * 3, now_ms=timestamp_ms)
        writer.freeze(now_ms=timestamp_ms)
    return snapshot_id


def log_files(metadata_directory: Path) -> set[str]:
    """Names of the files in the log's directory."""
    return {path.name for path in (metadata_directory / DIRECTORY_NAME).iterdir()}
