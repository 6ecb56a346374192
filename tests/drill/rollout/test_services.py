"""The drill as service manager: what an executor asks of it, and the end of the drill in the middle of that."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from migrator.drill.rollout.ask import MODULE
from migrator.drill.rollout.services import NodeService, Services
from migrator.errors import OperatorError
from migrator.parts.processes import ChildProcess
from tests.patience import PATIENCE_SECONDS

NAME = "broker-1"
SLEEPS = [sys.executable, "-c", "import time; print(flush=True); time.sleep(3600)"]


class Sleeper(NodeService):
    """A node that does nothing; ``ill``: it does not end well."""

    def __init__(self, directory: Path) -> None:
        self.output = directory / "sleeper.log"
        self.child: ChildProcess | None = None
        self.ill = False

    def run(self) -> None:
        self.child = ChildProcess(NAME, SLEEPS, output=self.output)

    def end(self) -> None:
        if self.child is not None:
            self.child.stop()
        if self.ill:
            raise OperatorError("it ended with exit code 3", where=NAME)

    def running(self) -> ChildProcess | None:
        return self.child if self.child is not None and self.child.exit_code() is None else None


@asynccontextmanager
async def serving(node: Sleeper) -> AsyncIterator[tuple[Services, Path]]:
    services = Services({NAME: node})
    try:
        yield services, await services.open(node.output.parent / "services")
    finally:
        await services.close()
        if node.child is not None:
            node.child.kill()


async def begun(socket: Path, *words: str) -> Process:
    command = [sys.executable, "-m", MODULE, str(socket), *words]
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, start_new_session=True)


async def asked(socket: Path, *words: str) -> tuple[int | None, str]:
    """Exit code, and what it printed."""
    process = await begun(socket, *words)
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    return process.returncode, (output + errors).decode()


async def test_a_node_starts_is_known_by_its_incarnation_and_stops(tmp_path: Path) -> None:
    node = Sleeper(tmp_path)
    async with serving(node) as (_, socket):
        assert await asked(socket, "incarnation", NAME) == (0, "")
        assert await asked(socket, "start", NAME) == (0, "")
        first = await asked(socket, "incarnation", NAME)
        assert await asked(socket, "start", NAME) == (0, "")
        assert await asked(socket, "incarnation", NAME) == first
        assert await asked(socket, "stop", NAME) == (0, "")
        assert node.running() is None
        assert await asked(socket, "stop", NAME) == (0, "")
        await asked(socket, "start", NAME)
        again = await asked(socket, "incarnation", NAME)
        assert first[1]
        assert again[1]
        assert again != first


async def test_a_node_that_does_not_end_well_and_one_that_nobody_knows_are_errors(tmp_path: Path) -> None:
    node = Sleeper(tmp_path)
    async with serving(node) as (_, socket):
        await asked(socket, "start", NAME)
        node.ill = True
        code, said = await asked(socket, "stop", NAME)
        assert code == 1
        assert "exit code 3" in said
        code, said = await asked(socket, "start", "broker-9")
        assert code == 1
        assert "broker-9" in said


async def test_nobody_else_may_ask(tmp_path: Path) -> None:
    async with serving(Sleeper(tmp_path)) as (_, socket):
        assert socket.parent.stat().st_mode & 0o077 == 0


async def heard() -> None:
    """Wait until a process listens."""
    while not any("Services._answer" in repr(task) for task in asyncio.all_tasks()):
        await asyncio.sleep(0)


async def test_nothing_starts_once_the_drill_ends(tmp_path: Path) -> None:
    node = Sleeper(tmp_path)
    async with serving(node) as (services, socket):
        reader, writer = await asyncio.open_unix_connection(socket)
        await asyncio.wait_for(heard(), PATIENCE_SECONDS)
        await services.close()
        writer.write(f"start {NAME}\n".encode())
        assert await reader.read() != b"done "
        writer.close()
        assert node.child is None


@pytest.mark.parametrize("code", [0, 7])
async def test_a_command_runs_to_its_end(tmp_path: Path, code: int) -> None:
    async with serving(Sleeper(tmp_path)) as (_, socket):
        words = [sys.executable, "-c", f"print('done'); raise SystemExit({code})"]
        assert await asked(socket, "run", NAME, *words) == (code, "done\n")


async def test_a_command_ends_with_the_drill(tmp_path: Path) -> None:
    """Here another process is the drill, and is killed. What is left is in the directory of the drill."""
    drill = (
        "import asyncio, pathlib, sys; from migrator.drill.rollout.services import Services\n"
        "async def main():\n print(await Services({}).open(pathlib.Path(sys.argv[1])), flush=True)\n"
        " await asyncio.sleep(3600)\n"
        "asyncio.run(main())"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    serves = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", drill, str(tmp_path / "services")),
        stdout=PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert serves.stdout is not None
    socket = Path((await asyncio.wait_for(serves.stdout.readline(), PATIENCE_SECONDS)).decode().strip())
    asks = await begun(socket, "run", NAME, *SLEEPS)
    assert asks.stdout is not None
    await asyncio.wait_for(asks.stdout.readline(), PATIENCE_SECONDS)
    (command,) = psutil.Process(asks.pid).children()
    serves.kill()
    await asyncio.wait_for(serves.wait(), PATIENCE_SECONDS)
    await asyncio.wait_for(asks.wait(), PATIENCE_SECONDS)
    assert psutil.wait_procs([command], timeout=PATIENCE_SECONDS)[1] == []
    assert await asyncio.to_thread(os.listdir, temporary) == []


async def test_a_long_path_has_its_socket_elsewhere_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    services = Services({NAME: Sleeper(tmp_path)})
    socket = await services.open(tmp_path / ("x" * 100) / "services")
    try:
        assert await asked(socket, "incarnation", NAME) == (0, "")
        assert socket.parent.stat().st_mode & 0o077 == 0
    finally:
        await services.close()
    assert await asyncio.to_thread(os.listdir, tmp_path) == []
