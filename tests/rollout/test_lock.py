"""The lock in a real ZooKeeper, and on this host: contenders, a holder that died, a lock that somebody took away."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, TypeVar

import orjson
import pytest
from kazoo.client import KazooClient

from migrator.errors import OperatorError
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.rollout.lock.lock import LostLockError, RolloutLock
from migrator.rollout.lock.places import FilePlace, LockEntry, ZooKeeperPlace, encoded
from migrator.rollout.ports import LockedError, LockHolder
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Znode
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.patience import PATIENCE_SECONDS

T = TypeVar("T")


def do(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def taken(lock: RolloutLock) -> LockHolder:
    """Its holder; there is one."""
    holder = do(lock.holder())
    assert holder is not None
    return holder


class Host:
    """One machine: its directory and its session; each lock is a process's."""

    def __init__(self, hosts: str, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.session = ZooKeeperSession(SessionOptions(hosts, session_timeout_ms=10_000)).start()
        self.is_finished = False

    def lock(self) -> RolloutLock:
        return RolloutLock(
            ZooKeeperPlace(self.session),
            FilePlace(self.directory),
            may_be_gone=lambda: self.is_finished,
            wall_ms=lambda: 1_790_000_000_000,
        )


@pytest.fixture
def hosts(zookeeper: ZooKeeperSpace, tmp_path: Path) -> Iterator[list[Host]]:
    found = [Host(zookeeper.hosts, tmp_path / name) for name in ("ops-1", "ops-2")]
    yield found
    for host in found:
        host.session.close()


def test_a_second_operator_is_told_who_where_and_since_when(hosts: list[Host]) -> None:
    first, second = (host.lock() for host in hosts)
    assert do(first.holder()) is None
    do(first.acquire("aaaa"))
    do(first.acquire("aaaa"))
    do(first.check("aaaa"))
    with pytest.raises(LockedError) as refused:
        do(second.acquire("bbbb"))
    holder = taken(second)
    for said in (holder.owner, holder.host, "since 2026-09-21", "aaaa", "unlock"):
        assert said in str(refused.value)
    do(second.release("bbbb"))
    do(first.check("aaaa"))
    do(first.release("aaaa"))
    do(second.acquire("bbbb"))
    assert taken(first).rollout == "bbbb"


def test_of_many_contenders_one_gets_it(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    hosts = [Host(zookeeper.hosts, tmp_path / f"ops-{number}") for number in range(8)]
    together = Barrier(len(hosts))

    def contend(number: int) -> str:
        lock = hosts[number].lock()
        together.wait()
        try:
            do(lock.acquire(f"rollout-{number}"))
        except LockedError:
            return ""
        do(lock.check(f"rollout-{number}"))
        return f"rollout-{number}"

    try:
        with ThreadPoolExecutor(len(hosts)) as pool:
            (winner,) = [found for found in pool.map(contend, range(len(hosts))) if found]
        assert taken(hosts[0].lock()).rollout == winner
    finally:
        for host in hosts:
            host.session.close()


def test_it_outlives_its_process_and_the_same_rollout_takes_it_up(hosts: list[Host]) -> None:
    dead = hosts[0].lock()
    do(dead.acquire("aaaa"))
    since = taken(dead).since_ms
    dead._here.let_go()  # as the kernel does when the process ends
    hosts[0].session.close()
    with pytest.raises(LockedError):
        do(hosts[1].lock().acquire("bbbb"))
    again = hosts[1].lock()
    do(again.acquire("aaaa"))
    do(again.check("aaaa"))
    assert taken(again).since_ms == since


def test_two_processes_of_one_rollout_do_not_work_at_the_same_time(hosts: list[Host]) -> None:
    """The journal was copied to another host, and somebody resumes there: the first one notices before it acts."""
    first, second = (host.lock() for host in hosts)
    do(first.acquire("aaaa"))
    do(second.acquire("aaaa"))
    do(second.check("aaaa"))
    with pytest.raises(LostLockError, match="not this process's any more"):
        do(first.check("aaaa"))


def _try_in_a_process(directory: str, answer: Any) -> None:
    lock = RolloutLock(None, FilePlace(Path(directory)), may_be_gone=lambda: False, wall_ms=lambda: 0)
    try:
        asyncio.run(lock.acquire("aaaa"))
        answer.put("acquired")
    except LockedError as error:
        answer.put(str(error))


def test_a_second_process_of_this_host_is_kept_out(tmp_path: Path) -> None:
    lock = RolloutLock(None, FilePlace(tmp_path), may_be_gone=lambda: False, wall_ms=lambda: 0)
    do(lock.acquire("aaaa"))
    spawn = multiprocessing.get_context("spawn")
    answer = spawn.Queue()
    other = spawn.Process(target=_try_in_a_process, args=(str(tmp_path), answer))
    other.start()
    assert "another process of this host works on this rollout" in answer.get()
    other.join()
    do(lock.release("aaaa"))
    another = RolloutLock(None, FilePlace(tmp_path), may_be_gone=lambda: False, wall_ms=lambda: 0)
    do(another.acquire("bbbb"))
    do(another.release("bbbb"))


def test_who_holds_a_lock_that_was_broken_notices(hosts: list[Host]) -> None:
    first, second = (host.lock() for host in hosts)
    do(first.acquire("aaaa"))
    assert do(second.break_open("aaaa")) is None
    assert do(second.break_open("aaaa")) is None
    with pytest.raises(LostLockError, match="the lock was taken away"):
        do(first.check("aaaa"))
    do(second.acquire("bbbb"))
    with pytest.raises(LostLockError, match="bbbb"):
        do(first.check("aaaa"))
    do(first.release("aaaa"))
    do(second.check("bbbb"))


def test_who_took_it_while_a_person_was_asked_keeps_it(hosts: list[Host]) -> None:
    """The person was shown the one before."""
    first, second = (host.lock() for host in hosts)
    do(first.acquire("aaaa"))
    shown = taken(first)
    do(first.release("aaaa"))
    do(second.acquire("bbbb"))
    left = do(first.break_open(shown.rollout))
    assert left is not None
    assert left.rollout == "bbbb"
    do(second.check("bbbb"))


def test_what_was_made_anew_is_not_what_was_read(hosts: list[Host]) -> None:
    """A late take-over, whose process stood still between its look and its write."""
    ours, theirs = (ZooKeeperPlace(host.session) for host in hosts)
    entries = [LockEntry(LockHolder(rollout, "o", "h", 1), rollout * 4) for rollout in ("aaaa", "bbbb")]
    do(ours.move(-1, entries[0]))
    for after in (LockEntry(entries[0].holder, "later"), None):
        before = do(theirs.read())[1]
        do(hosts[0].lock().break_open("aaaa"))
        assert do(ours.move(-1, entries[1]))
        assert do(ours.read()) == (entries[1], before), "the same version"
        assert not do(theirs.move(before, after))
        assert do(ours.read())[0] == entries[1]
        assert do(ours.move(before, None))
        assert do(ours.move(-1, entries[0]))


class StandingStill:
    """A reader that stands still behind its first answer, while others work."""

    def __init__(self, reader: BulkReader, work: Callable[[], None]) -> None:
        self._reader = reader
        self._work: Callable[[], None] | None = work
        self.catch_up = reader.catch_up

    def read(self, asked: list[str]) -> list[Znode | None]:
        return self._stopped(list(self._reader.read(asked)))

    def children(self, asked: list[str]) -> list[tuple[str, ...] | None]:
        return self._stopped(list(self._reader.children(asked)))

    def _stopped(self, answer: list[T]) -> list[T]:
        work, self._work = self._work, None
        if work is not None:
            work()
        return answer


def test_what_is_made_anew_within_a_look_is_not_overwritten(hosts: list[Host], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = (ZooKeeperPlace(host.session) for host in hosts)
    first, fresh = [LockEntry(LockHolder(rollout, "o", "h", 1), rollout * 4) for rollout in ("aaaa", "bbbb")]
    do(ours.move(-1, first))

    def make_anew() -> None:
        do(hosts[0].lock().break_open("aaaa"))
        assert do(ours.move(-1, fresh))

    monkeypatch.setattr(theirs, "_reader", StandingStill(theirs._reader, make_anew))
    _, before = do(theirs.read())
    assert not do(theirs.move(before, LockEntry(first.holder, "later")))
    assert do(ours.read())[0] == fresh


def test_a_lock_that_an_older_release_has_taken_up_can_be_given_back(
    hosts: list[Host], zookeeper_client: KazooClient
) -> None:
    """It writes the znode, and knows nothing of the name below."""
    first, second = (host.lock() for host in hosts)
    older = encoded(LockEntry(LockHolder("aaaa", "o", "h", 1), "of the older one"))
    do(first.acquire("aaaa"))
    zookeeper_client.set(paths.ROLLOUT, older)
    assert do(second.break_open("aaaa")) is None
    do(first.acquire("aaaa"))
    zookeeper_client.set(paths.ROLLOUT, older)
    do(second.acquire("aaaa"))
    do(second.release("aaaa"))
    assert do(second.holder()) is None


def test_something_else_in_its_place_is_not_touched(hosts: list[Host], zookeeper_client: KazooClient) -> None:
    lock = hosts[0].lock()
    for data in (b"", b"mine", b"[]", b'{"rollout": "x"}', orjson.dumps({"since_ms": "no"})):
        zookeeper_client.create(paths.ROLLOUT, data)
        for call in (lock.acquire("aaaa"), lock.check("aaaa"), lock.holder(), lock.break_open("x")):
            with pytest.raises(OperatorError, match="not a lock of this program"):
                do(call)
        assert zookeeper_client.get(paths.ROLLOUT)[0] == data
        zookeeper_client.delete(paths.ROLLOUT)


def test_a_hostile_holder_writes_nothing_to_the_terminal(hosts: list[Host], zookeeper_client: KazooClient) -> None:
    entry = {"rollout": "x\x1b[2J", "owner": "o\nmigrator: all is well", "host": "h", "since_ms": 1, "token": "t"}
    zookeeper_client.create(paths.ROLLOUT, orjson.dumps(entry))
    with pytest.raises(LockedError) as refused:
        do(hosts[0].lock().acquire("aaaa"))
    assert str(refused.value).isprintable()


def test_without_its_chroot_it_says_so(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    host = Host(f"{zookeeper.hosts}/nothing/here", tmp_path / "ops")
    try:
        with pytest.raises(OperatorError, match="chroot does not exist"):
            do(host.lock().acquire("aaaa"))
    finally:
        host.session.close()


def test_zookeeper_away_stops_a_rollout_until_the_migration_is_over(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.rollout.lock.places.READ_SECONDS", 0.5)
    host = Host(own_zookeeper.hosts, tmp_path / "ops")
    try:
        lock = host.lock()
        do(lock.acquire("aaaa"))
        own_zookeeper.stop()
        with pytest.raises(OperatorError, match="ZooKeeper"):
            do(lock.check("aaaa"))
        host.is_finished = True
        do(lock.check("aaaa"))
        lock._here.let_go()
        resumed = host.lock()
        do(resumed.acquire("aaaa"))
        do(resumed.check("aaaa"))
        own_zookeeper.start()
        assert host.session.wait_connected(PATIENCE_SECONDS)
        do(resumed.check("aaaa"))
        do(resumed.release("aaaa"))
        assert do(resumed.holder()) is None
    finally:
        host.session.close()


HOSTILE = [
    *(f'{{"rollout":"r","owner":"o","host":"h","token":"t","since_ms":{since}}}' for since in ("1e30", "-1", 10**18)),
    f'{{"rollout":"r","owner":"{"o" * 2000}","host":"h","token":"t","since_ms":1}}',
]


@pytest.mark.parametrize("text", HOSTILE, ids=["no time", "before all time", "after all time", "long"])
def test_what_no_rollout_writes_is_no_lock(hosts: list[Host], zookeeper_client: KazooClient, text: str) -> None:
    zookeeper_client.create(paths.ROLLOUT, text.encode())
    lock = hosts[0].lock()
    for work in (lock.holder(), lock.break_open("r"), lock.acquire("r")):
        with pytest.raises(OperatorError, match="not a lock of this program") as refused:
            do(work)
        assert len(str(refused.value)) < 300
