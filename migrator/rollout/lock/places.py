"""The places of a rollout's lock: a znode, a file of this host, and the code that all places share.

`lock` takes the lock in each place that the rollout has. Of two rollouts one wins: `move` writes the znode only if it
still holds what was read, and an open descriptor keeps other processes away from the file. An entry names the holder
and a token that is new for each process.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import orjson

from migrator.controller.rollout_lock import BYTES_MAX
from migrator.errors import OperatorError
from migrator.log.files import PRIVATE_FILE, write_durably
from migrator.observe.printable import printable, utc
from migrator.rollout.ports import LockedError, LockHolder
from migrator.values import value
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Applied, Create, Delete, Failed, MultiOutcome, Op, SetData, Unknown, ZkError
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths

FILE_NAME = "lock"
HOLDER_FILE = "lock.holder"
READ_SECONDS = 10.0
BREAK_REMEDY = "Ask the holder. If nobody works on that rollout any more: 'migrator rollout unlock'"
FIELDS = ("rollout", "owner", "host", "token")
SINCE_END_MS = 1 << 53
DELETE_IT = "See who wrote it, and delete it if nobody needs it"


@value
class LockEntry:
    """The content of a place: the holder, and a ``token`` that each process makes anew when it takes the lock."""

    holder: LockHolder
    token: str


class LockPlace(Protocol):
    """One place. ``move`` writes only if the place still holds what was read. ``where``: its name in messages."""

    @property
    def where(self) -> str: ...
    async def read(self) -> tuple[LockEntry | None, int]: ...
    async def move(self, before: int, entry: LockEntry | None, /) -> bool: ...


class ZooKeeperPlace:
    """The lock's znode, and a child znode that has the token as its name. One call at a time.

    ZooKeeper compares only the version of a znode, and a znode that was deleted and created again begins at version 0.
    So each conditional write also removes the child that was read: no other lock has this name. An older release of
    this program creates no child, and leaves the one that it finds; a lock without a child is guarded by its version
    alone.

    :param session: started, but not necessarily connected.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._seen: tuple[Op, ...] = ()
        """The deletes of the children that were read."""
        self._reader = BulkReader(session, retry_seconds=READ_SECONDS)
        self._writer = ConditionalWriter(session)

    where = f"ZooKeeper, {paths.ROLLOUT}"

    async def read(self) -> tuple[LockEntry | None, int]:
        """The entry and its version; -1 without one.

        :raises ZooKeeperUnavailableError: ZooKeeper does not answer.
        :raises OperatorError: the znode may not be read, or holds no lock.
        """
        return await asyncio.to_thread(self._read)

    def _read(self) -> tuple[LockEntry | None, int]:
        if not self._session.wait_connected(READ_SECONDS):
            raise self._session.away("ZooKeeper does not answer")
        self._reader.catch_up()
        # The children first: if another lock comes in between, a write fails, as it removes the children of the first.
        (names,), (znode,) = self._reader.children([paths.ROLLOUT]), self._reader.read([paths.ROLLOUT])
        self._seen = ()
        if znode is None:
            return None, -1
        entry = parsed(znode.data or b"", znode.path)
        if znode.stat.children_count:
            self._seen = tuple(map(Delete, map(_name, names or (entry.token,))))
        return entry, znode.stat.version

    async def move(self, before: int, entry: LockEntry | None, /) -> bool:
        """Write the entry, or remove it; False if another client was faster. When the connection breaks, the next read
        tells.

        :raises OperatorError: ZooKeeper refuses the write.
        """
        return await asyncio.to_thread(self._move, before, entry)

    def _move(self, before: int, entry: LockEntry | None) -> bool:
        if entry is None:
            ops: tuple[Op, ...] = (*self._seen, Delete(paths.ROLLOUT, before))
        elif before < 0:
            ops = (Create(paths.ROLLOUT, encoded(entry)), Create(_name(entry.token), b""))
        else:
            ops = (*self._seen, SetData(paths.ROLLOUT, encoded(entry), before), Create(_name(entry.token), b""))
        match self._write(ops):
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

    def _write(self, ops: Sequence[Op]) -> MultiOutcome:
        if not self._session.wait_connected(READ_SECONDS):
            raise self._session.away("ZooKeeper does not answer")
        return self._writer.write(ops)


class FilePlace:
    """A file in the rollout's directory. While it is held, an open descriptor keeps other processes out, at the latest
    until this process ends.

    :param directory: exists.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._path = directory / HOLDER_FILE
        self._gate = directory / FILE_NAME
        self._descriptor = -1

    where = "the rollout's directory on this host"

    @property
    def is_held(self) -> bool:
        """Whether this process keeps other processes out."""
        return self._descriptor >= 0

    def hold(self) -> None:
        """Keep other processes out.

        :raises LockedError: another process of this host holds it.
        """
        if self.is_held:
            return
        descriptor = os.open(self._gate, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            entry = self._read()
            what = "another process of this host works on this rollout"
            remedy = "Wait until that process has ended, or stop it with 'migrator rollout abort'"
            raise locked(what, entry, str(self._gate), remedy) from None
        self._descriptor = descriptor

    def let_go(self) -> None:
        if self.is_held:
            os.close(self._descriptor)
            self._descriptor = -1

    async def read(self) -> tuple[LockEntry | None, int]:
        """The entry; its version has no meaning here."""
        return await asyncio.to_thread(self._read), 0

    def _read(self) -> LockEntry | None:
        try:
            return parsed(self._path.read_bytes(), str(self._path))
        except FileNotFoundError:
            return None

    async def move(self, _before: int, entry: LockEntry | None, /) -> bool:
        """Write the entry, or remove it. The caller holds the descriptor, or breaks the lock on purpose."""
        if entry is None:
            self._path.unlink(missing_ok=True)
        else:
            await asyncio.to_thread(write_durably, self._path, encoded(entry))
        return True


def locked(what: str, entry: LockEntry | None, where: str, remedy: str = BREAK_REMEDY) -> LockedError:
    """The error that says who holds the lock, where and since when."""
    return LockedError(what if entry is None else f"{what}: {holder_text(entry)}", where=where, remedy=remedy)


def holder_text(entry: LockEntry) -> str:
    """The holder, as text for people."""
    holder = entry.holder
    rollout = f"rollout {holder.rollout}{holder.place}"
    return printable(f"{holder.owner} on {holder.host}, since {utc(holder.since_ms)} ({rollout})")


def encoded(entry: LockEntry) -> bytes:
    """The entry as all places hold it. The directory is left out where the content would be too long with it."""
    holder = entry.holder
    content = {
        "version": 1,
        "rollout": holder.rollout,
        "owner": holder.owner,
        "host": holder.host,
        "since_ms": holder.since_ms,
        "token": entry.token,
        "process": holder.process,
    }
    whole = orjson.dumps({**content, "directory": printable(holder.directory)})
    return whole if len(whole) <= BYTES_MAX else orjson.dumps(content)


def _name(token: str) -> str:
    return f"{paths.ROLLOUT}/{token}"


def parsed(data: bytes, where: str, remedy: str = DELETE_IT) -> LockEntry:
    """Parse the content of a place; every client with access may have written there.

    :param remedy: how to remove what is no lock.
    :raises OperatorError: it is no lock.
    """
    entry: LockEntry | None = None
    with suppress(orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError):
        fields = orjson.loads(data[: BYTES_MAX + 1])
        rollout, owner, host, token = (str(fields[name]) for name in FIELDS)
        place = int(fields.get("process", 0)), str(fields.get("directory", ""))  # an older release wrote neither
        entry = LockEntry(LockHolder(rollout, owner, host, int(fields["since_ms"]), *place), token)
    if entry is None or len(data) > BYTES_MAX or entry.holder.since_ms not in range(SINCE_END_MS):
        raise OperatorError("it is not a lock of this program", where=where, remedy=remedy)
    return entry
