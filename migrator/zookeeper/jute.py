"""Requests that kazoo lacks or does not decode well enough, in ZooKeeper's own encoding (jute).

`MultiRead` is operation 22 (servers from 3.6): many getData or getChildren in one request, each with its own result.
`Multi` is operation 14; it distinguishes null data from empty data, and returns the error of each operation. `Read` is
a single read, for older servers. Source: ZooKeeper's ``zookeeper.jute``, ``MultiOperationRecord``, ``MultiResponse``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from struct import error as TooShortError  # noqa: N812 (struct's own name says nothing)
from typing import Any

from kazoo.exceptions import MarshallingError
from kazoo.security import ACL

from migrator.zookeeper.ops import Check, Create, Delete, Op, SetData, Stat, Znode

_INT = Struct(">i")
_HEADER = Struct(">i?i")
_STAT = Struct(">qqqqiiiqiiq")
_END = _HEADER.pack(-1, True, -1)

CREATE, DELETE, GET_DATA, SET_DATA, GET_CHILDREN, CHECK, MULTI, MULTI_READ = 1, 2, 4, 5, 8, 13, 14, 22
ERROR = -1
_EPHEMERAL, _SEQUENTIAL = 1, 2

Children = tuple[str, ...]
ReadResult = Znode | Children | int
"""A znode, the names of children, or an error code."""

WriteResult = Stat | str | int | None
"""The Stat of a set, the path of a create, None for deletes and checks, or an error code (0: undone)."""


class MultiRead:
    """``kind`` is `GET_DATA` or `GET_CHILDREN`; ``paths`` are without ``chroot``."""

    type = MULTI_READ

    def __init__(self, kind: int, paths: Sequence[str], chroot: str) -> None:
        self.kind = kind
        self.paths = paths
        self._chroot = chroot
        self.reply_bytes = 0

    def serialize(self) -> bytes:
        """The request's body."""
        head = _HEADER.pack(self.kind, False, -1)
        parts: list[bytes] = []
        for path in self.paths:
            parts += (head, _string(absolute(self._chroot, path)), b"\0")
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, reply: bytes, offset: int) -> list[ReadResult]:
        """One result for each path, in order.

        :raises MarshallingError: the reply is malformed.
        """
        self.reply_bytes = len(reply) - offset
        with _whole():
            return list(self._results(reply, offset))

    def _results(self, reply: bytes, offset: int) -> Iterator[ReadResult]:
        for path in self.paths:
            kind, _, _ = _HEADER.unpack_from(reply, offset)
            offset += _HEADER.size
            result: ReadResult
            if kind == GET_DATA:
                result, offset = _read_znode(path, reply, offset)
            elif kind == GET_CHILDREN:
                result, offset = _read_children(reply, offset)
            else:
                (result,) = _INT.unpack_from(reply, offset)
                offset += 4
            yield result


class Read:
    """A single getData or getChildren."""

    def __init__(self, kind: int, path: str, chroot: str) -> None:
        self.type = kind
        self._path = path
        self._chroot = chroot

    def serialize(self) -> bytes:
        """The request's body."""
        return _string(absolute(self._chroot, self._path)) + b"\0"

    def deserialize(self, reply: bytes, offset: int) -> ReadResult:
        """A znode or its children. kazoo raises errors before this call.

        :raises MarshallingError: the reply is malformed.
        """
        with _whole():
            if self.type == GET_DATA:
                return _read_znode(self._path, reply, offset)[0]
            return _read_children(reply, offset)[0]


class Multi:
    """A multi: all operations are applied, or none. Its text form has no data, because kazoo logs requests."""

    type = MULTI

    def __init__(self, ops: Sequence[Op], chroot: str, acl_of: Callable[[str], Sequence[ACL]]) -> None:
        self._ops = ops
        self._chroot = chroot
        self._acl_of = acl_of

    def __repr__(self) -> str:
        return f"Multi({len(self._ops)} operations)"

    def serialize(self) -> bytes:
        """The request's body."""
        parts: list[bytes] = []
        for op in self._ops:
            kind, body = self._operation(op)
            parts += (_HEADER.pack(kind, False, -1), body)
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, reply: bytes, offset: int) -> list[Any]:
        """One `WriteResult` for each operation. kazoo removes the chroot from paths.

        :raises MarshallingError: the reply is malformed; it is then unknown whether the multi was applied.
        """
        with _whole():
            return list(self._results(reply, offset))

    def _results(self, reply: bytes, offset: int) -> Iterator[WriteResult]:
        for _ in self._ops:
            kind, _, _ = _HEADER.unpack_from(reply, offset)
            offset += _HEADER.size
            result: WriteResult = None
            if kind == CREATE:
                result, offset = _read_string(reply, offset)
            elif kind == SET_DATA:
                result, offset = _read_stat(reply, offset)
            elif kind == ERROR:
                (result,) = _INT.unpack_from(reply, offset)
                offset += 4
            yield result

    def _operation(self, op: Op) -> tuple[int, bytes]:
        path = _string(absolute(self._chroot, op.path))
        match op:
            case Create(_, data, sequential, ephemeral):
                flags = _SEQUENTIAL * sequential | _EPHEMERAL * ephemeral
                return CREATE, b"".join((path, _buffer(data), _acl_list(self._acl_of(op.path)), _INT.pack(flags)))
            case SetData(_, data, version):
                return SET_DATA, path + _buffer(data) + _INT.pack(version)
            case Delete(_, version):
                return DELETE, path + _INT.pack(version)
            case Check(_, version):
                return CHECK, path + _INT.pack(version)


def absolute(chroot: str, path: str) -> str:
    """The path on the server; ``chroot`` is "" or starts with a slash."""
    return path if not chroot else chroot if path == "/" else chroot + path


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT.pack(len(raw)) + raw


def _buffer(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def _acl_list(acls: Sequence[ACL]) -> bytes:
    parts = [_INT.pack(len(acls))]
    for acl in acls:
        parts += (_INT.pack(acl.perms), _string(acl.id.scheme), _string(acl.id.id))
    return b"".join(parts)


@contextmanager
def _whole() -> Iterator[None]:
    """Turns the errors of decoding a malformed reply into `MarshallingError`."""
    try:
        yield
    except (TooShortError, UnicodeDecodeError) as error:
        raise MarshallingError(f"this is not a reply of ZooKeeper: {error}") from error


def _end_of(reply: bytes, start: int, length: int) -> int:
    """The end of a field of that length.

    :raises MarshallingError: the length is negative (a list of names would then never end) or beyond the reply.
    """
    if not 0 <= length <= len(reply) - start:
        raise MarshallingError(f"this is not a reply of ZooKeeper: {length} bytes at {start} of {len(reply)}")
    return start + length


def _read_string(reply: bytes, offset: int) -> tuple[str, int]:
    (length,) = _INT.unpack_from(reply, offset)
    start = offset + 4
    end = _end_of(reply, start, length)
    return reply[start:end].decode(), end


def _read_stat(reply: bytes, offset: int) -> tuple[Stat, int]:
    czxid, mzxid, _, mtime, version, cversion, _, owner, length, children, pzxid = _STAT.unpack_from(reply, offset)
    return Stat(czxid, mzxid, version, cversion, owner, length, children, pzxid, mtime), offset + _STAT.size


def _read_znode(path: str, reply: bytes, offset: int) -> tuple[Znode, int]:
    (length,) = _INT.unpack_from(reply, offset)
    start = offset + 4
    end = start if length == -1 else _end_of(reply, start, length)
    data = None if length < 0 else bytes(reply[start:end])
    stat, end = _read_stat(reply, end)
    return Znode(path, data, stat), end


def _read_children(reply: bytes, offset: int) -> tuple[Children, int]:
    (count,) = _INT.unpack_from(reply, offset)
    offset += 4
    names = []
    for _ in range(max(count, 0)):
        name, offset = _read_string(reply, offset)
        names.append(name)
    return tuple(names), offset
