"""Two whole controllers in one process: each has counts and threads of its own, and leaves none behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import urlopen

import pytest

from migrator.config.load import settings_from
from migrator.log.formatting import FormatPlan, format_directories
from migrator.machine import THIS_MACHINE, Machine, machine
from migrator.node.node import run_node
from migrator.node.stop_reason import StopReason
from migrator.observe.loop_health import LoopHealth
from migrator.parts.processes import free_port, port_is_open
from migrator.raft.core import RaftNode
from migrator.raft.transport import TransportError
from migrator.records.versions import parse_version
from migrator.supervision import FailureBook
from migrator.wire.aside import INLINE_BYTES, Lanes
from migrator.wire.client import KafkaClient
from migrator.wire.listener_settings import controller_security
from migrator.wire.schemas import build, request_type
from tests.node.support.cluster import CLUSTER_ID
from tests.patience import PATIENCE_SECONDS

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CREATE_TOPICS = request_type(19, 7)


class Own:
    """One controller, a quorum of itself, and what it is asked."""

    def __init__(self, directory: Path, node_id: int) -> None:
        self.port, self.metrics_port = free_port(), free_port()
        self.keys = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": f"{node_id}@localhost:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://localhost:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "log.dirs": str(directory / str(node_id)),
            "migrator.quorum.require.bootstrap": "false",
            "migrator.metrics.listener": f"localhost:{self.metrics_port}",
        } | self.login("controller")
        self.settings, _ = settings_from(self.keys, "test")
        home = self.settings.metadata_directory
        plan = FormatPlan((home,), home, CLUSTER_ID, node_id, parse_version("3.9"))
        format_directories(plan, random=Random(node_id), now_ms=0)
        self.machine: Machine | None = None

    @staticmethod
    def login(password: str) -> dict[str, str]:
        jaas = f'{MODULE} username="controller" password="{password}" user_controller="controller";'
        return {"listener.name.controller.plain.sasl.jaas.config": jaas}

    @asynccontextmanager
    async def running(self, own_machine: Machine | None = None) -> AsyncIterator[None]:
        failure, ready = StopReason(), asyncio.Event()

        def note() -> None:
            self.machine = machine()
            ready.set()

        run = asyncio.create_task(run_node(self.settings, failure, own_machine=own_machine, when_ready=note))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await ready.wait()
            yield
        finally:
            failure.stop.set()
            await run

    async def ask_much(self, password: str) -> None:
        """Send a request that is decoded beside the event loop."""
        topics = tuple({"name": f"topic-{number}"} for number in range(INLINE_BYTES // 10))
        security = controller_security(settings_from(self.keys | self.login(password), "test")[0])
        client = KafkaClient("localhost", self.port, "client", security=security)
        try:
            await client.request(build(CREATE_TOPICS, topics=topics, validate_only=True), PATIENCE_SECONDS)
        finally:
            await client.close()

    def failed_logins(self) -> float:
        with urlopen(f"http://localhost:{self.metrics_port}/metrics", timeout=PATIENCE_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
        (line,) = (
            line for line in lines if line.startswith('migrator_failed_logins_total{door="listener CONTROLLER"}')
        )
        return float(line.split()[-1])


async def test_controllers_of_one_process_share_no_counts_and_leave_no_threads(tmp_path: Path) -> None:
    """One book of failed logins was everybody's, and the threads for big messages stayed for ever."""
    one, other = Own(tmp_path, 1), Own(tmp_path, 2)
    before = set(threading.enumerate())
    async with one.running(), other.running():
        with pytest.raises(TransportError):
            await one.ask_much("wrong")
        assert await asyncio.to_thread(one.failed_logins) >= 1
        assert await asyncio.to_thread(other.failed_logins) == 0
        await other.ask_much("controller")
        assert any(thread.name.startswith("messages") for thread in set(threading.enumerate()) - before)
        for kind in (FailureBook, Lanes):
            assert len({id(each.own(kind)) for each in (one.machine, other.machine, THIS_MACHINE) if each}) == 3
    names = {thread.name for thread in set(threading.enumerate()) - before}
    left = {name for name in names if name.startswith(("decisions", "messages", "big-messages", "proofs", "log-sync"))}
    assert not left


async def test_a_scrape_looks_at_the_controller_on_its_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of a scrape read the loop's collections while they changed: "dictionary changed size during
    iteration", answered with 500."""
    threads: list[threading.Thread] = []
    status, stall = RaftNode.status, vars(LoopHealth)["recent_stall_ms"].fget

    def noting(read: Any) -> Any:
        def noted(*args: Any) -> Any:
            threads.append(threading.current_thread())
            return read(*args)

        return noted

    monkeypatch.setattr(RaftNode, "status", noting(status))
    monkeypatch.setattr(LoopHealth, "recent_stall_ms", property(noting(stall)))
    own = Own(tmp_path, 1)
    async with own.running():
        threads.clear()
        await asyncio.to_thread(own.failed_logins)
    assert len(threads) >= 2
    assert set(threads) == {threading.current_thread()}


class Watchful(Machine):
    """Notes which ports are open when a segment of the log is closed."""

    def __init__(self, *ports: int) -> None:
        super().__init__()
        self._ports = ports
        self._segments: set[int] = set()
        self.open_at_the_end: list[list[int]] = []

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        descriptor = super().open(path, flags, mode)
        if path.suffix == ".log":
            self._segments.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        if descriptor in self._segments:
            self._segments.remove(descriptor)
            self.open_at_the_end.append([port for port in self._ports if port_is_open(port)])
        super().close(descriptor)


async def test_nobody_can_ask_any_more_when_the_log_is_closed(tmp_path: Path) -> None:
    """The log was closed first. A caller in that moment got no answer, and the controller logged an error."""
    own = Own(tmp_path, 1)
    watchful = Watchful(own.port, own.metrics_port)
    async with own.running(watchful):
        assert watchful.open_at_the_end == []
    assert watchful.open_at_the_end == [[]]
