"""A real node's log drops old records, and keeps those that another node needs."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from migrator import turns
from migrator.clock import wall_ms
from migrator.image.digest import read_back
from migrator.image.replay import replay_snapshot
from migrator.image.snapshot import snapshot_steps
from migrator.log import image_snapshot
from migrator.log.image_snapshot import write_snapshot
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.snapshots import SnapshotStore, SnapshotWriter, iter_snapshot
from migrator.node import snapshotter as node_snapshotter
from migrator.node.core import NodeCore, OpenedDirectory
from migrator.node.metadata import MetadataRuntime
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import DelegationTokenRecord, FeatureLevelRecord, TopicRecord
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED
from migrator.turns import TURN_BYTES
from tests.hostile.clock import VirtualLoop
from tests.image.support.strategies import image_of, small_uuid
from tests.log.support.golden import DYNAMIC
from tests.node.support.cluster import Cluster, running, until
from tests.node.support.freed import Freed
from tests.node.test_core import write

STEP_SECONDS = 0.01


async def write_snapshots(leader: NodeCore, many: int) -> list[EpochOffset]:
    """Each has one change more than the one before."""
    written = []
    for number in range(many):
        await write(leader, "counter", str(number))
        image = leader.metadata.snapshot_image
        assert image is not None
        written.append(await leader.snapshotter.write(image))
    return written


async def test_the_log_is_kept_for_who_needs_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, 1, **{"metadata.max.retention.ms": "1"}) as cluster:
        leader = await cluster.leader()
        snapshotter, log = leader.snapshotter, leader.storage.log
        newest = (await write_snapshots(leader, 2))[-1]
        await until(lambda: log.is_due(snapshotter._retention, wall_ms()), "the first snapshot is old enough")
        needed, asked = newest.offset - 1, []

        async def needed_from() -> int | None:
            asked.append(needed)
            return needed

        snapshotter.needed_from = needed_from
        with caplog.at_level(logging.WARNING):
            await snapshotter._clean()
            await snapshotter._clean()
        assert (log.start_offset(), len(asked), len(log.snapshots())) == (0, 2, 2)
        assert [f"offset {needed}" in record.message for record in caplog.records] == [True], "it is said once"
        needed = newest.offset
        await snapshotter._clean()
        assert (log.start_offset(), log.snapshots()) == (newest.offset, [newest])
        await snapshotter._clean()
        assert len(asked) == 3, "nobody is asked when nothing would go"


async def test_the_log_is_cleaned_while_a_snapshot_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cleaned = asyncio.Event(), 0
    clean = node_snapshotter.Snapshotter._clean

    async def never_written(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def counted(self: node_snapshotter.Snapshotter) -> None:
        nonlocal cleaned
        await clean(self)
        cleaned += 1

    for name, replacement in (("write", never_written), ("_is_due", lambda _: True), ("_clean", counted)):
        monkeypatch.setattr(node_snapshotter.Snapshotter, name, replacement)
    for name in ("CHECK_SECONDS", "CLEAN_SECONDS"):
        monkeypatch.setattr(node_snapshotter, name, 0.001)
    async with running(tmp_path, 1):
        await until(begun.is_set, "a snapshot is begun")
        cleaned = 0
        await until(lambda: cleaned > 1, "the log is cleaned twice")


async def test_old_snapshots_go_one_in_each_turn(tmp_path: Path) -> None:
    async with running(tmp_path, 1, **{"metadata.max.retention.ms": "1"}) as cluster:
        leader = await cluster.leader()
        snapshotter, log = leader.snapshotter, leader.storage.log
        await write_snapshots(leader, 4)
        last_to_go = log.store.last_contained_log_timestamp_ms(log.snapshots()[-2])
        await until(lambda: wall_ms() > last_to_go + 1, "all but the newest are old enough")
        seen, cleaning = [4], asyncio.create_task(snapshotter._clean())
        while not cleaning.done():
            seen.append(len(log.snapshots()))
            await asyncio.sleep(0)
        await cleaning
        assert sorted(set(seen)) == [1, 2, 3, 4]


async def test_a_stock_directory_of_kraft_version_1_leads_and_its_snapshots_name_the_voters(tmp_path: Path) -> None:
    """Formatted and used by stock with --standalone; nothing but bootstrap servers in the configuration."""
    servers = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "localhost:9007"}
    cluster = Cluster(tmp_path, 0, **servers)
    shutil.copytree(DYNAMIC, tmp_path / "7")
    before = OpenedDirectory(cluster.settings(7))
    formatted = before.storage.log.membership()
    before.close()
    assert formatted.voters is not None
    cluster.start(7)
    leader = await cluster.leader()
    await write(leader, "counter", "1")
    image = leader.metadata.snapshot_image
    assert image is not None
    written = leader.storage.log.store.membership(await leader.snapshotter.write(image))
    assert (written.kraft_version, written.voters) == (1, formatted.voters)
    state = (tmp_path / "7" / DIRECTORY_NAME / "quorum-state").read_bytes()
    assert b'"data_version":1' in state
    await cluster.stop(7)
    assert not cluster.failures


async def test_a_snapshot_of_large_records_takes_turns_of_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewers = tuple(f"User:{number:0>150}" for number in range(100))
    tokens = [DelegationTokenRecord("User:o", "User:o", renewers, 0, 9, 9, f"t{number}") for number in range(30)]
    image = image_of([FeatureLevelRecord(FEATURE_NAME, LATEST_SUPPORTED), *tokens])
    turns: list[int] = []
    append = SnapshotWriter.append

    def counted(self: SnapshotWriter, values: Sequence[bytes], *, now_ms: int) -> None:
        turns.append(sum(map(len, values)))
        append(self, values, now_ms=now_ms)

    monkeypatch.setattr(SnapshotWriter, "append", counted)
    snapshot_id = await write_snapshot(tmp_path, image)
    most = sum(turns) // 30 + TURN_BYTES
    assert sum(turns) > 5 * most
    assert max(turns) < most
    steps = replay_snapshot(snapshot_id.offset, 1, iter_snapshot(SnapshotStore(tmp_path).path(snapshot_id)))
    assert len(list(steps)) > sum(turns) // most, "it is read in as many turns"


def test_a_snapshot_leaves_most_of_the_time_to_other_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All controllers make theirs at the same record, which may be one of a broker's shutdown."""
    loop, seconds = VirtualLoop(), Counter[str]()

    def working(name: str, steps: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def step(*args: Any) -> Iterator[Any]:
            for each in steps(*args):
                loop.now += STEP_SECONDS
                seconds[name] += 1
                yield each

        return step

    monkeypatch.setattr(image_snapshot, "snapshot_steps", working("written", snapshot_steps))
    monkeypatch.setattr(node_snapshotter, "read_back", working("read back", read_back))
    monkeypatch.setattr(turns, "TURN_RECORDS", 10)
    image = image_of([TopicRecord(f"topic-{number}", small_uuid(number)) for number in range(1, 101)])

    async def written() -> float:
        async with running(tmp_path, 1) as cluster:
            leader = await cluster.leader()
            began = loop.now
            await leader.snapshotter.write(image)
            return loop.now - began

    try:
        taken = loop.run_until_complete(written())
    finally:
        loop.close()
    assert len(seconds) == 2
    assert min(seconds.values()) > 1, "each takes several turns"
    assert seconds.total() * STEP_SECONDS <= 1.01 * node_snapshotter.SHARE * taken


async def test_the_image_of_a_snapshot_is_freed_over_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To free 2,000,000 partitions takes half a second. Meanwhile there may be a later image with nothing in common."""
    freed = Freed()
    monkeypatch.setattr(turns, "TURN_RECORDS", 10)
    topics = [TopicRecord(f"topic-{number}", small_uuid(number)) for number in range(1, 101)]
    images = [freed.noting(image_of(topics))]
    monkeypatch.setattr(MetadataRuntime, "snapshot_image", property(lambda _: images.pop()))
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        freed.topics.clear()
        writing = asyncio.create_task(leader.snapshotter._try_snapshot())
        while not writing.done():
            freed.turn += 1
            await asyncio.sleep(0)
        await writing
        assert len(leader.storage.log.snapshots()) == 1
    assert freed.topics.total() == len(topics)
    assert max(freed.topics.values()) <= turns.TURN_RECORDS
