"""Reads a transaction log file of a ZooKeeper server.

Layout: header, then for each transaction its Adler-32, its bytes (header, record, and a digest from 3.6 on) and ``B``;
zeros fill the space that the server has allocated ahead. Source:
``org.apache.zookeeper.server.persistence.FileTxnLog``, ``org.apache.zookeeper.txn``, ``ZooDefs.OpCode``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class, whatever its module calls it

from migrator.log.errors import storage_errors
from migrator.values import value
from migrator.verify.places import WINDOW_BYTES, mapped
from migrator.verify.zookeeper.jute_cursor import LONG, Buffer, Cursor, DamagedFileError

MAGIC = b"ZKLG"
TXN_HEADER = Struct(">qiqqi")
"""clientId, cxid, zxid, time, type."""
END_OF_RECORD = b"B"

CREATE, DELETE, SET_DATA, SET_ACL, CHECK, MULTI, CREATE2, RECONFIG = 1, 2, 5, 7, 13, 14, 15, 16
CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = 19, 20, 21
ERROR, CREATE_SESSION, CLOSE_SESSION = -1, -10, -11
_WITHOUT_EFFECT = frozenset({SET_ACL, CHECK, ERROR, CREATE_SESSION})


@value
class Created:
    """``owner`` is the session of an ephemeral znode, 0 for any other."""

    path: bytes
    data: bytes | None
    owner: int


@value
class DataSet:
    path: bytes
    data: bytes | None
    version: int


@value
class Deleted:
    path: bytes


@value
class SessionClosed:
    """A session has ended, and its ephemeral znodes with it."""

    session: int


Change = Created | DataSet | Deleted | SessionClosed


@value
class Transaction:
    """``session``: the client that asked; ``time_ms``: by the leader's clock. A multi has several changes, a failed
    request none."""

    zxid: int
    session: int
    time_ms: int
    changes: tuple[Change, ...]


class CutTransactionError(DamagedFileError):
    """The file ends within a transaction: it is being written, or the server was killed, or the file was cut."""


def read_transactions(path: Path) -> Iterator[Transaction]:
    """Yield every transaction of a file, in order, after its checksum was compared.

    :raises CutTransactionError: the file ends, or zeros begin, within a transaction.
    :raises DamagedFileError: the file has other damage. Both name the byte position.
    """
    with storage_errors("cannot read", path):
        buffer = mapped(path, changes=True)
    end = _end_of(buffer)
    cursor = Cursor(buffer)
    start = 0
    try:
        cursor.check_header(path, MAGIC)
        while cursor.position < end:
            start = cursor.position
            yield _transaction(path, start, _checked(path, cursor, end))
    except (StructError, IndexError) as error:
        raise CutTransactionError(path, f"a transaction is cut: {error}", start) from error


def _end_of(buffer: Buffer) -> int:
    """The position of the zeros that the server has allocated ahead."""
    end = len(buffer)
    while end and not (rest := buffer[max(0, end - WINDOW_BYTES) : end].rstrip(b"\0")):
        end = max(0, end - WINDOW_BYTES)
    return end and max(0, end - WINDOW_BYTES) + len(rest)


def _checked(path: Path, cursor: Cursor, end: int) -> bytes:
    """The bytes of one transaction, after its checksum was compared."""
    start = cursor.position
    (checksum,) = cursor.unpack(LONG)
    content = cursor.string()
    mark = cursor.buffer[cursor.position : cursor.position + 1]
    cursor.position += 1
    if mark == END_OF_RECORD and content and zlib.adler32(content) == checksum:
        return content
    if cursor.position > end:
        raise CutTransactionError(path, "a transaction is half written", start)
    raise DamagedFileError(path, "a transaction does not fit its checksum", start)


def _transaction(path: Path, start: int, content: bytes) -> Transaction:
    cursor = Cursor(content)
    session, _, zxid, time_ms, kind = cursor.unpack(TXN_HEADER)
    try:
        return Transaction(zxid, session, time_ms, tuple(_changes(kind, cursor, session)))
    except (StructError, IndexError) as error:
        raise DamagedFileError(path, f"transaction {zxid:#x} does not decode: {error}", start) from error


def _changes(kind: int, cursor: Cursor, session: int) -> Iterator[Change]:
    """The changes of the tree by a transaction; access control lists and sessions as such are not followed."""
    if kind in {CREATE, CREATE2}:
        path, data = cursor.string(), cursor.data()
        cursor.skip_acls()
        ephemeral = cursor.buffer[cursor.position]
        yield Created(path, data, session if ephemeral else 0)
    elif kind in {CREATE_CONTAINER, CREATE_TTL}:
        yield Created(cursor.string(), cursor.data(), 0)
    elif kind in {DELETE, DELETE_CONTAINER}:
        yield Deleted(cursor.string())
    elif kind in {SET_DATA, RECONFIG}:
        yield DataSet(cursor.string(), cursor.data(), cursor.number())
    elif kind == CLOSE_SESSION:
        yield SessionClosed(session)
    elif kind == MULTI:
        yield from _multi(cursor, session)
    elif kind not in _WITHOUT_EFFECT:
        raise IndexError(f"its type {kind} is unknown")


def _multi(cursor: Cursor, session: int) -> Iterator[Change]:
    """The changes of all operations of a multi, or none if one of them failed."""
    parts = [(cursor.number(), cursor.string()) for _ in range(cursor.number())]
    if not any(kind == ERROR for kind, _ in parts):
        for kind, content in parts:
            yield from _changes(kind, Cursor(content), session)
