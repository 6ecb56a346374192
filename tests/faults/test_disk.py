"""A disk that is full, or that cannot be written, under one controller: it says so and stops; the others go on."""

from __future__ import annotations

import asyncio
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import MIGRATOR, Controller
from migrator.errors import ExitCode
from migrator.parts.processes import ChildProcess
from migrator.rpc.transport import TransportError
from tests.conftest import ZooKeeperSpace
from tests.faults.cluster import cluster_in, start_all
from tests.faults.requests import create_topic

ROOM_BYTES = 2_000
TOPICS_MAX = 100


def segment(controller: Controller) -> Path:
    """The file that the controller appends to."""
    return max(controller.metadata_directory.glob("__cluster_metadata-0/*.log"))


async def test_the_leader_s_disk_is_full(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    """Its files may not grow any more: it says so once and leads no longer; all that was acknowledged lives on, and
    with room again it catches up by itself."""
    async with cluster_in(tmp_path, zookeeper.hosts) as cluster:
        start_all(cluster)
        await cluster.until_converged()
        leader = await cluster.until_dual_writing()
        assert leader.process is not None
        limit = segment(leader).stat().st_size + ROOM_BYTES
        assert leader.process.output.stat().st_size < limit - ROOM_BYTES, "its messages are to have room"
        resource.prlimit(leader.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        acknowledged = []
        for number in range(TOPICS_MAX):
            try:
                if await create_topic(cluster.client, f"full-{number}") is ErrorCode.none:
                    acknowledged.append(f"full-{number}")
            except TransportError:
                pass
            if await cluster.leader() not in (leader, None):
                break
        assert acknowledged
        assert await create_topic(cluster.client, "afterwards") is ErrorCode.none
        image = await cluster.until_converged()
        assert {*acknowledged, "afterwards"} <= set(image.topics.ids)
        assert await cluster.until_dual_writing() is not leader
        said = [line for line in leader.process.output_text().splitlines() if "File too large" in line]
        assert all(str(segment(leader)) in line and "ulimit -f" in line for line in said)
        assert 1 <= len(said) < 10, "smaller records may find room in between"
        assert not has_topic(leader, "afterwards")

        resource.prlimit(leader.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await cluster.until("it has caught up", lambda: has_topic(leader, "afterwards"))
        assert "Traceback" not in leader.process.output_text()


def has_topic(controller: Controller, name: str) -> bool:
    """Whether the log in its directory, which may be mid-write, holds a topic."""
    return name.encode() in segment(controller).read_bytes()


def can_mount() -> bool:
    """Whether this machine lets a process mount something in a namespace of its own."""
    return (
        shutil.which("unshare") is not None and not subprocess.run(["unshare", "-rm", "true"], check=False).returncode
    )


@pytest.mark.skipif(not can_mount(), reason="nobody may mount anything here, not even in a namespace of its own")
async def test_a_disk_that_is_read_only(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    """The controller does not start, says where and what to do, and the other two are a quorum."""
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=1, partitions=20) as cluster:
        start_all(cluster)
        await cluster.until("a leader", cluster.active)
        *_, victim = cluster.controllers
        await asyncio.to_thread(victim.stop)
        mounts = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
        directory = str(victim.metadata_directory)
        command = [MIGRATOR, "controller", "-c", str(victim.property_file)]
        with ChildProcess(
            "read-only",
            ["unshare", "-rm", "sh", "-c", mounts, "sh", directory, *command],
            output=tmp_path / "read-only.log",
        ) as process:
            assert await asyncio.to_thread(process.wait, timeout_seconds=20) == ExitCode.REFUSED
            said = process.output_text()
        assert directory in said
        assert "read-only" in said
        assert "mount it for writing" in said
        assert "Traceback" not in said
        await cluster.until("the others have a leader", cluster.active)
        victim.start()
        await cluster.until("it is back", victim.status)
