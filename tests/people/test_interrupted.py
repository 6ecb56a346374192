"""Ctrl-C, or SIGTERM, while a command waits: code 130, a plain line, nothing half-changed, nothing left lying about.

A controller that runs is stopped in good order, as by SIGTERM (tests/node); the drill has tests/drill/test_run.py. A
rollout ends behind the step that it is in.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import psutil
import pytest
from kazoo.client import KazooClient

from migrator.cli.interrupted import INTERRUPTED
from migrator.cli.main import COMMANDS
from migrator.log.meta_properties import MetaProperties, write_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.processes import free_port
from migrator.rpc.operator_socket import SOCKET_DIRECTORY, SOCKET_NAME
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import every_znode
from tests.golden.stock import STOCK_391
from tests.migration.test_abandoned_claim import LeftBehind
from tests.patience import PATIENCE_SECONDS
from tests.people.support.commands import MIGRATOR
from tests.verify.zookeeper.support.writer import Node, write_nodes

pytestmark = pytest.mark.lane("test-all")
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
C, Z = "{file}", "{zookeeper}"
WAIT_FOR_ZOOKEEPER = {
    "preflight": ("-c", C, "--zookeeper", Z),
    "repair": ("partition-states", "-c", C),
    "format": ("-c", C),
    "rollback": ("-c", C, "--without-log"),
    "rehearse": ("-c", C, "--no-spark", "--kafka", "none"),
    "verify": ("-c", C, "--metadata", "{metadata}"),
}
WAIT_FOR_A_CONTROLLER = {
    "status": ("-c", C),
    "top": ("-c", C),
    "pause": ("-c", C, "--reason", "test"),
    "resume": ("-c", C),
    "reopen": ("--reason", "CHG-44", "-c", C),
    "close-way-back": ("--reason", "CHG-45", "-c", C),
    "force": ("reconcile", "-c", C, "--reason", "test"),
    "gates": ("finish", "-c", C),
    "quorum": ("describe", "-c", C),
}
WAIT_FOR_A_LISTENER = {
    "handover": ("check", "-c", C),
}
ENDS_AT_ONCE = {"log", "man", "completion"}
ELSEWHERE = {"ask", "controller", "drill", "rollout"}


class Silence:
    """Servers that accept connections and answer nothing."""

    def __init__(self) -> None:
        self.heard = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._stack = ExitStack()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def listen(self, server: socket.socket) -> None:
        server.setblocking(False)
        self._stack.enter_context(server)
        self._selector.register(server, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._stack.close()
        self._selector.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                self._stack.enter_context(key.fileobj.accept()[0])
                self.heard.set()


class Scene:
    """A controller's file and its directory; ZooKeeper, the controller and its listener are silent."""

    def __init__(self, directory: Path, silence: Silence) -> None:
        self.silence, self.temporary, self.metadata = silence, directory / "temporary", directory / "metadata"
        self.temporary.mkdir()
        self.file = directory / "controller.properties"
        zookeeper = socket.create_server(("127.0.0.1", 0))
        self.zookeeper = f"127.0.0.1:{zookeeper.getsockname()[1]}"
        silence.listen(zookeeper)

    def write(self, port: int) -> None:
        lines = {
            "process.roles": "controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{port}", "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "log.dirs": str(self.metadata), "zookeeper.connect": self.zookeeper,
            "zookeeper.metadata.migration.enable": "true", "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }  # fmt: skip
        self.file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))

    def with_log(self) -> None:
        (self.metadata / DIRECTORY_NAME).mkdir(parents=True)
        shutil.copy(STOCK_391.log, self.metadata / DIRECTORY_NAME / f"{0:020d}.log")
        write_meta_properties(self.metadata, MetaProperties(CLUSTER, 1))

    @contextmanager
    def running(self, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command in a process group of its own, as in a terminal; whatever happens, nothing of it stays."""
        known = {"file": str(self.file), "zookeeper": self.zookeeper, "metadata": str(self.metadata)}
        command = [*MIGRATOR, name, *(argument.format_map(known) for argument in arguments)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def interrupt(self, process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> str:
        """What it says at its end; it leaves no process and no temporary file. A terminal tells the whole group, a
        service manager only the process."""
        family = psutil.Process(process.pid).children(recursive=True)
        if number is signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == INTERRUPTED, said
        assert said.splitlines()[-1].startswith("Interrupted. "), said
        assert "Traceback" not in said
        assert list(self.temporary.iterdir()) == []
        assert psutil.wait_procs(family, timeout=PATIENCE_SECONDS)[1] == []
        return said


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Silence() as silence:
        scene = Scene(tmp_path, silence)
        scene.write(free_port())
        yield scene


def while_it_waits(scene: Scene, name: str, arguments: tuple[str, ...], number: signal.Signals = signal.SIGINT) -> str:
    with scene.running(name, *arguments) as process:
        while not scene.silence.heard.wait(0.1):
            assert process.poll() is None, process.communicate()[0]
        return scene.interrupt(process, number)


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", WAIT_FOR_ZOOKEEPER)
def test_while_zookeeper_does_not_answer(name: str, scene: Scene) -> None:
    if name != "format":
        scene.with_log() if name == "verify" else scene.metadata.mkdir()
    before = content(scene.metadata)
    while_it_waits(scene, name, WAIT_FOR_ZOOKEEPER[name])
    assert content(scene.metadata) == before


@pytest.mark.parametrize("name", ["rehearse", "verify"])
def test_sigterm_while_zookeeper_does_not_answer(name: str, scene: Scene) -> None:
    """Both work in a temporary directory."""
    scene.with_log() if name == "verify" else scene.metadata.mkdir()
    while_it_waits(scene, name, WAIT_FOR_ZOOKEEPER[name], signal.SIGTERM)


@pytest.mark.parametrize("name", WAIT_FOR_A_CONTROLLER)
def test_while_a_controller_does_not_answer(name: str, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = scene.metadata / SOCKET_DIRECTORY
    folder.mkdir(parents=True, mode=0o700)
    monkeypatch.chdir(folder)  # its whole path may be too long for a socket
    server = socket.socket(socket.AF_UNIX)
    server.bind(SOCKET_NAME)
    server.listen()
    scene.silence.listen(server)
    while_it_waits(scene, name, WAIT_FOR_A_CONTROLLER[name])


@pytest.mark.parametrize("name", WAIT_FOR_A_LISTENER)
def test_while_a_listener_does_not_answer(name: str, scene: Scene) -> None:
    scene.metadata.mkdir()
    server = socket.create_server(("127.0.0.1", 0))
    scene.write(server.getsockname()[1])
    scene.silence.listen(server)
    while_it_waits(scene, name, WAIT_FOR_A_LISTENER[name])


def test_no_command_is_forgotten() -> None:
    tested = [*WAIT_FOR_ZOOKEEPER, *WAIT_FOR_A_CONTROLLER, *WAIT_FOR_A_LISTENER]
    assert set(tested) | ENDS_AT_ONCE | ELSEWHERE == set(COMMANDS)


def until_said(process: subprocess.Popen[str], text: str) -> None:
    """Read its output until then."""
    assert process.stdout is not None
    said = ""
    while text not in said:
        more = process.stdout.read(1)
        assert more, said
        said += more


def test_at_a_question(scene: Scene, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path) -> None:
    """Before what cannot be undone."""
    left = LeftBehind(zookeeper_client, zookeeper.hosts, tmp_path)
    before = every_znode(left.client)
    with scene.running("rollback", "-c", str(left.file), "--without-log") as process:
        until_said(process, "Type the cluster id")
        scene.interrupt(process)
    assert every_znode(left.client) == before


def both_sides_as_files(scene: Scene, directory: Path) -> tuple[str, ...]:
    scene.with_log()
    above: list[Node] = [("/cluster", None, 0)]
    write_nodes(directory / "data", [*above, (paths.CLUSTER_ID, encode_cluster_id(CLUSTER), 0)])
    files = ("--zookeeper-files", str(directory / "data"), "--metadata", "{metadata}")
    return (*files, "--master", "local[2]", "--page", str(directory / "page.html"))


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("starting Spark", signal.SIGINT),
        ("comparing everything in Spark", signal.SIGINT),
        ("comparing everything in Spark", signal.SIGTERM),
    ],
)
def test_while_spark_compares(phase: str, number: signal.Signals, scene: Scene, tmp_path: Path) -> None:
    with scene.running("verify", *both_sides_as_files(scene, tmp_path)) as process:
        until_said(process, phase)
        said = scene.interrupt(process, number)
    assert "Neither side was changed" in said
    assert not (tmp_path / "page.html").exists()
