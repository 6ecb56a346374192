"""Writes snapshot files of ZooKeeper's, fast: what a server would have left with these znodes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from tests.golden.stock import read_dump

Node = tuple[str, bytes | None, int]
"""Path, data, data version."""

_TAIL = struct.Struct(">qqqqqiiiqq")
_OPEN_ACL = b"".join(
    (struct.pack(">iqii", 1, 1, 1, 31), struct.pack(">i", 5), b"world", struct.pack(">i", 6), b"anyone")
)
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

    def add(self, node: Node) -> None:
        path, data, version = node
        raw, content = path.encode(), data or b""
        length = -1 if data is None else len(content)
        head = struct.pack(f">i{len(raw)}si", len(raw), raw, length)
        tail = _TAIL.pack(1, self._zxid, self._zxid, 0, 0, version, 0, 0, 0, self._zxid)
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
    znodes = sorted(read_dump(dump), key=lambda znode: znode.path)
    return write_nodes(directory, [(one.path, one.data, one.stat.version) for one in znodes if one.path != "/"])
