"""Fixtures of all rooms: a real ZooKeeper with a chroot for each test, stock Kafka, a watch for lost processes."""

from __future__ import annotations

import ctypes
import gc
import itertools
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.interfaces import IAsyncResult

from migrator import looked_up
from migrator.parts import java, processes
from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.values import value
from tests.parts.support import java_archives
from tests.patience import PATIENCE_SECONDS

pytest_plugins = ("tests.lanes", "tests.results")

OUTSIDE_ZOOKEEPER = "MIGRATOR_TEST_ZOOKEEPER"
"""Environment: ``host:port`` of a server to use instead of one of our own. Tests only write below their own chroot."""

PR_SET_CHILD_SUBREAPER = 36
_ENDS_WITH_US = (
    "PythonGatewayServer",
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    processes._GUARDIAN,
)
"""Helpers that watch a pipe from this process and end with it."""

MEMORY = Path("/dev/shm")  # noqa: S108
"""Linux keeps in memory what is there."""
MEMORY_BYTES = 4 << 30
"""Where less is free, tests write to the disk: the directories of two clusters hold less than half of it."""

_chroot_numbers = itertools.count()
_VARIABLES = tuple(os.environ)
"""Of the environment, as the run begins: libraries add some of their own as they are imported."""


def pytest_configure() -> None:
    """A shell's background job inherits that SIGINT is ignored; what tests start would inherit it, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault(java.ARCHIVES, str(java_archives.directory()))
    if "TMPDIR" not in os.environ and _memory_has_room():
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The collector of garbage passes over modules and tests: all of them live until the run ends."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _memory_has_room() -> bool:
    """Whether what tests write may be in memory. On a disk a sync takes 3 ms and the removal of a file 1 ms, and tests
    waited for that more than for all else. None needs a disk: one that fails, fills or forgets is made by its test."""
    if not os.access(MEMORY, os.W_OK):
        return False
    found = os.statvfs(MEMORY)
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= MEMORY_BYTES


@value
class ZooKeeperSpace:
    """One test's own place on a ZooKeeper server. ``hosts`` is the connection string with its chroot."""

    server: str
    chroot: str

    @property
    def hosts(self) -> str:
        return self.server + self.chroot


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``host:port`` of a ZooKeeper server that this test process shares among its tests."""
    outside = os.environ.get(OUTSIDE_ZOOKEEPER)
    if outside:
        yield outside
        return
    java_archives.archive_zookeeper()
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.hosts


@pytest.fixture
def zookeeper(zookeeper_server: str) -> Iterator[ZooKeeperSpace]:
    """An empty chroot of the test's own, removed afterwards."""
    space = ZooKeeperSpace(zookeeper_server, f"/test-{os.getpid()}-{next(_chroot_numbers)}")
    client = connect(zookeeper_server)
    try:
        client.create(space.chroot)
        yield space
        remove_below(client, space.chroot)
    finally:
        disconnect(client)


def remove_below(client: KazooClient, path: str) -> None:
    """All below a path, which kazoo's own way asks for and deletes one after the other, waiting for each answer."""
    found = level = [path]
    while level:
        asked = [(parent, client.get_children_async(parent)) for parent in level]
        level = [f"{parent}/{name}" for parent, names in asked for name in _unless_gone(names) or ()]
        found = found + level
    for deletion in [client.delete_async(each) for each in reversed(found)]:
        _unless_gone(deletion)


def _unless_gone(answer: IAsyncResult) -> Any:
    """The znodes of a session that ends meanwhile are gone with it."""
    with suppress(NoNodeError):
        return answer.get()
    return None


@pytest.fixture
def zookeeper_client(zookeeper: ZooKeeperSpace) -> Iterator[KazooClient]:
    """A started kazoo client whose root is the test's chroot."""
    client = connect(zookeeper.hosts)
    try:
        yield client
    finally:
        disconnect(client)


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A running server for this test alone, which it may stop, kill, pause and restart."""
    java_archives.archive_zookeeper()
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture(scope="session")
def kafka_391() -> StockKafka:
    """Stock Kafka 3.9.1; its jars are fetched by the first test ever that asks."""
    kafka = KafkaRelease("3.9.1").fetch()
    java_archives.archive_kafka(kafka)
    return kafka


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user may enter. pytest keeps its own to itself, also those above `tmp_path`: whenever a
    run begins, it closes them again for all runs of the same user."""
    with tempfile.TemporaryDirectory(prefix="migrator-public-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody uses; more of them from `migrator.parts.processes.free_port`."""
    return processes.free_port()


def connect(hosts: str) -> KazooClient:
    client = KazooClient(hosts=hosts, timeout=10.0)
    client.start(timeout=PATIENCE_SECONDS)
    return client


def disconnect(client: KazooClient) -> None:
    client.stop()
    client.close()


@pytest.fixture(autouse=True)
def process_left_as_found() -> Iterator[None]:
    """Fails a test that changes what all tests of its process share: a later one would fail for it."""
    before = _shared_state()
    yield
    looked_up.forget()
    changed = sorted(name for name, found in _shared_state().items() if found != before[name])
    assert not changed, "the test has left changed: " + ", ".join(changed)


def _shared_state() -> dict[str, object]:
    """SIGINT is not there: an event loop that ends puts Python's own handler in the place of any other."""
    return {
        "the log's level": logging.getLogger().level,
        "whether the log is silenced": logging.root.manager.disable,
        "the working directory": Path.cwd(),
        "the handler of SIGTERM": signal.getsignal(signal.SIGTERM),
        "the handler of SIGHUP": signal.getsignal(signal.SIGHUP),
        **{f"the variable {name}": os.environ.get(name) for name in _VARIABLES},
    }


@pytest.fixture(scope="session", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fails a run whose tests leave processes behind, also such as their own parents left behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    _, running = psutil.wait_procs(
        [child for child in _children() if child.pid not in before], timeout=PATIENCE_SECONDS
    )
    left = [_describe(child) for child in running]
    for child in running:
        child.kill()
    assert not left, "processes left behind:\n" + "\n".join(left)


def _children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if not any(mark in _describe(child) for mark in _ENDS_WITH_US)
    ]


def _describe(child: psutil.Process) -> str:
    try:
        if child.status() == psutil.STATUS_ZOMBIE:
            os.waitpid(child.pid, os.WNOHANG)  # an orphan that was ours to reap
            return "multiprocessing.resource_tracker"
        return f"{child.pid} {' '.join(child.cmdline())}"
    except (psutil.NoSuchProcess, ChildProcessError):
        return "multiprocessing.resource_tracker"
