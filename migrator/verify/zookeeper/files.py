"""Reads ZooKeeper's data from a server's files: the newest whole snapshot, and the transactions after it.

The snapshot is fuzzy: transactions after its zxid may or may not be in it. All of them are applied again, as the server
does when it starts: to create an existing znode or to delete a missing one is no error, and data are set with their
version. Nothing is locked or changed. Source: ``org.apache.zookeeper.server.persistence.FileTxnSnapLog``.

Layout of a snapshot: header, sessions, access control lists, every znode up to the path ``/``, then their Adler-32.
Releases from 3.6 add the tree's digest, those from 3.8 the last zxid, each with one more checksum of all before it.
Source: ``org.apache.zookeeper.server.persistence.FileSnap`` and `SnapStream`, ``org.apache.zookeeper.server.DataTree``.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class, whatever its module calls it
from typing import Self, TypeVar

from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.values import value
from migrator.verify.live_files import goes_on, stamp
from migrator.verify.places import mapped, read_range
from migrator.verify.zookeeper.jute_cursor import INT, LONG, Buffer, Cursor, DamagedFileError
from migrator.verify.zookeeper.transactions import (
    Change,
    Created,
    CutTransactionError,
    DataSet,
    Deleted,
    Transaction,
    read_transactions,
)
from migrator.zookeeper.ops import Stat, Znode
from migrator.zookeeper.znodes import paths

MAGIC = b"ZKSN"
END_PATH = b"/"
END_MARK = b"\0\0\0\x01/"
SESSION = Struct(">qi")
NODE_TAIL = Struct(">qqqqqiiiqq")
"""acl, czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, pzxid."""
DIGEST = Struct(">qiq")
EXTRAS = (DIGEST, LONG)
"""Parts that newer releases add after the tree, each followed by a checksum."""


@value
class SnapshotNode:
    """One znode; ``path`` is not decoded, and b"" for the root."""

    path: bytes
    data: bytes | None
    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int


def read_snapshot(path: Path, keep: Callable[[bytes], bool]) -> Iterator[SnapshotNode]:
    """Yield the znodes whose path ``keep`` takes. The snapshot is known to be whole only when the iterator has ended.

    A snapshot may be fuzzy: it is written while transactions go on. Those after the zxid in the file's name have to be
    applied to it.

    :raises DamagedFileError: the file is cut or damaged.
    :raises OperatorError: the file can't be read, or its compression is unknown.
    """
    return whole_snapshot(path, Cursor(content_of(path)), keep)


def whole_snapshot(
    path: Path, cursor: Cursor, keep: Callable[[bytes], bool], ended: Callable[[int], None] = lambda _: None
) -> Iterator[SnapshotNode]:
    """Read like `read_snapshot`, from the start of its content. At each yield, ``cursor`` is at the znode's begin.

    :param ended: called with the position where the znodes end.
    """
    try:
        cursor.check_header(path, MAGIC)
        for _ in range(cursor.number()):
            cursor.unpack(SESSION)
        for _ in range(cursor.number()):
            cursor.unpack(LONG)
            cursor.skip_acls()
        yield from nodes_at(cursor, keep)
        ended(cursor.position - len(END_MARK))
        _check_sums(cursor, path)
    except (StructError, IndexError) as error:
        raise DamagedFileError(path, f"the snapshot is cut: {error}", cursor.position) from error


def nodes_at(cursor: Cursor, keep: Callable[[bytes], bool]) -> Iterator[SnapshotNode]:
    """Yield the znodes that ``keep`` accepts, up to the end mark. One flat loop: it passes over millions of znodes."""
    buffer, position, size = cursor.buffer, cursor.position, len(cursor.buffer)
    number, tail_size = INT.unpack_from, NODE_TAIL.size
    while True:
        cursor.position = position
        start = position + INT.size
        position = start + number(buffer, position)[0]
        path = buffer[start:position]
        if path == END_PATH:
            cursor.position = position
            return
        (length,) = number(buffer, position)
        start = position + INT.size
        position = start + max(0, length)
        if position + tail_size > size:
            raise IndexError(f"{size - start} bytes are left")
        if keep(path):
            data = None if length < 0 else buffer[start:position]
            _, czxid, mzxid, _, _, version, _, _, owner, _ = NODE_TAIL.unpack_from(buffer, position)
            yield SnapshotNode(path, data, czxid, mzxid, version, owner)
        position += tail_size


def _check_sums(cursor: Cursor, path: Path) -> None:
    extras = list(EXTRAS)
    while True:
        covered = cursor.position
        (expected,) = cursor.unpack(LONG)
        if bytes(cursor.buffer[cursor.position : cursor.position + len(END_MARK)]) != END_MARK:
            raise DamagedFileError(path, "the snapshot does not end with its end mark", cursor.position)
        cursor.position += len(END_MARK)
        with memoryview(cursor.buffer) as view, view[:covered] as content:
            actual = zlib.adler32(content)
        if actual != expected:
            raise DamagedFileError(path, f"the snapshot has checksum {actual:#010x} instead of {expected:#010x}")
        if cursor.position == len(cursor.buffer) or not extras:
            return
        cursor.unpack(extras.pop(0))


def content_of(path: Path) -> Buffer:
    """The decompressed content of a snapshot; errors as in `read_snapshot`."""
    if path.suffix == ".snappy":
        raise OperatorError(
            "verify cannot read a snapshot that is compressed with snappy",
            where=str(path),
            remedy="Start the server with -Dzookeeper.snapshot.compression.method=gz or without compression and "
            "wait for its next snapshot, or read the running ensemble (--zookeeper)",
        )
    with _decompressing(path):
        return mapped(path)


def range_of(path: Path, start: int, end: int) -> bytes:
    """Some bytes of a snapshot's content; errors as in `content_of`."""
    with _decompressing(path):
        return read_range(path, start, end - start)


@contextmanager
def _decompressing(path: Path) -> Iterator[None]:
    with storage_errors("cannot read", path):
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DamagedFileError(path, f"the snapshot does not decompress: {error}") from error


VERSION_DIRECTORY = "version-2"
_NAME = re.compile(r"(snapshot|log)\.([0-9a-f]{1,16})(\.gz|\.snappy)?")
_EPOCH_SHIFT = 32
"""A zxid is the leader's epoch and, below, a number that counts from 1 in each epoch."""
_REMEDY = "Give the dataDir of a ZooKeeper server, or its folder version-2. Repeat the option for a separate dataLogDir"

Keep = Callable[[bytes], bool]
T = TypeVar("T")


@value
class DataFiles:
    """``snapshots`` newest first, ``logs`` oldest first, each with the zxid in its name. ``until``: the last
    transaction to apply, None for all."""

    directory: Path
    snapshots: Sequence[tuple[int, Path]]
    logs: Sequence[tuple[int, Path]]
    until: int | None = None

    def as_of(self, zxid: int) -> Self:
        """The files that give the state after a transaction. A snapshot may hold what came while it was written, but a
        server begins the next one only after its end: so one with a follower that begins at ``zxid`` or before holds
        nothing later.

        :raises OperatorError: there is no such snapshot.
        """
        usable = [older for newer, older in pairwise(self.snapshots) if older[0] < newer[0] <= zxid]
        if not usable:
            what = f"no snapshot here is surely older than zxid {zxid:#x}: it takes two that begin before"
            raise OperatorError(what, where=str(self.directory), remedy="Give older snapshots, and the logs after them")
        return replace(self, snapshots=usable, until=zxid)


def data_files(directories: Sequence[Path]) -> DataFiles:
    """The files in a ``dataDir``, or in a ``dataDir`` and a ``dataLogDir``.

    :raises OperatorError: there are no files of ZooKeeper, or they can't be read.
    """
    found: dict[str, list[tuple[int, Path]]] = {"snapshot": [], "log": []}
    for directory in directories:
        below = directory / VERSION_DIRECTORY
        with storage_errors("cannot read", directory):
            folder = below if below.is_dir() else directory
            files = list(folder.iterdir())
        for path in files:
            if match := _NAME.fullmatch(path.name):
                found[match[1]].append((int(match[2], 16), path))
    if not found["snapshot"]:
        raise OperatorError("there is no snapshot of ZooKeeper", where=str(directories[0]), remedy=_REMEDY)
    return DataFiles(directories[0], sorted(found["snapshot"], reverse=True), sorted(found["log"]))


@value
class FilesReading:
    """``zxid``: the last transaction that the tree contains."""

    tree: ZnodeTree
    zxid: int


def read_tree(files: DataFiles, keep: Keep, chroot: str = "") -> FilesReading:
    """The znodes that ``keep`` takes, as the last transaction left them; paths without ``chroot``.

    :raises OperatorError: a file can't be read or is damaged, or transactions are missing; names file and position.
    """

    def read(path: Path, znodes: Znodes) -> None:
        znodes.put_all(read_snapshot(path, keep))

    _, znodes, zxid = from_newest(files, read, keep)
    return FilesReading(znodes.tree(len(chroot)), zxid)


def from_newest(files: DataFiles, read: Callable[[Path, Znodes], T], keep: Keep) -> tuple[T, Znodes, int]:
    """Read the newest snapshot that is whole, and replay the logs after it.

    :param read: puts znodes of a snapshot.
    :param keep: takes the znodes that the logs create.
    :returns: the result of ``read``, the znodes, and the last transaction that they contain.
    :raises OperatorError: as `read_tree`.
    """
    damage: DamagedFileError | None = None
    for zxid, path in files.snapshots:
        znodes = Znodes()
        try:
            result = read(path, znodes)
        except DamagedFileError as error:  # it may be incomplete yet; an older one and the logs have the same data
            damage = damage or error
            continue
        try:
            return result, znodes, replay(znodes, files, zxid, keep)
        except _MissingTransactionsError as error:
            raise (damage or error) from error
    raise damage or OperatorError("there is no snapshot", where=str(files.directory), remedy=_REMEDY)


class _MissingTransactionsError(OperatorError):
    def __init__(self, where: Path, last: int, following: int) -> None:
        what = f"transactions are missing between zxid {last:#x} and {following:#x}"
        super().__init__(
            what, where=str(where), remedy="Add the missing log files. Perhaps they are in a separate dataLogDir"
        )


def replay(znodes: Znodes, files: DataFiles, zxid: int, keep: Keep) -> int:
    """Apply the transactions after ``zxid``; gives the last one. Errors as in `read_tree`."""
    for transaction in _transactions(files, zxid):
        if files.until is not None and transaction.zxid > files.until:
            break
        for change in transaction.changes:
            znodes.apply(change, transaction.zxid, keep)
        zxid = transaction.zxid
    else:
        if files.until is not None and zxid < files.until:
            what = f"zxid {files.until:#x} is asked for, but the logs end with {zxid:#x}"
            raise OperatorError(what, where=str(files.directory), remedy="Ask for a zxid that the logs have reached")
    return zxid


def logs_from(files: DataFiles, zxid: int) -> Sequence[tuple[int, Path]]:
    """The log files that may hold transactions after ``zxid``."""
    before = [index for index, (first, _) in enumerate(files.logs) if first <= zxid + 1]
    return files.logs[before[-1] if before else 0 :]


def _transactions(files: DataFiles, zxid: int) -> Iterator[Transaction]:
    """The transactions after ``zxid``, without a gap."""
    logs = logs_from(files, zxid)
    for index, (_, path) in enumerate(logs):
        since = stamp(path)
        try:
            for transaction in read_transactions(path):
                if transaction.zxid > zxid:
                    _check_follows(path, zxid, transaction.zxid)
                    zxid = transaction.zxid
                    yield transaction
        except CutTransactionError:
            # A killed server leaves such an end and goes on in the next file, where the zxid shows whether a
            # transaction is missing.
            if index == len(logs) - 1 and not goes_on(path, since):
                raise


def _check_follows(path: Path, last: int, following: int) -> None:
    same_epoch = last >> _EPOCH_SHIFT == following >> _EPOCH_SHIFT
    if following != last + 1 and (same_epoch or following & 0xFFFFFFFF != 1):
        raise _MissingTransactionsError(path, last, following)


class Znodes:
    """The znodes by raw path, while transactions are replayed."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, tuple[bytes | None, int, int, int, int]] = {}
        self._ephemerals: defaultdict[int, set[bytes]] = defaultdict(set)

    def __iter__(self) -> Iterator[bytes]:
        """The paths."""
        return iter(self._nodes)

    def put_all(self, nodes: Iterable[SnapshotNode]) -> None:
        for node in nodes:
            self.put(node.path, node.data, node.version, node.czxid, node.mzxid, node.ephemeral_owner)

    def put(self, path: bytes, data: bytes | None, version: int, czxid: int, mzxid: int, owner: int) -> None:
        """Take a znode; ``owner`` is the session of an ephemeral one, else 0."""
        self._nodes[path] = data, version, czxid, mzxid, owner
        if owner:
            self._ephemerals[owner].add(path)

    def apply(self, change: Change, zxid: int, keep: Keep) -> None:
        """Apply a change. Twice has the same result as once."""
        if isinstance(change, Created):
            if keep(change.path) and change.path not in self._nodes:
                self.put(change.path, change.data, 0, zxid, zxid, change.owner)
        elif isinstance(change, DataSet):
            if (node := self._nodes.get(change.path)) is not None:
                self._nodes[change.path] = change.data, change.version, node[2], zxid, node[4]
        elif isinstance(change, Deleted):
            self._delete(change.path)
        else:
            for path in self._ephemerals.pop(change.session, ()):
                self._nodes.pop(path, None)

    def _delete(self, path: bytes) -> None:
        node = self._nodes.pop(path, None)
        if node is not None and node[4]:
            self._ephemerals[node[4]].discard(path)

    def tree(self, strip: int) -> ZnodeTree:
        """The znodes, ``strip`` characters of chroot taken off. Empties this object, which may be large."""
        made: dict[str, Znode] = {}
        while self._nodes:
            raw, (data, version, czxid, mzxid, owner) = self._nodes.popitem()
            path = raw[strip:].decode() or "/"
            made[path] = Znode(path, data, Stat(czxid, mzxid, version, 0, owner, len(data or b""), 0, 0))
        return ZnodeTree(made)


class ZnodeTree:
    """A `ZkSource` of znodes by path. Parents need not be among them."""

    def __init__(self, znodes: Mapping[str, Znode]) -> None:
        self._znodes = znodes
        children: defaultdict[str, list[str]] = defaultdict(list)
        for path in znodes:
            children[paths.parent_of(path)].append(paths.name_of(path))
        self._children = {path: tuple(sorted(names)) for path, names in children.items()}

    def items(self) -> Iterable[tuple[str, Znode]]:
        return self._znodes.items()

    def read(self, wanted: Iterable[str]) -> Iterator[Znode | None]:
        """Data and Stat of znodes (see `ZkSource`)."""
        return map(self._znodes.get, wanted)

    def children(self, wanted: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
        """Names of the children of znodes (see `ZkSource`)."""
        for path in wanted:
            yield self._children.get(path, () if path in self._znodes else None)
