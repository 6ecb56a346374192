"""Kafka's znodes are kept before they are removed, whatever breaks off, and no copy takes the place of another one."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from migrator.errors import OperatorError
from migrator.log.errors import StorageError
from migrator.rollout import leaving_zookeeper
from migrator.rollout.leaving_zookeeper import BEFORE_REMOVAL, COPIES_MAX, keep, keep_and_remove
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.rollout.support.small_disk import small_files

TOPIC = paths.topic("orders")
KAFKAS = {
    **{f"{paths.TOPICS}/t{number}": b"{}" for number in range(1_200)},
    f"{paths.USER_CONFIGS}/alice": b"secret" * 1000,
    paths.CONTROLLER_EPOCH: b"7",
    TOPIC: b"",
}
FIRST, SECOND, THIRD = (f"{BEFORE_REMOVAL}{number}.jsonl" for number in ("", "-2", "-3"))


@pytest.fixture
def client(zookeeper_client: KazooClient) -> KazooClient:
    for path, data in KAFKAS.items():
        zookeeper_client.create(path, data, makepath=True)
    zookeeper_client.create("/hbase/master", b"h", makepath=True)
    return zookeeper_client


@pytest.fixture
def session(zookeeper: ZooKeeperSpace) -> Iterator[ZooKeeperSession]:
    with ZooKeeperSession(SessionOptions(hosts=zookeeper.hosts)) as started:
        yield started


def remove(session: ZooKeeperSession, state: Path, tell: Callable[[str], None] | None = None) -> list[str]:
    said: list[str] = []
    asyncio.run(keep_and_remove(session, state, tell or said.append))
    return said


def kept(file: Path) -> dict[str, bytes]:
    lines = map(json.loads, file.read_text("utf-8").splitlines())
    return {line["path"]: base64.b64decode(line["data"] or "") for line in lines}


def names(state: Path) -> list[str]:
    return sorted(file.name for file in state.iterdir())


def test_a_removal_that_breaks_off_is_repeated_and_the_full_copy_stays(
    session: ZooKeeperSession, client: KazooClient, tmp_path: Path
) -> None:
    its_children_stay = [make_acl("world", "anyone", read=True, admin=True)]
    client.set_acls(paths.TOPICS, its_children_stay)
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(OperatorError, match="has no right to it"):
            remove(session, tmp_path, said.append)
    whole = kept(tmp_path / FIRST)
    assert {path: whole[path] for path in KAFKAS} == KAFKAS
    assert said[0] == f"kept: {tmp_path / FIRST}"
    assert f" of {len(whole)} znodes. The others are still in ZooKeeper" in said[1]
    client.set_acls(paths.TOPICS, OPEN_ACL_UNSAFE)
    assert f"kept: {tmp_path / THIRD}" in remove(session, tmp_path)
    assert names(tmp_path) == [SECOND, THIRD, FIRST]
    assert kept(tmp_path / FIRST) == whole
    assert kept(tmp_path / THIRD).items() < whole.items()
    assert client.get_children("/") == ["hbase"]
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it has passwords"


def test_only_what_is_kept_is_removed(session: ZooKeeperSession, client: KazooClient, tmp_path: Path) -> None:
    """Another client creates a znode between the two, and changes another one."""

    def tell(sentence: str) -> None:
        if sentence.startswith("kept: "):
            client.create(f"{TOPIC}/partitions/0/state", b"new", makepath=True)
            client.set(paths.CONTROLLER_EPOCH, b"8")

    with pytest.raises(OperatorError, match=r"somebody (creates|changes) znodes"):
        remove(session, tmp_path, tell)
    assert client.get(f"{TOPIC}/partitions/0/state")[0] == b"new"
    assert client.get(paths.CONTROLLER_EPOCH)[0] == b"8"
    remove(session, tmp_path)
    assert kept(tmp_path / SECOND)[paths.CONTROLLER_EPOCH] == b"8"
    assert client.get_children("/") == ["hbase"]


def test_behind_the_last_name_nothing_is_removed(
    session: ZooKeeperSession, client: KazooClient, tmp_path: Path
) -> None:
    (tmp_path / SECOND).write_text("moved here by somebody")
    remove(session, tmp_path)
    assert names(tmp_path) == [SECOND, THIRD], "a copy that is later has a later number"
    (tmp_path / f"{BEFORE_REMOVAL}-{COPIES_MAX}.jsonl").symlink_to("nowhere")
    client.create(TOPIC, b"", makepath=True)
    with pytest.raises(OperatorError, match="no later name is left"):
        remove(session, tmp_path)
    assert client.exists(TOPIC)
    assert not (tmp_path / "nowhere").exists()


def test_a_disk_that_is_full_removes_nothing_and_leaves_room(
    session: ZooKeeperSession, client: KazooClient, tmp_path: Path
) -> None:
    (tmp_path / f"{FIRST}.tmp").write_text("of a command that was killed")
    with small_files(20_000), pytest.raises(OperatorError, match=r"the znodes cannot be kept: .*File too large"):
        remove(session, tmp_path)
    assert names(tmp_path) == []
    assert client.exists(TOPIC)
    with small_files(20_000), pytest.raises(StorageError, match="File too large"):
        asyncio.run(keep(session, tmp_path / "archived"))  # the archive is made again, and not without them
    assert names(tmp_path) == []


def test_a_copy_that_is_damaged_is_said(session: ZooKeeperSession, client: KazooClient, tmp_path: Path) -> None:
    def tell(sentence: str) -> None:
        if sentence.startswith("kept: "):
            with (tmp_path / FIRST).open("r+b") as file:
                file.truncate((tmp_path / FIRST).stat().st_size - 10)

    with pytest.raises(OperatorError, match="the copy of the znodes is damaged"):
        remove(session, tmp_path, tell)
    assert client.exists(TOPIC)


def test_a_long_removal_says_how_far_it_is(
    session: ZooKeeperSession, client: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving_zookeeper, "PROGRESS_MS", 0)
    said = remove(session, tmp_path)
    total = len(kept(tmp_path / FIRST))
    assert "kept so far: 1000 znodes" in said
    assert f"removed so far: 500 of {total} znodes" in said
    assert said[-1] == f"removed: {total} znodes"
    assert remove(session, tmp_path) == ["ZooKeeper has no znodes of Kafka: there is nothing to remove"]
    assert names(tmp_path) == [FIRST]
    assert "no znodes" in asyncio.run(keep(session, tmp_path / "archived"))
    assert client.get_children("/") == ["hbase"]
