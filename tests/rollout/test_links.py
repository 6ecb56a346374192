"""Root reads and writes property files in directories of the service's user, who may swap any name there at any time:
he must not reach with root's rights what he could not reach with his own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from migrator.rollout.executors.scripts import (
    MAY_NOT_LOOK,
    NO_SUCH_FILE,
    NOT_AS_ROOT,
    NOT_REGULAR,
    OTHER_DIGEST,
    READ,
    READ_GROWING,
    WRITE,
    head_of,
)
from migrator.values import value
from tests.lanes import examples
from tests.rollout.support.hosts import digest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")
BEFORE_A_MERGE = pytest.mark.lane("test-all")
KAFKA = 65534
"""The user of the service here: every machine has it."""
CONTENT, NEW = b"zookeeper.connect=z:2181\n", b"zookeeper.connect=z:2181\nnode.id=1\n"
SECRET = b"s3cr3t of root\n"
NAME = "server.properties"


@value
class Hosted:
    """``theirs`` is the service's own directory; ``of_root`` has the same names, and is for root alone. ``shell``: with
    the PATH that goes with it."""

    shell: tuple[str, ...]
    environment: Mapping[str, str]
    theirs: Path
    of_root: Path

    @property
    def path(self) -> Path:
        return self.theirs / "conf" / NAME

    @property
    def backup(self) -> Path:
        return self.path.with_name(f"{NAME}.before")

    def read(self, path: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return self._run(READ, str(path or self.path))

    def fetch(self, path: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return self._run(READ_GROWING, str(path or self.path))

    def write(self, path: Path | None = None, before: bytes = CONTENT) -> int:
        path = path or self.path
        return self._run(
            WRITE, str(path), f"{path}.before", sends=head_of(digest(before), digest(NEW)) + NEW
        ).returncode

    def _run(self, script: str, *words: str, sends: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [*self.shell, "-c", script, "migrator", *words]
        return subprocess.run(command, input=sends, env=dict(self.environment), capture_output=True, check=False)


def busybox(directory: Path) -> Path:
    """A PATH with busybox alone. Its ``su`` is left out by Debian: the real one is there instead."""
    directory.mkdir()
    subprocess.run(["busybox", "--install", "-s", str(directory)], check=True)
    if not (directory / "su").exists():
        (directory / "su").symlink_to(str(shutil.which("su")))
    return directory


@pytest.fixture(params=["dash", *(pytest.param(name, marks=BEFORE_A_MERGE) for name in ("bash", "busybox sh"))])
def host(request: pytest.FixtureRequest, public: Path) -> Hosted:
    words = request.param.split()
    found = shutil.which(words[0])
    if found is None and "CI" not in os.environ:
        pytest.skip(f"there is no {words[0]} here")
    path = str(busybox(public / "bin")) if words[0] == "busybox" else os.environ["PATH"]
    hosted = Hosted((str(found), *words[1:]), {"PATH": path}, public / "theirs", public / "of root")
    for directory in (hosted.path.parent, hosted.of_root):
        directory.mkdir(parents=True)
        file = directory / NAME
        file.write_bytes(CONTENT)
        file.chmod(0o600)
    (hosted.of_root / "secret").write_bytes(SECRET)
    hosted.of_root.chmod(0o700)
    for owned in (hosted.theirs, hosted.path.parent, hosted.path):
        os.chown(owned, KAFKA, KAFKA)
    return hosted


def state(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Of every file: inode, owner, mode and content; of the directory, too."""
    return {
        str(path): (found.st_ino, found.st_uid, found.st_mode, path.read_bytes() if path.is_file() else b"")
        for path in (directory, *directory.rglob("*"))
        for found in [path.lstat()]
    }


def attack(host: Hosted, seed: int, ready: int) -> None:
    """The service's user turns any name into a link, and back, over and over."""
    chance, conf, away = random.Random(seed), host.path.parent, host.theirs / "away"

    def put(target: str, name: Path) -> None:
        new = host.theirs / "link"
        new.symlink_to(host.of_root / target)
        new.rename(name)

    def honest() -> None:
        new = host.theirs / "file"
        new.write_bytes(CONTENT)
        new.rename(host.path)

    def elsewhere() -> None:
        conf.rename(away)
        conf.symlink_to(host.of_root)
        for _ in range(chance.randrange(2000)):
            pass
        conf.unlink()
        away.rename(conf)

    def temporary() -> None:
        for name in conf.glob("*.new.*"):
            put(NAME, name)

    ways = [honest, honest, temporary, temporary, elsewhere, host.backup.unlink]
    ways += [partial(put, target, host.path) for target in (NAME, "secret", ".")]
    ways += [partial(put, target, host.backup) for target in ("made", ".")]
    parent = os.getppid()
    os.write(ready, b".")
    while os.getppid() == parent:
        with contextlib.suppress(OSError):
            chance.choice(ways)()


@contextlib.contextmanager
def attacked(host: Hosted, seed: int) -> Iterator[None]:
    """With a process of the service's user that attacks."""
    reads, writes = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.setgroups([])
            os.setgid(KAFKA)
            os.setuid(KAFKA)
            attack(host, seed, writes)
        finally:
            os._exit(1)
    try:
        os.close(writes)
        assert os.read(reads, 1) == b"."
        yield
        assert os.waitpid(process, os.WNOHANG) == (0, 0), "it attacked all the time"
    finally:
        os.close(reads)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def link(at: Path, to: Path) -> None:
    """As the service's user does it."""
    if at.is_dir():
        shutil.rmtree(at)
    else:
        at.unlink(missing_ok=True)
    at.symlink_to(to)
    os.chown(at, KAFKA, KAFKA, follow_symlinks=False)


def hard_link(host: Hosted) -> None:
    host.path.unlink()
    os.link(host.of_root / NAME, host.path)


PLACES: Mapping[str, Callable[[Hosted], None]] = {
    "file": lambda host: link(host.path, host.of_root / NAME),
    "hard link": hard_link,
    "nothing there": lambda host: link(host.path, host.of_root / "made"),
    "directory": lambda host: link(host.path.parent, host.of_root),
    "backup": lambda host: link(host.backup, host.of_root / "made"),
    "backup in a directory": lambda host: link(host.backup, host.of_root),
    "file is a directory": lambda host: link(host.path, host.of_root),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_link_of_the_service_leads_root_nowhere(host: Hosted, place: str) -> None:
    PLACES[place](host)
    before = state(host.of_root)
    if not place.startswith("backup"):
        for read in (host.read(), host.fetch()):
            assert read.returncode in (NO_SUCH_FILE, MAY_NOT_LOOK, NOT_AS_ROOT, NOT_REGULAR)
            assert read.stdout == b""
        assert host.write() in (OTHER_DIGEST, NOT_AS_ROOT)
    else:
        assert host.write() in (0, NOT_AS_ROOT)
    assert state(host.of_root) == before


def test_the_files_of_the_service_are_written_as_before(host: Hosted) -> None:
    host.path.chmod(0o640)
    line = b"migrator-sha256 " + hashlib.sha256(CONTENT).hexdigest().encode() + b"\n"
    assert host.read().stdout == host.fetch().stdout == line + CONTENT
    assert host.write() == 0
    assert (host.path.read_bytes(), host.backup.read_bytes()) == (NEW, CONTENT)
    assert {(each.stat().st_uid, each.stat().st_mode & 0o777) for each in host.path.parent.iterdir()} == {
        (KAFKA, 0o640)
    }
    assert sorted(each.name for each in host.path.parent.iterdir()) == [NAME, host.backup.name]


def test_links_that_root_has_set_lead_where_they_led(host: Hosted) -> None:
    etc = host.theirs.parent / "etc"
    etc.mkdir()
    (etc / "kafka").symlink_to("../theirs/conf")
    assert host.write(etc / "kafka" / NAME) == 0
    assert (host.path.read_bytes(), host.backup.read_bytes()) == (NEW, CONTENT)
    beside = etc / NAME
    beside.symlink_to(host.path)
    assert host.write(beside, NEW) == 0
    assert beside.is_symlink()
    assert Path(f"{beside}.before").read_bytes() == NEW
    assert host.path.stat().st_uid == KAFKA
    assert host.read(beside).stdout.endswith(NEW)


def test_a_file_of_the_service_in_a_directory_of_root(host: Hosted) -> None:
    path = host.of_root / NAME
    os.chown(path, KAFKA, KAFKA)
    assert host.write(path) == 0
    assert (path.read_bytes(), path.stat().st_uid) == (NEW, KAFKA)
    assert sorted(each.name for each in host.of_root.iterdir()) == ["secret", NAME, f"{NAME}.before"]


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o1777])
def test_a_directory_that_many_may_write_to_is_refused(host: Hosted, mode: int) -> None:
    for directory in (host.theirs, host.path.parent):
        os.chown(directory, 0, 0)
    host.path.unlink()
    host.path.parent.chmod(mode)
    assert host.read().returncode == NO_SUCH_FILE
    host.path.write_bytes(CONTENT)
    host.path.chmod(0o600)
    assert host.write() == NOT_AS_ROOT
    assert (host.path.read_bytes(), len(list(host.path.parent.iterdir()))) == (CONTENT, 1)


def test_a_file_of_root_in_a_directory_of_the_service_is_refused(host: Hosted) -> None:
    """Its owner could not be kept without root's rights."""
    os.chown(host.path, 0, 0)
    host.path.chmod(0o644)
    assert host.write() == NOT_AS_ROOT
    assert (host.path.read_bytes(), host.backup.exists()) == (CONTENT, False)


def test_a_race_with_the_service_is_never_won(host: Hosted) -> None:
    seed = random.randrange(1 << 30)
    before = state(host.of_root)
    with attacked(host, seed):
        for _ in range(examples(15)):
            host.write()
            assert SECRET not in host.read().stdout + host.fetch().stdout, f"seed {seed}"
    assert state(host.of_root) == before, f"seed {seed}"
    assert [path for path in host.theirs.rglob("*") if path.lstat().st_uid == 0] == [], f"seed {seed}"
