"""Reads values in ZooKeeper's encoding (jute) from its files: big-endian, strings and buffers after their length.

The readers of snapshots and logs move a `Cursor` over a file. A value beyond the end raises, and the reader turns this
into a `DamagedFileError` with file and position.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct

from migrator.errors import OperatorError

Buffer = bytes | mmap.mmap

INT, LONG = Struct(">i"), Struct(">q")
_FILE_HEADER = Struct(">4siq")
"""Magic, version, database id."""
_FILE_VERSION = 2
_RESTORE = "Use the files of another ZooKeeper server, or read the running ensemble (--zookeeper)"


class DamagedFileError(OperatorError):
    """A file of ZooKeeper that is cut or damaged."""

    def __init__(self, path: Path, what: str, position: int | None = None) -> None:
        place = "" if position is None else f" (at byte {position})"
        super().__init__(f"{what}{place}", where=str(path), remedy=_RESTORE)


class Cursor:
    """A position in a buffer that moves on with every value.

    Beyond the end it raises `struct.error` or `IndexError`, which callers turn into an error of file and position.
    """

    __slots__ = ("buffer", "position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        """Read numbers of fixed size."""
        values = layout.unpack_from(self.buffer, self.position)
        self.position += layout.size
        return values

    def number(self) -> int:
        """Read an int of four bytes."""
        return self.unpack(INT)[0]

    def data(self) -> bytes | None:
        """Read a buffer; None for a null buffer."""
        length = self.number()
        if length < 0:
            return None
        start = self.position
        if start + length > len(self.buffer):
            raise IndexError(f"{length} bytes are announced and {len(self.buffer) - start} are left")
        self.position = start + length
        return bytes(self.buffer[start : self.position])

    def string(self) -> bytes:
        """Read a string, without decoding it."""
        return self.data() or b""

    def skip_acls(self) -> None:
        """Skip an access control list: permissions, scheme and id of each entry."""
        for _ in range(self.number()):
            self.number()
            self.string()
            self.string()

    def check_header(self, path: Path, magic: bytes) -> None:
        """Check the header of a file.

        :raises DamagedFileError: it is another kind of file.
        """
        found, version, _ = _FILE_HEADER.unpack_from(self.buffer, self.position)
        if (found, version) != (magic, _FILE_VERSION):
            raise DamagedFileError(path, f"it begins with {found!r} {version} instead of {magic!r} {_FILE_VERSION}", 0)
        self.position += _FILE_HEADER.size
