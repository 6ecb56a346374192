"""Access lists and labels of a property file stay, beside mode and owner; otherwise the file is not written."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from migrator.rollout.executors.scripts import NOT_KEPT, WRITE
from tests.rollout.test_links import busybox

OLD, NEW = b"ssl.key.password=x\n", b"ssl.key.password=x\nnode.id=1\n"
KAFKA = 65534
ACCESS, NOTE = "system.posix_acl_access", "user.note"
NO_ID = 0xFFFFFFFF
OWNER, USER, GROUP, MASK, OTHERS = 1, 2, 4, 16, 32
LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((OWNER, 6, NO_ID), (USER, 4, 1000), (GROUP, 0, NO_ID), (MASK, 4, NO_ID), (OTHERS, 0, NO_ID))
)
"""user:1000:r--, group::---, mask::r--: the mode looks like 0640, and the group may not read."""


def with_attributes(path: Path, owner: int) -> None:
    """Skips where the file system has none."""
    path.write_bytes(OLD)
    os.chown(path, owner, owner)
    try:
        os.setxattr(path, ACCESS, LIST)
        os.setxattr(path, NOTE, b"kept")
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip("this file system has no access lists")
    assert path.stat().st_mode & 0o777 == 0o640


def attributes(path: Path) -> Mapping[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def write(path: Path, search: str) -> subprocess.CompletedProcess[bytes]:
    expected, wanted = (hashlib.sha256(each).hexdigest() for each in (OLD, NEW))
    command = [shutil.which("sh", path=search) or "sh", "-c", WRITE, "migrator", str(path), f"{path}.before"]
    content = f"migrator-sha256 {expected} {wanted}\n".encode() + NEW
    return subprocess.run(command, input=content, env={"PATH": search}, capture_output=True, check=False)


@pytest.fixture(
    params=[
        os.geteuid(),
        pytest.param(KAFKA, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")),
    ],
    ids=["own", "of the service"],
)
def path(request: pytest.FixtureRequest, public: Path) -> Path:
    """In a directory of its owner."""
    found = public / "conf" / "server.properties"
    found.parent.mkdir()
    os.chown(found.parent, request.param, request.param)
    with_attributes(found, request.param)
    return found


def test_coreutils_keep_all_of_it(path: Path) -> None:
    before = attributes(path)
    written = write(path, os.environ["PATH"])
    assert (written.returncode, written.stderr) == (0, b"")
    assert path.read_bytes() == NEW
    assert attributes(path) == attributes(path.with_name(f"{path.name}.before")) == before


def test_a_link_has_what_the_file_behind_it_has(path: Path) -> None:
    """Its own mode is 0777."""
    link = path.with_name("link.properties")
    link.symlink_to(path.name)
    os.chown(link, path.stat().st_uid, path.stat().st_gid, follow_symlinks=False)
    before = attributes(path)
    assert write(link, os.environ["PATH"]).returncode == 0
    assert link.is_symlink()
    backup = link.with_name(f"{link.name}.before")
    assert (path.read_bytes(), backup.read_bytes()) == (NEW, OLD)
    assert attributes(path) == attributes(backup) == before


def test_what_cannot_be_kept_is_not_written(path: Path, public: Path) -> None:
    """The cp is that of busybox; the access list can be seen."""
    if shutil.which("busybox") is None and "CI" not in os.environ:
        pytest.skip("there is no busybox here")
    search = busybox(public / "bin")
    (search / "ls").unlink()
    (search / "ls").symlink_to(str(shutil.which("ls")))
    before = attributes(path)
    written = write(path, str(search))
    assert written.returncode == NOT_KEPT
    before_and_after = written.stderr.decode().splitlines()
    assert before_and_after[0].startswith("access list of the old file: ")
    assert before_and_after[1].startswith("and of the new one: ")
    assert all(line.partition(": ")[2] for line in before_and_after), before_and_after
    assert b"password" not in written.stderr
    assert (path.read_bytes(), attributes(path)) == (OLD, before)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    os.removexattr(path, ACCESS)
    assert write(path, str(search)).returncode == 0
    assert path.read_bytes() == NEW
