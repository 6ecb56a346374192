"""A disk that is full, or that cannot be written, under one controller: it says so and stops; the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import MIGRATOR, ControllerProcess
from migrator.errors import ExitCode
from migrator.parts.processes import ChildProcess
from migrator.raft.transport import TransportError
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all
from tests.faults.support.requests import create_topic
from tests.patience import PATIENCE_SECONDS

ROOM_BYTES = 8_192  # more than a page, the unit of room of a file system
VOLUME_BYTES = 32 << 20
TOPICS_MAX = 100


def segment(controller: ControllerProcess) -> Path:
    """The file that the controller appends to."""
    return max(controller.metadata_directory.glob("__cluster_metadata-0/*.log"))


def can_mount() -> bool:
    """Whether this machine lets a process mount something in a namespace of its own."""
    return (
        shutil.which("unshare") is not None and not subprocess.run(["unshare", "-rm", "true"], check=False).returncode
    )


NEEDS_MOUNT = pytest.mark.skipif(
    not can_mount(), reason="nobody may mount anything here, not even in a namespace of its own"
)


class SizeLimit:
    """Files may not grow any more (EFBIG)."""

    words = ("File too large", "ulimit -f")

    def start(self, controller: ControllerProcess) -> None:
        controller.start()

    def exhaust(self, controller: ControllerProcess) -> None:
        assert controller.process is not None
        limit = segment(controller).stat().st_size + ROOM_BYTES
        assert controller.process.output.stat().st_size < limit - ROOM_BYTES, "its messages are to have room"
        self._limit(controller, limit)

    def relieve(self, controller: ControllerProcess) -> None:
        self._limit(controller, resource.RLIM_INFINITY)

    def _limit(self, controller: ControllerProcess, limit: int) -> None:
        assert controller.process is not None
        resource.prlimit(controller.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


class SmallVolume:
    """The metadata directory is a file system of its own, in a namespace of its own, with hardly any room (ENOSPC).

    Not even the election state can be replaced then, so the controller may stop; a shell in its namespace, where the
    file system lives on, starts it again when there is room.
    """

    words = ("No space left on device", "Free space")

    def start(self, controller: ControllerProcess) -> None:
        controller.write_properties()
        directory = controller.metadata_directory
        origin = shutil.copytree(directory, directory.with_name("origin"))
        mount = (
            'mount -t tmpfs -o size="$1" tmpfs "$2" && cp -a "$3/." "$2" && ballast="$2/ballast" && shift 3\n'
            'while true; do "$@"; while test -e "$ballast"; do sleep 0.1; done; done'
        )
        command = [MIGRATOR, "controller", "-c", str(controller.property_file)]
        controller.process = ChildProcess(
            f"controller {controller.node_id}",
            ["unshare", "-rm", "sh", "-c", mount, "sh", str(VOLUME_BYTES), str(directory), str(origin), *command],
            output=controller.directory / "controller.log",
        )
        controller.metadata_directory = Path(f"/proc/{controller.process.pid}/root{directory}")

    def exhaust(self, controller: ControllerProcess) -> None:
        with self._ballast(controller).open("wb", buffering=0) as ballast:
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(bytes(VOLUME_BYTES))
            assert ROOM_BYTES < ballast.tell() < VOLUME_BYTES
            ballast.truncate(ballast.tell() - ROOM_BYTES)  # else the first record may find no room

    def relieve(self, controller: ControllerProcess) -> None:
        self._ballast(controller).unlink()

    def _ballast(self, controller: ControllerProcess) -> Path:
        return controller.metadata_directory / "ballast"


@pytest.mark.parametrize(
    "disk", [SizeLimit(), pytest.param(SmallVolume(), marks=NEEDS_MOUNT)], ids=lambda d: d.words[0]
)
async def test_the_leader_s_disk_is_full(
    zookeeper: ZooKeeperSpace, tmp_path: Path, disk: SizeLimit | SmallVolume
) -> None:
    """It says so once and leads no longer; all that was acknowledged lives on, and with room again it catches up by
    itself."""
    async with cluster_in(tmp_path, zookeeper.hosts) as cluster:
        for controller in cluster.controllers:
            disk.start(controller)
        await cluster.until_converged()
        leader = await cluster.until_dual_writing()
        assert leader.process is not None
        disk.exhaust(leader)
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
        what, remedy = disk.words
        lines = leader.process.output_text().splitlines()
        said = [line for line in lines if what in line and segment(leader).name in line]
        assert all(remedy in line for line in said)
        assert 1 <= len(said) < 10, "smaller records may find room in between"
        assert not has_topic(leader, "afterwards")

        disk.relieve(leader)
        await cluster.until("it has caught up", lambda: has_topic(leader, "afterwards"))
        assert "Traceback" not in leader.process.output_text()


def has_topic(controller: ControllerProcess, name: str) -> bool:
    """Whether the log in its directory, which may be mid-write, holds a topic."""
    return name.encode() in segment(controller).read_bytes()


@NEEDS_MOUNT
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
            assert await asyncio.to_thread(process.wait, timeout_seconds=PATIENCE_SECONDS) == ExitCode.REFUSED
            said = process.output_text()
        assert directory in said
        assert "read-only" in said
        assert "mount the file system for writing" in said
        assert "Traceback" not in said
        await cluster.until("the others have a leader", cluster.active)
        victim.start()
        await cluster.until("it is back", victim.status)
