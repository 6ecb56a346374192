"""Snapshots between nodes: the leader serves parts, the follower collects them and replaces its log (KIP-630).

`follower.handle_fetch_response` begins a download when the leader no longer has the records at the end of the
follower's log. One download runs at a time, and a part that does not continue it ends it. The log is replaced only
after the whole file is checked and durable (`FinishSnapshot`). A snapshot that the log contains by then does not
replace it.
"""

from __future__ import annotations

from collections.abc import Hashable

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import replication, responses
from migrator.raft.config import OFFSET_LIMIT
from migrator.raft.events import SnapshotFailed, SnapshotFinished
from migrator.raft.messages import EpochOffset, FetchSnapshotRequest, FetchSnapshotResponse
from migrator.raft.quorum import Quorum
from migrator.raft.states import Download, Follower, Leader
from migrator.raft.storage import LogView

CHUNK_BYTES_MAX = 1024 * 1024
"""The bytes of one part. The node writes a part in one turn of the event loop."""

# The leader's side


def handle_fetch_snapshot(quorum: Quorum, context: Hashable, request: FetchSnapshotRequest) -> None:
    """Serve a part of a snapshot. The request counts for check quorum, as a fetch does."""
    leader = quorum.state
    error = _snapshot_error(quorum, request)
    if error != ErrorCode.none or not isinstance(leader, Leader):
        quorum.reply(context, request, responses.fetch_snapshot(quorum, error, request))
        return
    progress = replication.progress_of(quorum, leader, request)
    if progress is not None:
        progress.heard_ms = quorum.now
        replication.note_contact(quorum, leader, *progress.key)
    response = responses.fetch_snapshot(quorum, ErrorCode.none, request)
    quorum.answer(request, fx.ReadSnapshot(context, response, request.max_bytes))


def _snapshot_error(quorum: Quorum, request: FetchSnapshotRequest) -> ErrorCode:
    if request.replica_id == quorum.node_id or request.max_bytes < 0:
        return ErrorCode.invalid_request
    error = replication.leader_error(quorum, request.leader_epoch)
    if error != ErrorCode.none:
        return error
    if request.snapshot_id not in quorum.log.snapshots():
        return ErrorCode.snapshot_not_found
    return ErrorCode.position_out_of_range if request.position < 0 else ErrorCode.none


# The follower's side


def begin_download(quorum: Quorum, follower: Follower, snapshot_id: EpochOffset) -> bool:
    """Begin a download, because the leader no longer has the records at the end of our log.

    :returns: False when the leader's answer cannot be true.
    """
    if not 0 <= snapshot_id.epoch <= quorum.epoch or snapshot_id.offset >= OFFSET_LIMIT:
        quorum.blame(follower.leader_id, f"sends us to {snapshot_id} in epoch {quorum.epoch}, which can't be")
        return False
    if snapshot_id.offset <= quorum.high_watermark:
        quorum.keep_committed(
            follower.leader_id,
            f"sends us to {snapshot_id} although all before {quorum.high_watermark} is committed here",
        )
        return False
    recovered = quorum.config.recovered()
    if snapshot_id.epoch < recovered.epoch or snapshot_id.offset < recovered.end_offset:
        quorum.blame(
            follower.leader_id, f"sends us to {snapshot_id}, which lacks the recovery of epoch {recovered.epoch}"
        )
        return False
    if snapshot_id in quorum.log.snapshots():
        _install(quorum, snapshot_id)
    else:
        follower.download = Download(snapshot_id)
    return True


def next_chunk(quorum: Quorum, download: Download) -> FetchSnapshotRequest:
    config = quorum.config
    return FetchSnapshotRequest(
        cluster_id=config.cluster_id,
        replica_id=quorum.node_id,
        leader_epoch=quorum.epoch,
        snapshot_id=download.snapshot_id,
        position=download.position,
        max_bytes=min(config.fetch_max_bytes, CHUNK_BYTES_MAX),
        replica_directory_id=config.directory_id,
    )


def handle_fetch_snapshot_response(quorum: Quorum, peer: int, response: FetchSnapshotResponse) -> None:
    """Write a part; after the last one the disk finishes the file in the background."""
    follower = quorum.state
    if not isinstance(follower, Follower) or follower.leader_id != peer or follower.download is None:
        quorum.blame(peer, "answers a snapshot fetch that it was not asked")
        return
    download = follower.download
    end = download.position + len(response.data)
    is_next = response.snapshot_id == download.snapshot_id and response.position == download.position
    if not is_next or not response.data or end > response.size:
        follower.download = None
        quorum.blame(peer, f"sends {response.position} to {end} of {response.size} bytes of {response.snapshot_id}")
        return
    quorum.emit(fx.WriteSnapshotChunk(download.snapshot_id, download.position, response.data))
    download.position = end
    if end == response.size:
        follower.download = None
        quorum.finishing = download.snapshot_id
        quorum.emit(fx.FinishSnapshot(download.snapshot_id))
    quorum.prolong(follower)


def forget_download(quorum: Quorum) -> None:
    """The leader no longer has the snapshot. The next fetch asks it for another one."""
    if isinstance(quorum.state, Follower):
        quorum.state.download = None


def finished(quorum: Quorum, event: SnapshotFinished) -> None:
    """Replace the log by the snapshot, if the snapshot is still ahead of it."""
    _disk_is_done(quorum, event.snapshot_id)
    is_leader = isinstance(quorum.state, Leader)  # a leader has all that is committed: it needs no snapshot of others
    if not is_leader and not _contains(quorum.log, event.snapshot_id):
        _install(quorum, event.snapshot_id)


def failed(quorum: Quorum, event: SnapshotFailed) -> None:
    """The snapshot could not be written: begin anew after the back-off."""
    _disk_is_done(quorum, event.snapshot_id)
    follower = quorum.state
    if isinstance(follower, Follower):
        follower.download = None
        quorum.peers.back_off(follower.leader_id, quorum.now)


def _disk_is_done(quorum: Quorum, snapshot_id: EpochOffset) -> None:
    if quorum.finishing == snapshot_id:
        quorum.finishing = None
        if isinstance(quorum.state, Follower):
            quorum.prolong(quorum.state)


def _contains(log: LogView, snapshot_id: EpochOffset) -> bool:
    if snapshot_id.offset > log.end_offset():
        return False
    if snapshot_id.offset <= log.start_offset():
        return True
    return log.epoch_at(snapshot_id.offset - 1) == snapshot_id.epoch


def _install(quorum: Quorum, snapshot_id: EpochOffset) -> None:
    quorum.rewrite(fx.InstallSnapshot(snapshot_id), durable_end=snapshot_id.offset)
    quorum.advance_high_watermark(snapshot_id.offset)  # a snapshot holds committed records only (KIP-630)
    quorum.peers.forget_all()
