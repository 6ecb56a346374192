"""A worker never hangs its reader: it ends with a result, with a reason, or by being killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket

import pytest

from migrator.migration.compare import ReconcileEnd, WriteChunk, compare
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.worker import DecodeTask, Tools, Worker, WorkerFailedError, WorkerProcess, Workers
from migrator.zookeeper.session import SessionOptions
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.migration.images import apply, empty_cluster, image_from, target
from tests.migration.model_zookeeper import ModelZooKeeper


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
                await asyncio.wait_for(read_all(worker), 30)


async def test_a_worker_that_is_killed_is_noticed_at_once() -> None:
    with silent_server() as server:
        async with Worker(DecodeTask(), tools(server.getsockname()[1], 60_000)) as worker:
            reading = asyncio.create_task(read_all(worker))
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(WorkerFailedError, match="killed by signal 9"):
                await asyncio.wait_for(reading, 30)


async def test_leaving_stops_a_worker_that_is_busy() -> None:
    with silent_server() as server:
        async with Worker(DecodeTask(), tools(server.getsockname()[1], 60_000)) as worker:
            pid = worker.pid
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_worker_is_kept_in_advance_and_replaced_when_somebody_kills_it() -> None:
    with silent_server() as server:
        workers = Workers(tools(server.getsockname()[1], 300))
        workers.prepare()
        kept = await spare_of(workers)
        async with workers.worker(DecodeTask()) as first:
            assert first.pid == kept.process.pid
            with pytest.raises(WorkerFailedError, match="no ZooKeeper server answered"):
                await asyncio.wait_for(read_all(first), 30)
        killed = (await spare_of(workers)).process
        pid = killed.pid
        killed.kill()
        await asyncio.to_thread(killed.join)
        async with workers.worker(DecodeTask()) as second:
            assert second.pid != pid
            with pytest.raises(WorkerFailedError, match="no ZooKeeper server answered"):
                await asyncio.wait_for(read_all(second), 30)
        await asyncio.to_thread(workers.close)
    assert multiprocessing.active_children() == []


async def spare_of(workers: Workers) -> WorkerProcess:
    assert workers._spare is not None
    return await asyncio.wrap_future(workers._spare)


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


@pytest.mark.parametrize("bound", [7, None])
def test_removals_within_the_bound_or_forced_make_both_sides_equal(bound: int | None) -> None:
    zookeeper = extra_topics(7)
    image = image_from(empty_cluster())
    *chunks, end = compare(zookeeper, target(image), 8 if bound else None)
    assert end == ReconcileEnd(None)
    for chunk in chunks:
        assert isinstance(chunk, WriteChunk)
        apply(zookeeper, chunk.writes)
    assert list(reconcile(zookeeper, target(image))) == []
