"""Every task has an owner: the table of all kinds, what an error does to each, and that none is started without one."""

from __future__ import annotations

import ast
import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from migrator import supervision
from migrator.errors import InvariantViolation, OperatorError
from migrator.machine import Machine, machine, running_on
from migrator.node.core import NodeCore
from migrator.supervision import FailureBook, OnError, Supervisor, TaskKind
from tests.node.support.cluster import Cluster, running, until

PACKAGE = Path(supervision.__file__).parent
KINDS = {
    "ballot": OnError.RESTART,
    "image-comparison": OnError.RESTART,
    "image-proof": OnError.RESTART,
    "access-control-entries": OnError.STOP,
    "broker-channel": OnError.RESTART,
    "broker-channel-closing": OnError.DROP,
    "broker-channels-closing": OnError.DROP,
    "broker-grace": OnError.DROP,
    "broker-planner": OnError.RESTART,
    "broker-witness": OnError.RESTART,
    "client-answers": OnError.DROP,
    "controller-registration": OnError.RESTART,
    "voter-reassignment": OnError.RESTART,
    "own-voter-entry": OnError.RESTART,
    "stopped-at-the-start": OnError.STOP,
    "address-gossip": OnError.RESTART,
    "roll-call": OnError.RESTART,
    "zookeeper-away": OnError.RESTART,
    "standby": OnError.RESTART,
    "zookeeper-address": OnError.DROP,
    "fetch-reads": OnError.STOP,
    "leadership": OnError.STOP,
    "listener-acceptor": OnError.RESTART,
    "listener-connection": OnError.DROP,
    "listener-held-socket": OnError.DROP,
    "listener-watch": OnError.RESTART,
    "slow-peers": OnError.DROP,
    "connection-bounds": OnError.RESTART,
    "log-sync": OnError.STOP,
    "loop-probe": OnError.DROP,
    "metadata-applier": OnError.STOP,
    "propagation": OnError.DROP,
    "migration-timer": OnError.STOP,
    "migration-work": OnError.STOP,
    "quorum-exchange": OnError.DROP,
    "quorum-timer": OnError.STOP,
    "snapshot-download": OnError.STOP,
    "snapshots": OnError.RESTART,
    "voter-question": OnError.DROP,
    "zookeeper-connection-news": OnError.STOP,
}
"""Every long-lived task, timer and callback of a controller."""

STARTERS = {
    "create_task",
    "ensure_future",
    "call_later",
    "call_at",
    "call_soon",
    "call_soon_threadsafe",
    "start_new_thread",
    "Thread",
    "ThreadPoolExecutor",
    "threads",
    "ProcessPoolExecutor",
    "TaskGroup",
    "Process",
}
"""Names by which something begins to run. What is awaited where it begins (`to_thread`, `run_in_executor`) has its
awaiting task for an owner."""

UNOWNED = {
    ("supervision.py", "create_task"): "the construct itself",
    ("supervision.py", "call_later"): "the construct itself",
    ("supervision.py", "call_soon"): "the construct itself",
    ("supervision.py", "call_soon_threadsafe"): "the construct itself",
    ("observe/loop_health.py", "call_soon"): "adds two counters; the next turn's call does the same",
    ("wire/frames.py", "call_later"): "asyncio's own method, on a connection that is closed already",
    ("machine.py", "ThreadPoolExecutor"): "whoever asks the machine for threads shuts them down",
    ("node/quorum/runner.py", "threads"): "the log-sync task awaits what runs in it",
    ("wire/aside.py", "threads"): "whoever gave it work awaits it; fetches of published keys log their own errors",
    ("migration/background.py", "threads"): "tasks of the kind migration-work await what runs in it",
    ("migration/copying/worker.py", "ThreadPoolExecutor"): "tasks of the kind migration-work await what runs in it",
    ("migration/copying/worker.py", "Process"): "the task that reads its pipe learns of its end",
    (
        "migration/copying/worker.py",
        "Thread",
    ): "in the worker process: its only work is to end that process with its parent",
    ("parts/usage.py", "Process"): "psutil's view of a process that runs",
    ("observe/metrics_endpoint.py", "Thread"): "serves the metrics; who asks for them notices its end",
    ("node/metrics.py", "call_soon_threadsafe"): "the scrape that asked gets the reading, or its error",
    ("observe/authorizer_log.py", "Thread"): "writes lines; it goes on after each error, and a metric says so",
    ("parts/usage.py", "Thread"): "of commands, not of a controller",
    ("cli/progress.py", "Thread"): "of commands, not of a controller",
    ("cli/rollout_watch.py", "create_task"): "the context that starts it ends it",
    ("rollout/executors/bounded.py", "create_task"): "the call that starts them ends them, and hears of their end",
    ("rollout/files/property_files.py", "TaskGroup"): "of commands; the call that starts it hears of each end",
    ("rollout/files/property_files.py", "create_task"): "the group above owns them",
    ("rollout/meanwhile.py", "create_task"): "of commands; whoever starts it ends it",
}


@functools.cache
def sources() -> Sequence[tuple[str, ast.Module]]:
    """All of the package but the drill, whose processes are throw-away, and what protoc wrote."""
    named = ((path.relative_to(PACKAGE).as_posix(), path) for path in sorted(PACKAGE.rglob("*.py")))
    return [
        (name, ast.parse(path.read_text(encoding="utf-8")))
        for name, path in named
        if not name.startswith(("drill/", "rpc/stubs/"))
    ]


@functools.cache
def calls(tree: ast.Module) -> Sequence[tuple[ast.Call, str, str]]:
    """Every call: the node, the name that is called, and what it is called on."""
    return list(_calls(tree))


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node, node.func.attr, ast.unparse(node.func.value)
            elif isinstance(node.func, ast.Name):
                yield node, node.func.id, ""


def test_nothing_is_started_without_an_owner() -> None:
    found = {
        (name, called)
        for name, tree in sources()
        for _, called, on in calls(tree)
        if called in STARTERS and "supervisor" not in on
    }
    assert found == set(UNOWNED)


def test_the_table_lists_every_kind_and_each_is_used_as_it_says() -> None:
    declared: dict[str, OnError] = {}
    for name, tree in sources():
        constants = {
            target.id: statement.value
            for statement in ast.walk(tree)
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)
            for target in statement.targets
            if isinstance(target, ast.Name) and ast.unparse(statement.value.func) == "TaskKind"
        }
        for constant, made in constants.items():
            kind, on_error = (ast.literal_eval(made.args[0]), OnError[ast.unparse(made.args[1]).rpartition(".")[2]])
            declared[kind] = on_error
            used = {
                called for node, called, _ in calls(tree) if node.args and ast.unparse(node.args[0]).endswith(constant)
            }
            used |= {called for node, called, on in calls(tree) if "supervisor" in on and constant in ast.unparse(node)}
            assert used, f"{name}: nothing is started as {constant}"
            assert ("keep" in used) is (on_error is OnError.RESTART), f"{name}: {constant} is started by {used}"
    assert declared == KINDS


class Planted:
    """Work that fails ``times`` and then ends."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times
        self.done = asyncio.Event()

    async def work(self) -> None:
        if self.left:
            self.left -= 1
            raise self.error
        self.done.set()

    def callback(self) -> None:
        raise self.error


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "BACKOFF_MIN_SECONDS", 0.001)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("name", "on_error"), KINDS.items())
async def test_an_error_in_a_task_does_what_its_kind_says(name: str, on_error: OnError) -> None:
    failures: list[BaseException] = []
    supervisor, kind, planted = (
        Supervisor(failures.append),
        TaskKind(name, on_error),
        Planted(LookupError("planted"), 1),
    )
    before = machine().own(FailureBook).read()[name].count if name in machine().own(FailureBook).read() else 0
    if on_error is OnError.RESTART:
        await supervisor.keep(kind, planted.work)
        assert planted.done.is_set()
        assert failures == []
    else:
        with pytest.raises(LookupError):
            await supervisor.spawn(kind, planted.work())
        await asyncio.sleep(0)
        assert failures == ([planted.error] if on_error is OnError.STOP else [])
    assert machine().own(FailureBook).read()[name].count == before + 1
    assert machine().own(FailureBook).read()[name].last_error == "LookupError"
    await supervisor.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("error", [InvariantViolation("planted"), OperatorError("planted")])
async def test_what_only_a_person_can_mend_is_not_tried_again(error: Exception) -> None:
    failures: list[BaseException] = []
    planted = Planted(error, 10)
    await Supervisor(failures.append).keep(TaskKind("test", OnError.RESTART), planted.work)
    assert failures == [error]
    assert planted.left == 9


@pytest.mark.usefixtures("impatient")
async def test_a_task_that_lasts_outlives_the_cancellation_of_what_it_waits_for_but_not_its_own() -> None:
    began: list[asyncio.Future[None]] = []

    async def work() -> None:
        began.append(asyncio.get_running_loop().create_future())
        await began[-1]

    supervisor = Supervisor()
    task = supervisor.keep(TaskKind("test", OnError.RESTART), work)
    await until(lambda: len(began) == 1, "it works")
    began[0].cancel()
    await until(lambda: len(began) == 2, "it works again")
    assert machine().own(FailureBook).read()["test"].last_error == "AbandonedError"
    await supervisor.close()
    assert task.cancelled()
    assert len(began) == 2


async def test_what_a_request_begins_for_its_component_is_no_part_of_the_request() -> None:
    """A leader that is elected by an answer would else work as that peer's request until the end of its leadership:
    once the peer has hung up, no step of a plan would be written."""
    request: ContextVar[str] = ContextVar("request", default="none")
    supervisor, loop, other, kind = Supervisor(), asyncio.get_running_loop(), Machine(), TaskKind("x", OnError.DROP)
    with running_on(other):
        own = Supervisor()
    seen: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

    def look() -> None:
        seen.put_nowait((request.get(), machine() is other))

    async def work() -> None:
        look()

    request.set("a peer's")
    for owner in (supervisor, own):
        owner.spawn(kind, work())
        owner.keep(kind, work)
        owner.call_soon(kind, look)
        owner.call_later(kind, 0, look)
        owner.call_soon_threadsafe(loop, kind, look)
    found = [await seen.get() for _ in range(10)]
    assert sorted(found) == [("none", False)] * 5 + [("none", True)] * 5


async def test_an_error_in_a_timer_or_on_another_thread_stops_the_process() -> None:
    failures: list[BaseException] = []
    supervisor, kind, planted = Supervisor(failures.append), TaskKind("test", OnError.STOP), Planted(LookupError(), 1)
    loop = asyncio.get_running_loop()
    supervisor.call_later(kind, 0, planted.callback)
    supervisor.call_soon(kind, planted.callback)
    await asyncio.to_thread(supervisor.call_soon_threadsafe, loop, kind, planted.callback)
    await until(lambda: len(failures) == 3, "all three failures")


async def test_what_comes_from_another_thread_runs_on_the_machine_of_the_controller() -> None:
    """It ran on that of the process: what it started was counted there, and no metric showed it."""
    own, loop = Machine(), asyncio.get_running_loop()
    with running_on(own):
        supervisor = Supervisor()
    on: list[Machine] = []

    def note() -> None:
        on.append(machine())

    kind = TaskKind("test", OnError.DROP)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(supervisor.call_soon_threadsafe, loop, kind, note)
        thread.submit(supervisor.call_soon_threadsafe, loop, kind, fails)
    await until(lambda: bool(own.own(FailureBook).read()), "the failure")
    assert on == [own]
    assert machine().own(FailureBook) is not own.own(FailureBook)


# Planted into a controller: each row breaks one thing of a running node.


def fails(*_: Any, **__: Any) -> Any:
    raise LookupError("planted")


async def fails_soon(*_: Any, **__: Any) -> Any:
    raise LookupError("planted")


def break_sync(node: NodeCore, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node.storage.log, "sync", fails)


def break_timer(node: NodeCore, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node.quorum._core, "deadline", fails)


def break_applier(node: NodeCore, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(node.metadata), "is_caught_up", property(lambda _: False))
    patch.setattr(node.metadata, "_advance", fails)
    node.metadata._wake()


def break_leadership(node: NodeCore, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node.controller, "run_due", fails_soon)


STOPPED_BY = {
    "log-sync": break_sync,
    "quorum-timer": break_timer,
    "metadata-applier": break_applier,
    "leadership": break_leadership,
}


@pytest.mark.parametrize("kind", STOPPED_BY)
async def test_a_controller_that_cannot_work_stops(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, 1)
    cluster.format()
    node = cluster.start(1)
    await cluster.leader()
    STOPPED_BY[kind](node, monkeypatch)
    await until(lambda: bool(cluster.failures), "the failure")
    assert isinstance(cluster.failures[0], LookupError)
    monkeypatch.undo()
    await cluster.stop(1)


async def test_snapshots_that_fail_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "BACKOFF_MIN_SECONDS", 0.001)
    monkeypatch.setattr("migrator.node.snapshotter.CHECK_SECONDS", 0.001)
    runs = []

    def fails_twice(_: object) -> bool:
        runs.append(1)
        if len(runs) <= 2:
            raise LookupError("planted")
        return False

    monkeypatch.setattr("migrator.node.snapshotter.Snapshotter._is_due", fails_twice)
    async with running(tmp_path, 1) as cluster:
        await cluster.leader()
        await until(lambda: len(runs) > 3, "a run after the failures")


async def test_an_exchange_that_fails_unexpectedly_is_one_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        send: Callable[..., Awaitable[Any]] = follower.quorum._transport.send
        left = [1, 1, 1]

        async def fails_thrice(*request: Any) -> Any:
            if left:
                left.pop()
                raise LookupError("planted")
            return await send(*request)

        monkeypatch.setattr(follower.quorum._transport, "send", fails_thrice)
        await until(lambda: not left, "the failures")
        leader = await cluster.leader()
        await cluster.agree(leader.metadata.end_offset)
