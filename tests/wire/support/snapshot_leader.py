"""Controllers whose log begins with a snapshot, as that of an old quorum, behind a model transport.

Readers of a remote image are tested with it. A test changes the leader or the snapshot between two requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.raft.messages import (
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RaftRequest,
    RaftResponse,
)
from migrator.raft.transport import PeerTimeoutError
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.metadata import (
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    MetadataRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.versions import FEATURE_NAME, parse_version
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.raft_transport import RaftService
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import DESCRIBE_QUORUM, SERVED_APIS, build, response_type
from migrator.wire.server import KafkaListener

LEVEL = parse_version("3.9").level
RECORDS, BATCH = 6000, 1000
OLD, NEW = EpochOffset(1, 100), EpochOffset(1, 200)


@cache
def snapshot_bytes(word: str) -> bytes:
    """A snapshot of some hundred kilobytes, of a migration; all its settings have this value."""
    records: list[MetadataRecord] = [FeatureLevelRecord(FEATURE_NAME, LEVEL)]
    records.append(ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
    records += [ConfigRecord(ConfigResourceType.TOPIC, f"t{each}", "k", word) for each in range(RECORDS)]
    return b"".join(
        build_batch(encode_all(records[at : at + BATCH], LEVEL), timestamp_ms=0, base_offset=at, leader_epoch=1)
        for at in range(0, len(records), BATCH)
    )


class SnapshotLeader:
    """A transport to controllers that all have snapshots, with other bytes each. It sends what is asked for.

    :ivar leading: who leads, in epoch 2; the others name it.
    :ivar newest: the snapshot that the leader names.
    :ivar held: those that controllers have.
    :ivar asked: position and size of each part that was asked for, and was sent.
    :ivar silent_from: parts from this byte on are not answered; ``is_silent`` says that one was asked for.
    :ivar slow_above: parts that are larger come too late.
    :ivar fetched: who was asked for the log.
    :ivar log_seconds: how long an answer with the log takes; who does not wait for it gets none.
    :ivar told: what becomes of an answer.
    """

    def __init__(self) -> None:
        self.leading = 1
        self.newest = OLD
        self.held = {OLD, NEW}
        self.asked: list[tuple[int, int]] = []
        self.silent_from = 2**63
        self.is_silent = asyncio.Event()
        self.slow_above = 2**63
        self.fetched: list[int] = []
        self.log_seconds = 0.0
        self.told: Callable[[RaftResponse], RaftResponse] = lambda answer: answer

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """See `RaftTransport`."""
        none, name = ErrorCode.none, f"controller {peer}, "
        if isinstance(request, FetchRequest):
            self.fetched.append(peer)
            if timeout < self.log_seconds:
                raise PeerTimeoutError("slow")
        if peer != self.leading:
            head = none, ErrorCode.not_leader_or_follower, self.leading, 2
            if isinstance(request, FetchRequest):
                return FetchResponse(*head, -1, 0)
            return FetchSnapshotResponse(*head, EpochOffset(-1, -1), 0, 0, b"")
        if isinstance(request, FetchSnapshotRequest):
            return self.told(await self._part(peer, request, snapshot_bytes(f"{name}{request.snapshot_id.offset}")))
        assert isinstance(request, FetchRequest)
        end = self.newest.offset
        snapshot = self.newest if request.fetch_offset < end else None
        return self.told(FetchResponse(none, none, peer, 2, end, end, snapshot_id=snapshot))

    async def _part(self, peer: int, request: FetchSnapshotRequest, data: bytes) -> FetchSnapshotResponse:
        none, start = ErrorCode.none, request.position
        if request.snapshot_id not in self.held:
            return FetchSnapshotResponse(none, ErrorCode.snapshot_not_found, peer, 2, EpochOffset(-1, -1), 0, 0, b"")
        if start >= self.silent_from:
            self.is_silent.set()
            await asyncio.Event().wait()
        if request.max_bytes > self.slow_above:
            raise PeerTimeoutError("slow")
        part = data[start : start + request.max_bytes]
        self.asked.append((start, len(part)))
        return FetchSnapshotResponse(none, none, peer, 2, request.snapshot_id, len(data), start, part)

    async def close(self) -> None:
        """See `RaftTransport`."""


class Controller:
    """One of two stock controllers; their log begins with a snapshot."""

    def __init__(self, own_id: int, quorum: SnapshotLeader) -> None:
        self._own_id = own_id
        self._quorum = quorum
        self._raft = RaftService(self._answer, lambda _: None)

    async def _answer(self, request: RaftRequest) -> RaftResponse:
        return await self._quorum.send(self._own_id, request, 10)

    async def handle(self, context: RequestContext, body: Any) -> Any:
        if context.api_key != DESCRIBE_QUORUM:
            return await self._raft.handle(context, body)
        rows = tuple({"replica_id": voter, "log_end_offset": 100} for voter in (1, 2))
        partition = {
            "partition_index": 0, "leader_id": self._quorum.leading, "leader_epoch": 2, "high_watermark": 100,
            "current_voters": rows, "observers": (),
        }  # fmt: skip
        if self._quorum.leading != self._own_id:
            partition |= {"error_code": ErrorCode.not_leader_or_follower, "high_watermark": -1}
        topic = {"topic_name": METADATA_TOPIC, "partitions": (partition,)}
        return build(response_type(DESCRIBE_QUORUM, context.api_version), topics=(topic,))


@asynccontextmanager
async def serving(quorum: SnapshotLeader) -> AsyncIterator[str]:
    """Both controllers; gives ``controller.quorum.voters``."""
    listeners = [KafkaListener("CONTROLLER", Controller(voter, quorum), apis=SERVED_APIS) for voter in (1, 2)]
    try:
        ports = [await listener.start("127.0.0.1", 0) for listener in listeners]
        yield ",".join(f"{voter}@127.0.0.1:{port}" for voter, port in enumerate(ports, 1))
    finally:
        for listener in listeners:
            await listener.close(grace=0)
