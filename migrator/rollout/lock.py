"""One rollout a cluster: a znode that outlives whoever wrote it, and a file on this host.

The znode keeps out operators on other hosts. It is written on conditions only, so nobody overwrites what he has not
seen. It lies beside what Kafka has in ZooKeeper, and Kafka does not look at it.
"""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Protocol

import orjson

from migrator.errors import OperatorError
from migrator.log.files import PRIVATE_FILE, write_durably
from migrator.observe.printable import printable
from migrator.rollout.ports import LockedError, LockHolder
from migrator.values import value
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Applied, Create, Delete, Failed, MultiOutcome, Op, SetData, Unknown, ZkError, Znode
from migrator.zookeeper.session import ZooKeeperSession, ZooKeeperUnavailableError
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths

FILE_NAME = "lock"
HOLDER_FILE = "lock.holder"
READ_SECONDS = 10.0
TRIES = 5
BREAK_REMEDY = "Ask the holder. If nobody works on that rollout any more: 'migrator rollout unlock'"
FIELDS = ("rollout", "owner", "host", "token")


class LostLockError(OperatorError):
    """The lock is another rollout's, or another process goes on with this one."""


@value
class _Entry:
    """What is written: the holder, and a ``token`` that each process which takes it up makes anew."""

    holder: LockHolder
    token: str


class LockPlace(Protocol):
    """Where one lock is kept; ``move`` writes on the condition that what was read is still there."""

    def read(self) -> tuple[_Entry | None, int]: ...
    def move(self, before: int, entry: _Entry | None, /) -> bool: ...


class ZooKeeperPlace:
    """The znode; calls block, and come from one thread at a time.

    :param session: started, maybe not connected yet.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._reader = BulkReader(session, retry_seconds=READ_SECONDS)
        self._writer = ConditionalWriter(session)

    def read(self) -> tuple[_Entry | None, int]:
        """The entry and its version, -1 without one.

        :raises ZooKeeperUnavailableError: ZooKeeper does not answer.
        :raises OperatorError: the znode may not be read, or holds something else.
        """
        if not self._session.wait_connected(READ_SECONDS):
            raise self._session.away("ZooKeeper does not answer")
        self._reader.catch_up()
        (znode,) = self._reader.read([paths.ROLLOUT])
        return (None, -1) if znode is None else (_decoded(znode), znode.stat.version)

    def move(self, before: int, entry: _Entry | None, /) -> bool:
        """Write it, or remove it, unless somebody was faster. After a connection that broke, the next look tells.

        :raises OperatorError: ZooKeeper refuses the write.
        """
        op: Op = Delete(paths.ROLLOUT, before) if entry is None else SetData(paths.ROLLOUT, _encoded(entry), before)
        if before < 0 and entry is not None:
            op = Create(paths.ROLLOUT, _encoded(entry))
        match self._write(op):
            case Applied():
                return True
            case Failed(error=ZkError.NO_AUTH, identity=identity):
                raise OperatorError(
                    f"ZooKeeper does not let {identity or 'us'} write it (NO_AUTH)",
                    where=paths.ROLLOUT,
                    remedy="Give 'access' of the inventory the ZooKeeper identity of the brokers",
                )
            case Failed(error=ZkError.NO_NODE) if before < 0:
                raise OperatorError(
                    "the chroot does not exist", where=self._session.options.hosts, remedy="Correct zookeeper.connect"
                )
            case Failed() | Unknown():
                return False

    def _write(self, op: Op) -> MultiOutcome:
        if not self._session.wait_connected(READ_SECONDS):
            raise self._session.away("ZooKeeper does not answer")
        return self._writer.write([op])


class FilePlace:
    """A file of the rollout's directory; while it is held, an open descriptor keeps other processes out, and that one
    ends with its process.

    :param directory: exists.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / HOLDER_FILE
        self._gate = directory / FILE_NAME
        self._descriptor = -1

    @property
    def is_held(self) -> bool:
        """Whether this process keeps others out."""
        return self._descriptor >= 0

    def hold(self) -> None:
        """
        :raises LockedError: another process of this host has it.
        """
        if self.is_held:
            return
        descriptor = os.open(self._gate, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            entry, _ = self.read()
            what = "another process of this host works on this rollout"
            remedy = "Wait until that process has ended, or stop it with 'migrator rollout abort'"
            raise locked(what, entry, str(self._gate), remedy) from None
        self._descriptor = descriptor

    def let_go(self) -> None:
        """Let other processes in."""
        if self.is_held:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self) -> tuple[_Entry | None, int]:
        """The entry; its version means nothing here."""
        try:
            return _parsed(self._path.read_bytes(), str(self._path)), 0
        except FileNotFoundError:
            return None, -1

    def move(self, _before: int, entry: _Entry | None, /) -> bool:
        """Write it, or remove it; whoever calls holds the descriptor, or breaks the lock on purpose."""
        if entry is None:
            self._path.unlink(missing_ok=True)
        else:
            write_durably(self._path, _encoded(entry))
        return True


class RolloutLock:
    """Both places (`migrator.rollout.ports.Lock`).

    :param zookeeper: None: the cluster has no ZooKeeper any more.
    :param may_be_gone: whether the migration is over: ZooKeeper that does not answer is no reason to stop then.
    :param wall_ms: the time of day.
    """

    def __init__(
        self,
        zookeeper: ZooKeeperPlace | None,
        here: FilePlace,
        *,
        may_be_gone: Callable[[], bool],
        wall_ms: Callable[[], int],
    ) -> None:
        self._zookeeper = zookeeper
        self._here = here
        self._may_be_gone = may_be_gone
        self._wall_ms = wall_ms
        self._token = token_hex(8)
        self._taken: set[LockPlace] = set()

    async def acquire(self, rollout: str) -> None:
        """Take it, or take it up again.

        :raises LockedError: another rollout, or another process, holds it.
        """
        was_held = self._here.is_held
        self._here.hold()
        try:
            for place in await self._places():
                await asyncio.to_thread(self._take, place, rollout)
        except BaseException:
            if not was_held:
                self._here.let_go()
            raise

    async def check(self, rollout: str) -> None:
        """Before each action.

        :raises OperatorError: it is no longer this rollout's, or nobody can tell.
        """
        for place in await self._places():
            if place not in self._taken:  # ZooKeeper was away when the lock was taken
                await asyncio.to_thread(self._take, place, rollout)
            entry, _ = await asyncio.to_thread(place.read)
            if entry is None:
                raise LostLockError(
                    "somebody has taken the lock away from this rollout; nothing more was begun",
                    where=_where(place),
                    remedy="Find out who ('migrator rollout history'); then 'migrator rollout resume' takes it again",
                )
            if entry.holder.rollout != rollout or entry.token != self._token:
                raise LostLockError(
                    f"the lock is not this process's any more: {_told(entry)}; nothing more was begun",
                    where=_where(place),
                    remedy="Leave the work to the holder, or end it there first",
                )

    async def release(self, rollout: str) -> None:
        """Give it back; nothing happens when it is another's."""
        for place in await self._places():
            await asyncio.to_thread(self._give_back, place, rollout)
        self._here.let_go()

    async def holder(self) -> LockHolder | None:
        """Who has it."""
        for place in await self._places():
            entry, _ = await asyncio.to_thread(place.read)
            if entry is not None:
                return entry.holder
        return None

    async def break_open(self) -> LockHolder | None:
        """Take it from whoever has it, on purpose; gives who that was.

        :raises LockedError: a process of this host works with it right now.
        """
        self._here.hold()
        found: LockHolder | None = None
        try:
            for place in await self._places():
                found = await asyncio.to_thread(_break, place) or found
        finally:
            self._here.let_go()
        return found

    async def _places(self) -> list[LockPlace]:
        """Where it counts now.

        :raises ZooKeeperUnavailableError: ZooKeeper does not answer, and the migration is not over.
        """
        if self._zookeeper is None:
            return [self._here]
        try:
            await asyncio.to_thread(self._zookeeper.read)
        except ZooKeeperUnavailableError:
            if not self._may_be_gone():
                raise
            return [self._here]
        return [self._zookeeper, self._here]

    def _take(self, place: LockPlace, rollout: str) -> None:
        for _ in range(TRIES):
            entry, version = place.read()
            if entry is not None and entry.holder.rollout != rollout:
                raise locked("another rollout holds the lock", entry, _where(place))
            if entry is not None and entry.token == self._token:
                self._taken.add(place)
                return
            since = self._wall_ms() if entry is None else entry.holder.since_ms
            mine = _Entry(LockHolder(rollout, _user(), socket.gethostname(), since), self._token)
            place.move(version, mine)
        raise OperatorError("the lock could not be taken: somebody else writes it again and again", where=_where(place))

    def _give_back(self, place: LockPlace, rollout: str) -> None:
        for _ in range(TRIES):
            entry, version = place.read()
            if entry is None or entry.holder.rollout != rollout or place.move(version, None):
                return


def _break(place: LockPlace) -> LockHolder | None:
    """Whoever takes it meanwhile keeps it: what is broken is what was read."""
    entry, version = place.read()
    if entry is not None and not place.move(version, None):
        entry, _ = place.read()
        if entry is not None:
            raise OperatorError("somebody else has taken the lock meanwhile", where=_where(place), remedy=BREAK_REMEDY)
    return None if entry is None else entry.holder


def locked(what: str, entry: _Entry | None, where: str, remedy: str = BREAK_REMEDY) -> LockedError:
    """Says who, where and since when."""
    return LockedError(what if entry is None else f"{what}: {_told(entry)}", where=where, remedy=remedy)


def _told(entry: _Entry) -> str:
    holder = entry.holder
    since = datetime.fromtimestamp(holder.since_ms / 1000, UTC)
    return printable(f"{holder.owner} on {holder.host}, since {since:%Y-%m-%d %H:%M:%S} UTC (rollout {holder.rollout})")


def _where(place: LockPlace) -> str:
    return (
        f"ZooKeeper, {paths.ROLLOUT}" if isinstance(place, ZooKeeperPlace) else "the rollout's directory on this host"
    )


def _encoded(entry: _Entry) -> bytes:
    holder = entry.holder
    return orjson.dumps(
        {
            "version": 1,
            "rollout": holder.rollout,
            "owner": holder.owner,
            "host": holder.host,
            "since_ms": holder.since_ms,
            "token": entry.token,
        }
    )


def _decoded(znode: Znode) -> _Entry:
    return _parsed(znode.data or b"", znode.path)


def _parsed(data: bytes, where: str) -> _Entry:
    try:
        fields = orjson.loads(data)
        rollout, owner, host, token = (str(fields[name]) for name in FIELDS)
        return _Entry(LockHolder(rollout, owner, host, int(fields["since_ms"])), token)
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError):
        raise OperatorError(
            "it is not a lock of this program", where=where, remedy="See who wrote it, and delete it if nobody needs it"
        ) from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
