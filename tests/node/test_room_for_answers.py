"""Fetches and room for their answers: it is there before the log is read, and not held while a fetch waits for news."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from migrator.log.metadata_log import MetadataLog
from migrator.log.snapshots import SnapshotStore
from migrator.node.core import NodeCore
from migrator.node.quorum.reads import CONTESTED_BYTES_MAX, READ_BYTES_MAX
from migrator.raft.messages import (
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RaftRequest,
    RaftResponse,
)
from migrator.wire.requests import REQUEST
from tests.node.support.cluster import CLUSTER_ID, running, until
from tests.node.test_core import write
from tests.wire.support.rooms import Asked, answers_of, book_with_answers

TEXT = "x" * 30_000


async def asked(node: NodeCore, answer: Asked, request: RaftRequest) -> RaftResponse:
    """As a connection's task asks."""
    REQUEST.set(answer.request)
    return await node.quorum.handle(request)


def fetch(node: NodeCore, offset: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    epoch = node.quorum.epoch
    last = node.storage.log.epoch_at(offset - 1) if offset else 0
    return FetchRequest(CLUSTER_ID, -1, epoch, offset, last or 0, max_wait_ms, 2**31 - 1)


class Reads:
    """How many there were of the log and of snapshots."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        of_log, of_snapshot = MetadataLog.read, SnapshotStore.read

        def read(log: MetadataLog, offset: int, max_bytes: int, up_to: int | None = None) -> bytes:
            self.count += 1
            return of_log(log, offset, max_bytes, up_to)

        def read_snapshot(store: SnapshotStore, snapshot: EpochOffset, position: int, size: int) -> tuple[bytes, int]:
            self.count += 1
            return of_snapshot(store, snapshot, position, size)

        patch.setattr(MetadataLog, "read", read)
        patch.setattr(SnapshotStore, "read", read_snapshot)


async def test_the_log_is_read_only_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        for number in range(50):
            await write(node, f"key-{number}", TEXT)
        reads, book = Reads(monkeypatch), book_with_answers(READ_BYTES_MAX)
        before, room = Asked(book), answers_of(book)
        await before.request.reserve(READ_BYTES_MAX)
        answers = [Asked(book) for _ in range(2)]
        first, second = [asyncio.create_task(asked(node, answer, fetch(node))) for answer in answers]
        await until(lambda: room.is_contested, "somebody waits")
        for _ in range(20):
            await asyncio.sleep(0)
        assert reads.count == 0
        before.end()
        response = await first
        assert isinstance(response, FetchResponse)
        assert READ_BYTES_MAX // 2 < len(response.records) == room.held <= READ_BYTES_MAX
        answers[0].end()
        small = await second
        assert isinstance(small, FetchResponse)
        assert 0 < len(small.records) <= CONTESTED_BYTES_MAX, "who came while another waited gets a small answer"
        assert response.records.startswith(small.records)


async def test_a_part_of_a_snapshot_is_read_only_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        await write(node, "key", TEXT)
        image = node.metadata.snapshot_image
        assert image is not None
        snapshot = await node.snapshotter.write(image)
        assert snapshot is not None
        reads, book = Reads(monkeypatch), book_with_answers(READ_BYTES_MAX)
        before, room = Asked(book), answers_of(book)
        await before.request.reserve(READ_BYTES_MAX)
        request = FetchSnapshotRequest(CLUSTER_ID, -1, node.quorum.epoch, snapshot, 0, 2**31 - 1)
        task = asyncio.create_task(asked(node, Asked(book), request))
        await until(lambda: room.is_contested, "somebody waits")
        assert reads.count == 0
        before.end()
        response = await task
        assert isinstance(response, FetchSnapshotResponse)
        assert response.error is ErrorCode.none
        assert len(response.data) == response.size > len(TEXT)


async def test_a_fetch_that_waits_for_news_holds_nothing_and_then_what_there_is(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        while True:
            book = book_with_answers(READ_BYTES_MAX)
            room = answers_of(book)
            end = node.storage.log.end_offset()
            task = asyncio.create_task(asked(node, Asked(book), fetch(node, end, max_wait_ms=2**31 - 1)))
            for _ in range(5):
                await asyncio.sleep(0)
            if not task.done():
                break
            await task  # a record of the leader's own came meanwhile
        assert (room.held, room.is_contested) == (0, False)
        await write(node, "key", TEXT)
        response = await task
        assert isinstance(response, FetchResponse)
        if len(response.records) < len(TEXT):  # the high watermark, or a record of the leader's own, was news before
            book = book_with_answers(READ_BYTES_MAX)
            room = answers_of(book)
            response = await asked(node, Asked(book), fetch(node, end, max_wait_ms=2**31 - 1))
            assert isinstance(response, FetchResponse)
        assert len(response.records) == room.held == room.most > len(TEXT)
