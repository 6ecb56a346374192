"""A worker never hangs its reader: it ends with a result, with a reason, or by being killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from migrator.migration.copying import compare as copying_compare
from migrator.migration.copying.compare import ReconcileEnd, WriteChunk, compare
from migrator.migration.copying.worker import (
    CompareTask,
    DecodeTask,
    LoadAhead,
    Tools,
    Worker,
    WorkerFailedError,
    WorkerProcess,
    Workers,
)
from migrator.migration.translate.reconcile import reconcile
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import PartitionRecord, TopicRecord
from migrator.zookeeper.session import SessionOptions
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.image.support.strategies import image_of, small_uuid
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.images import apply, empty_cluster, image_from, target
from tests.patience import PATIENCE_SECONDS

ROOT = str(Path(__file__).parents[3])
END_SECONDS = 30.0
"""Far more than a process takes to see that its parent has gone; one that does not look never ends."""


def tools(port: int, timeout_ms: int) -> Tools:
    options = SessionOptions(f"127.0.0.1:{port}", session_timeout_ms=timeout_ms, connection_timeout_ms=timeout_ms)
    return Tools(options, PasswordEncoder("secret", os.urandom))


def silent_server() -> socket.socket:
    """Takes connections in and never answers."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


async def read_all(worker: Worker) -> None:
    async for _ in worker.messages():
        pass


async def test_a_zookeeper_that_does_not_answer_is_a_reason() -> None:
    with silent_server() as server:
        async with Worker(DecodeTask(), tools(server.getsockname()[1], 300)) as worker:
            with pytest.raises(WorkerFailedError, match="no ZooKeeper server answered within 300 ms"):
                await asyncio.wait_for(read_all(worker), PATIENCE_SECONDS)


async def test_a_worker_that_is_killed_is_noticed_at_once() -> None:
    with silent_server() as server:
        async with Worker(DecodeTask(), tools(server.getsockname()[1], 60_000)) as worker:
            reading = asyncio.create_task(read_all(worker))
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(WorkerFailedError, match="killed by signal 9"):
                await asyncio.wait_for(reading, PATIENCE_SECONDS)


async def test_leaving_stops_a_worker_that_is_busy() -> None:
    with silent_server() as server:
        async with Worker(DecodeTask(), tools(server.getsockname()[1], 60_000)) as worker:
            pid = worker.pid
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.lane("test-all")
async def test_a_worker_is_kept_in_advance_and_replaced_when_somebody_kills_it() -> None:
    with silent_server() as server:
        workers = Workers(tools(server.getsockname()[1], 300))
        workers.prepare(LoadAhead(Path("/nowhere"), EpochOffset(1, 5)))
        kept = await spare_of(workers)
        async with workers.worker(DecodeTask()) as first:
            assert first.pid == kept.process.pid
            with pytest.raises(WorkerFailedError, match="no ZooKeeper server answered"):
                await asyncio.wait_for(read_all(first), PATIENCE_SECONDS)
        killed = (await spare_of(workers)).process
        pid = killed.pid
        killed.kill()
        await asyncio.to_thread(killed.join)
        async with workers.worker(DecodeTask()) as second:
            assert second.pid != pid
            with pytest.raises(WorkerFailedError, match="no ZooKeeper server answered"):
                await asyncio.wait_for(read_all(second), PATIENCE_SECONDS)
        await asyncio.to_thread(workers.close)
    assert multiprocessing.active_children() == []


async def spare_of(workers: Workers) -> WorkerProcess:
    assert workers._spare is not None
    return await asyncio.wrap_future(workers._spare)


def hung_load(directory: Path) -> CompareTask:
    """Reading this log never ends: opening a pipe waits for somebody who writes into it."""
    os.mkfifo(directory / f"{0:020d}.log")
    return CompareTask(directory, EpochOffset(1, 5), 1, 0)


async def begun(worker: Worker) -> asyncio.Task[None]:
    """The reader of its messages; it has begun to work by then."""
    heard = asyncio.Event()

    async def read() -> None:
        async for _ in worker.messages(lambda _: heard.set()):
            pass

    reading = asyncio.create_task(read())
    await asyncio.wait_for(heard.wait(), PATIENCE_SECONDS)
    return reading


def is_alive(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_worker_that_says_nothing_is_gone_when_it_is_left(tmp_path: Path) -> None:
    async with Worker(hung_load(tmp_path), tools(1, 300)) as worker:
        reading, pid = await begun(worker), worker.pid
        reading.cancel()
    assert not is_alive(pid)


async def test_a_worker_is_gone_even_if_whoever_waits_for_its_end_is_cancelled_again(tmp_path: Path) -> None:
    pids: list[int | None] = []
    entered = asyncio.Event()

    async def work() -> None:
        async with Worker(hung_load(tmp_path), tools(1, 300)) as worker:
            pids.append(worker.pid)
            entered.set()
            await read_all(worker)

    task = asyncio.create_task(work())
    await entered.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert not is_alive(pids[0])


async def test_a_worker_that_is_given_up_while_it_starts_is_not_left_behind() -> None:
    asked, go, made = threading.Event(), threading.Event(), list[WorkerProcess]()

    def obtain() -> WorkerProcess:
        asked.set()
        go.wait()
        made.append(WorkerProcess())
        made[0].start()
        return made[0]

    entering = asyncio.create_task(Worker(DecodeTask(), tools(1, 300), obtain).__aenter__())
    await asyncio.to_thread(asked.wait)
    entering.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert made
    assert multiprocessing.active_children() == []


PARENT = """
import asyncio, os, sys
from pathlib import Path
from migrator.migration.copying.worker import CompareTask, Tools, Worker
from migrator.raft.messages import EpochOffset
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.session import SessionOptions
from migrator.zookeeper.znodes.passwords import PasswordEncoder

async def main():
    task = CompareTask(Path(sys.argv[1]), EpochOffset(1, 5), 1, 0)
    async with Worker(task, Tools(SessionOptions("127.0.0.1:1"), PasswordEncoder("secret", os.urandom))) as worker:
        async for _ in worker.messages(lambda _: print(worker.pid, flush=True)):
            pass

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_worker_whose_parent_was_killed_ends(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    hung_load(tmp_path / "log")
    (tmp_path / "parent.py").write_text(PARENT)
    command: list[str | Path] = [sys.executable, tmp_path / "parent.py", tmp_path / "log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": ROOT}) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        try:
            worker.wait(END_SECONDS)
        finally:
            if worker.is_running():
                worker.kill()


def extra_topics(count: int) -> ModelZooKeeper:
    zookeeper = empty_cluster()
    for number in range(count):
        name = f"extra{number}"
        zookeeper.load({paths.config(f"users/{name}"): b'{"version":1,"config":{"producer_byte_rate":"1"}}'})
    zookeeper.load({paths.config("brokers/1"): b'{"version":1,"config":{"retention.ms":"1"}}'})
    return zookeeper


def test_removals_above_the_bound_are_held_and_the_rest_goes_out() -> None:
    zookeeper = extra_topics(7)
    wanted = empty_cluster()
    wanted.load({paths.config("brokers/1"): b'{"version":1,"config":{"retention.ms":"2"}}'})
    image = image_from(wanted)
    *chunks, end = compare(zookeeper, target(image), 6)
    assert isinstance(end, ReconcileEnd)
    assert end.held is not None
    assert (end.held.count, end.held.bound, len(end.held.examples)) == (7, 6, 5)
    writes = [write for chunk in chunks if isinstance(chunk, WriteChunk) for write in chunk.writes]
    assert [write.entity for write in writes] == ["config brokers/1"]


def test_removals_within_the_bound_make_both_sides_equal() -> None:
    carried_out(extra_topics(7), 8)


def carried_out(zookeeper: ModelZooKeeper, bound: int, allowed: str = "") -> None:
    image = image_from(empty_cluster())
    *chunks, end = compare(zookeeper, target(image), bound, allowed)
    assert end == ReconcileEnd(None)
    for chunk in chunks:
        assert isinstance(chunk, WriteChunk)
        apply(zookeeper, chunk.writes)
    assert list(reconcile(zookeeper, target(image))) == []


def held(zookeeper: ModelZooKeeper, allowed: str = "") -> str:
    """The digest of what is held, with a bound of none."""
    *_, end = compare(zookeeper, target(image_from(empty_cluster())), 0, allowed)
    assert isinstance(end, ReconcileEnd)
    assert end.held is not None
    return end.held.digest


def test_an_order_lets_exactly_those_removals_through_that_were_shown() -> None:
    shown = held(extra_topics(7))
    assert held(extra_topics(8), shown) != shown, "one more is not what was shown"
    assert held(extra_topics(6), shown) != shown
    other = extra_topics(6)
    other.load({paths.config("users/other"): b'{"version":1,"config":{"producer_byte_rate":"1"}}'})
    assert held(other, shown) != shown, "as many, and not the same"
    carried_out(extra_topics(7), 0, shown)


def test_no_message_has_many_operations_whether_it_adds_or_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller decodes a message in one call, and no other thread runs Python meanwhile."""
    monkeypatch.setattr(copying_compare, "CHUNK", 20)
    topics = range(1, 9)
    partitions = [
        PartitionRecord(number, small_uuid(topic), (1,), (1,), (), (), 1, 0, 0, 0)
        for topic in topics
        for number in range(20)
    ]
    image = image_of([*(TopicRecord(f"t{topic}", small_uuid(topic)) for topic in topics), *partitions])
    zookeeper = empty_cluster()
    for wanted in (image, image_from(empty_cluster())):
        *chunks, end = compare(zookeeper, target(wanted), len(topics))
        assert end == ReconcileEnd(None)
        written = [chunk.writes for chunk in chunks if isinstance(chunk, WriteChunk)]
        assert [len(writes) for writes in written] == [1] * len(topics), "each topic has as much as one message takes"
        for writes in written:
            apply(zookeeper, writes)
