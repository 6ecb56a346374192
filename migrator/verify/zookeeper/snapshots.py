"""Reads a snapshot file of a ZooKeeper server.

Layout: header, sessions, access control lists, every znode up to the path ``/``, then the Adler-32 of all that.
Releases from 3.6 add the tree's digest, those from 3.8 the last zxid, each with one more checksum of all before it.
Source: ``org.apache.zookeeper.server.persistence.FileSnap`` and `SnapStream`, ``org.apache.zookeeper.server.DataTree``.
"""

from __future__ import annotations

import gzip
import mmap
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class, whatever its module calls it

from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.values import value
from migrator.verify.zookeeper.jute_cursor import INT, LONG, Buffer, Cursor, DamagedFileError

MAGIC = b"ZKSN"
END_PATH = b"/"
END_MARK = b"\0\0\0\x01/"
SESSION = Struct(">qi")
NODE_TAIL = Struct(">qqqqqiiiqq")
"""acl, czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, pzxid."""
DIGEST = Struct(">qiq")
EXTRAS = (DIGEST, LONG)
"""What newer releases add after the tree, each followed by a checksum."""


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
    cursor = Cursor(_content(path))
    try:
        cursor.check_header(path, MAGIC)
        for _ in range(cursor.number()):
            cursor.unpack(SESSION)
        for _ in range(cursor.number()):
            cursor.unpack(LONG)
            cursor.skip_acls()
        yield from _nodes(cursor, keep)
        _check_sums(cursor, path)
    except (StructError, IndexError) as error:
        raise DamagedFileError(path, f"the snapshot is cut: {error}", cursor.position) from error


def _nodes(cursor: Cursor, keep: Callable[[bytes], bool]) -> Iterator[SnapshotNode]:
    """Yield every znode up to the end. One flat loop, because it passes over millions of znodes."""
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


def _content(path: Path) -> Buffer:
    if path.suffix == ".snappy":
        raise OperatorError(
            "verify cannot read a snapshot that is compressed with snappy",
            where=str(path),
            remedy="Start the server with -Dzookeeper.snapshot.compression.method=gz or without compression and "
            "wait for its next snapshot, or read the running ensemble (--zookeeper)",
        )
    with storage_errors("cannot read", path), path.open("rb") as file:
        if path.suffix == ".gz":
            try:
                return gzip.decompress(file.read())
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DamagedFileError(path, f"the snapshot does not decompress: {error}") from error
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
