"""Each mistake of `MISTAKES`, made against real parts: what is said, what to do about it, and the exit code."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from migrator.drill.cluster import MIGRATOR
from migrator.errors import ExitCode
from tests.conftest import connect, disconnect
from tests.patience import PATIENCE_SECONDS
from tests.people.support.mistakes import MISTAKES, Ends, Mistake
from tests.people.support.world import Scene, World
from tests.preflight.support.ready_cluster import answering_broker

CHROOT = "/mistakes"


@pytest.fixture(scope="module")
def world(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Made once: none of the mistakes changes it."""
    root = connect(zookeeper_server)
    root.create(CHROOT)
    client = connect(zookeeper_server + CHROOT)
    with answering_broker(add_partitions_to_txn=4, fetch=17) as port:
        made = World(client, zookeeper_server + CHROOT, tmp_path_factory.mktemp("world"), port)
        try:
            yield made
        finally:
            made.running.kill()
            disconnect(client)
            root.delete(CHROOT, recursive=True)
            disconnect(root)


@pytest.fixture
def scene(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene(world, tmp_path, request.addfinalizer)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_answer_says_what_is_wrong_and_what_to_do(mistake: Mistake, scene: Scene) -> None:
    words = mistake.made(scene)
    expected = [mistake.says.format(**vars(scene)), mistake.remedy.format(**vars(scene))]
    said, code = (stopped_when_said if mistake.ends is Ends.RUNS_ON else answered)(words, scene, expected)
    for text in expected:
        assert text in said
    assert code == (ExitCode.OK if mistake.ends is Ends.RUNS_ON else mistake.ends.value)
    assert "Traceback" not in said
    assert "kazoo" not in said


def answered(words: Sequence[str], scene: Scene, _: Sequence[str]) -> tuple[str, int]:
    """What a command said that ends by itself; its lines as on a wide terminal."""
    done = subprocess.run(
        [MIGRATOR, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=scene.environment,
        cwd=scene.directory,
        check=False,
    )
    return " ".join(done.stdout.split()), done.returncode


def stopped_when_said(words: Sequence[str], scene: Scene, expected: Sequence[str]) -> tuple[str, int]:
    """What a controller said up to its end; it is stopped when it has said all that is expected, or never will."""
    process = subprocess.Popen(
        [MIGRATOR, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=scene.directory
    )
    assert process.stdout is not None
    impatience = threading.Timer(PATIENCE_SECONDS, process.terminate)
    impatience.start()
    said, is_told = "", False
    for line in process.stdout:
        said += f" {line.strip()}"
        if not is_told and all(text in said for text in expected):
            is_told = True
            process.terminate()
    impatience.cancel()
    process.stdout.close()
    return said, process.wait()
