"""Writes files as a ZooKeeper server leaves them, fast: snapshots with these znodes, logs with these transactions.

Tests and benchmarks of `verify` read them, with millions of znodes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from migrator.verify.zookeeper import transactions as log
from migrator.verify.zookeeper.transactions import Change
from tests.golden.stock import read_dump

Node = tuple[str, bytes | None, int]
"""Path, data, data version."""

_TAIL = struct.Struct(">qqqqqiiiqq")
_OPEN_ACL_LIST = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
_OPEN_ACL = struct.pack(">iq", 1, 1) + _OPEN_ACL_LIST
FLUSH_BYTES = 1 << 20


class SnapshotFile:
    """A snapshot on its way to a file; znodes come parents first."""

    def __init__(self, file: BinaryIO, zxid: int) -> None:
        self._file = file
        self._zxid = zxid
        self._sum = 1
        self._pending: list[bytes] = []
        self._size = 0
        self._put(b"ZKSN" + struct.pack(">iqi", 2, -1, 0) + _OPEN_ACL)
        self.add(("", b"", 0))

    def add(self, node: Node, owner: int = 0) -> None:
        path, data, version = node
        raw, content = path.encode(), data or b""
        length = -1 if data is None else len(content)
        head = struct.pack(f">i{len(raw)}si", len(raw), raw, length)
        tail = _TAIL.pack(1, self._zxid, self._zxid, 0, 0, version, 0, 0, owner, self._zxid)
        self._put(head + content + tail)

    def end(self) -> None:
        self._put(b"\0\0\0\x01/")
        self._flush()
        self._file.write(struct.pack(">q", self._sum) + b"\0\0\0\x01/")

    def _put(self, data: bytes) -> None:
        self._pending.append(data)
        self._size += len(data)
        if self._size > FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pending)
        self._sum = zlib.adler32(data, self._sum)
        self._file.write(data)
        self._pending, self._size = [], 0


def write_log(path: Path, first: int, transactions: Iterable[Sequence[Change]]) -> None:
    """A transaction log that begins with a zxid; several changes are a multi."""
    content = struct.pack(">4siq", log.MAGIC, 2, -1)
    for zxid, changes in enumerate(transactions, first):
        parts = list(map(_operation, changes))
        kind, record = parts[0]
        if len(parts) > 1:
            listed = (struct.pack(">ii", number, len(one)) + one for number, one in parts)
            kind, record = log.MULTI, struct.pack(">i", len(parts)) + b"".join(listed)
        owners = (getattr(change, "owner", 0) or getattr(change, "session", 0) for change in changes)
        body = log.TXN_HEADER.pack(max(owners), 0, zxid, 0, kind) + record
        content += struct.pack(">qi", zlib.adler32(body), len(body)) + body + log.END_OF_RECORD
    path.write_bytes(content)


def _operation(change: Change) -> tuple[int, bytes]:
    if isinstance(change, log.SessionClosed):
        return log.CLOSE_SESSION, b""
    path = struct.pack(">i", len(change.path)) + change.path
    if isinstance(change, log.Deleted):
        return log.DELETE, path
    data = b"" if change.data is None else change.data
    record = path + struct.pack(">i", -1 if change.data is None else len(data)) + data
    if isinstance(change, log.DataSet):
        return log.SET_DATA, record + struct.pack(">i", change.version)
    return log.CREATE, record + _OPEN_ACL_LIST + struct.pack(">?i", bool(change.owner), 0)


def write_nodes(directory: Path, nodes: Iterable[Node], zxid: int = 1) -> Path:
    """A ``dataDir`` with one snapshot."""
    folder = directory / "version-2"
    folder.mkdir(parents=True)
    path = folder / f"snapshot.{zxid:x}"
    with path.open("wb") as file:
        snapshot = SnapshotFile(file, zxid)
        for node in nodes:
            snapshot.add(node)
        snapshot.end()
    return path


def write_snapshot(directory: Path, dump: Path) -> Path:
    """A ``dataDir`` with the znodes of a dump."""
    znodes = sorted(read_dump(dump), key=lambda znode: znode.path.split("/"))  # depth first, as a server
    return write_nodes(directory, [(one.path, one.data, one.stat.version) for one in znodes if one.path != "/"])
