"""What of a real node's log goes, and what somebody needs stays."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from migrator.clock import wall_ms
from tests.node.support.cluster import running, until
from tests.node.test_core import write


async def test_the_log_is_kept_for_who_needs_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, 1, **{"metadata.max.retention.ms": "1"}) as cluster:
        leader = await cluster.leader()
        snapshotter, log = leader.snapshotter, leader.storage.log
        for number in range(2):
            await write(leader, "counter", str(number))
            image = leader.metadata.snapshot_image
            assert image is not None
            newest = await snapshotter.write(image)
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
