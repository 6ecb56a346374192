"""Large files of a host come to this machine's disk: whole or not at all, in little memory, also while they grow."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import stat
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.log.errors import StorageError
from migrator.rollout.executors import executors
from migrator.rollout.executors.bounded import Incoming, Memory, TooLargeError
from migrator.rollout.executors.presets import PRESETS
from migrator.rollout.executors.scripts import DIGEST_LINE
from migrator.rollout.ports import ExecutorError
from tests.patience import PATIENCE_SECONDS
from tests.rollout.support.hosts import Hands, digest, executor, node, running
from tests.rollout.support.small_disk import small_files
from tests.rollout.support.sshd import LoopbackSshd, require_sshd
from tests.rollout.test_executors import WORDED

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where it goes."""
    (tmp_path / "archive").mkdir()
    return tmp_path / "archive" / "00000000000000000000.log"


def segment(tmp_path: Path, size: int = 3 * MIB) -> Path:
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(range(256)) * (size // 256))
    return path


def fetch(hands: Hands, file: Path, seconds: float = PATIENCE_SECONDS) -> bool:
    return asyncio.run(hands.executor.fetch(hands.node, str(hands.path), file, seconds=seconds))


@pytest.mark.parametrize("preset", ["local", pytest.param("ssh", marks=pytest.mark.lane("test-all"))])
def test_a_file_that_is_too_large_to_be_held_is_fetched(preset: str, tmp_path: Path, file: Path) -> None:
    there = segment(tmp_path)
    if preset == "ssh":
        require_sshd()
        with LoopbackSshd(tmp_path / "sshd") as sshd:
            assert fetch(Hands(node(there, "127.0.0.1"), "ssh", WORDED, ssh=sshd.ssh), file)
    else:
        hands = Hands(node(there))
        with pytest.raises(ExecutorError, match="it is larger than 1 MiB, the most that is read of it") as raised:
            hands.read()
        assert raised.value.where == f"broker-1 on localhost: {there}"
        assert fetch(hands, file)
    assert file.read_bytes() == there.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it has passwords"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_file_that_is_not_there_is_none(tmp_path: Path, file: Path) -> None:
    assert not fetch(Hands(node(tmp_path / "nothing.log")), file)
    assert not list(file.parent.iterdir())


def test_it_is_never_in_memory(tmp_path: Path, file: Path) -> None:
    there = segment(tmp_path, 64 * MIB)
    tracemalloc.start()
    try:
        assert fetch(Hands(node(there)), file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB
    assert file.stat().st_size == 64 * MIB


def test_a_log_that_grows_meanwhile_comes_as_it_was(tmp_path: Path, file: Path) -> None:
    """A controller appends twice a second. Here, it does so between the digest and the content, each time."""
    there = segment(tmp_path, MIB // 2)
    before = there.read_bytes()
    grows = tmp_path / "bin" / "sha256sum"
    grows.parent.mkdir()
    grows.write_text(f'#!/bin/sh\n{shutil.which("sha256sum")} "$@"\necho more >>{there}\n')
    grows.chmod(0o755)
    read = f"env PATH={grows.parent}:/usr/bin:/bin " + PRESETS["local"].commands["read"].replace("{*sudo} ", "")
    hands = Hands(node(there), commands={"read": read})
    assert fetch(hands, file)
    assert file.read_bytes() == before
    assert there.stat().st_size > len(before)
    with pytest.raises(ExecutorError, match="another digest"):
        hands.read()  # a property file does not grow: what changes meanwhile is read again


def test_what_is_cut_off_leaves_the_file_of_an_earlier_try(tmp_path: Path, file: Path) -> None:
    cut = "sh -c '\"$@\" | head -c 100000' cut " + PRESETS["local"].commands["read"].replace("{*sudo} ", "")
    hands = Hands(node(segment(tmp_path)), commands={"read": cut})
    file.write_bytes(b"earlier")
    with pytest.raises(ExecutorError, match="another digest"):
        fetch(hands, file)
    assert file.read_bytes() == b"earlier"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_disk_that_is_full_is_told_from_a_host_that_fails(tmp_path: Path, file: Path) -> None:
    hands = Hands(node(segment(tmp_path)))
    with small_files(MIB), pytest.raises(StorageError, match=f"{file}: cannot write: File too large"):
        fetch(hands, file)
    assert not list(file.parent.iterdir())


def test_its_time_is_not_that_of_small_files(tmp_path: Path, file: Path) -> None:
    there = segment(tmp_path)
    hands = Hands(node(there), commands={"read": "sh -c 'sleep 1; exec cat \"$0\"' {path}"})
    hands.executor = executor(hands.node, "local", {"read": "sh -c 'sleep 1; exec cat \"$0\"' {path}"}, seconds=0.5)
    assert fetch(hands, file)
    assert file.read_bytes() == there.read_bytes()
    with pytest.raises(ExecutorError, match=r"still ran after 0\.2 s"):
        fetch(hands, file, seconds=0.2)


def test_what_has_no_end_is_ended(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a host that is somebody else's by now."""
    monkeypatch.setattr(executors, "FETCH_MAX", MIB)
    hands = Hands(node(tmp_path / "endless.log"), commands={"read": "sh -c 'exec cat /dev/zero -' {path}"})
    with pytest.raises(ExecutorError, match="larger than 1 MiB"):
        fetch(hands, file)
    assert not list(file.parent.iterdir())
    assert running("cat", "/dev/zero", "-") == []


@given(content=st.binary(max_size=200), cuts=st.lists(st.integers(0, 300), max_size=8), begins=st.booleans())
def test_pieces_may_be_of_any_size(content: bytes, cuts: list[int], begins: bool) -> None:
    content = DIGEST_LINE[: len(content) % len(DIGEST_LINE)] + content if begins else content
    sent = DIGEST_LINE + digest(content).encode() + b"\n" + content
    assert received(sent, cuts) == content
    assert received(sent + b"x", cuts) is received(sent[:-1], cuts) is None
    plain = content if not content.startswith(DIGEST_LINE) else b""
    assert received(plain, cuts) == plain


def received(sent: bytes, cuts: list[int]) -> bytes | None:
    memory = Memory()
    incoming = Incoming(memory, 1000)
    incoming.add(b"of an earlier command")
    incoming.begin()
    edges = [0, *sorted(cuts), len(sent)]
    for start, end in pairwise(edges):
        incoming.add(sent[start:end])
    return bytes(memory.content) if incoming.is_whole() else None


def test_no_more_is_taken_than_may_be() -> None:
    incoming = Incoming(Memory(), 10)
    incoming.add(DIGEST_LINE + hashlib.sha256(b"0123456789").hexdigest().encode() + b"\n0123456789")
    assert incoming.is_whole()
    with pytest.raises(TooLargeError):
        incoming.add(b"x")
