"""Values without I/O: the write operations of a ZooKeeper multi, its outcomes, and znodes as they are read.

Planners make the operations, the conditional writer sends them, and the model ZooKeeper of the tests applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import Enum
from typing import Protocol

from migrator.errors import OperatorError
from migrator.values import value

ANY_VERSION = -1
FORBIDDEN_REMEDY = "Give the controllers the ZooKeeper identity of the brokers, or correct the access control list"
"""The remedy for NO_AUTH."""


@value
class Create:
    """Create a znode: persistent, or ephemeral with this session. ``sequential``: the path is a prefix."""

    path: str
    data: bytes | None
    sequential: bool = False
    ephemeral: bool = False


@value
class SetData:
    path: str
    data: bytes | None
    version: int = ANY_VERSION


@value
class Delete:
    path: str
    version: int = ANY_VERSION


@value
class Check:
    """Compare the znode's data version, and change nothing."""

    path: str
    version: int


Op = Create | SetData | Delete | Check


def denied(op: Op, identity: str) -> str:
    """The message for NO_AUTH at a write: this client's identity, the znode, and the missing right. Creation and
    deletion need a right on the parent."""
    match op:
        case Create():
            does, right, where = "create", "CREATE", _parent_of(op.path)
        case Delete():
            does, right, where = "delete", "DELETE", _parent_of(op.path)
        case SetData():
            does, right, where = "write", "WRITE", op.path
        case Check():
            does, right, where = "use", "READ", op.path
    return f"ZooKeeper does not let {identity or 'us'} {does} {op.path} (NO_AUTH): {right} on {where} is missing"


def may_not_read(path: str, identity: str) -> OperatorError:
    what = f"ZooKeeper does not let {identity} read it (NO_AUTH)"
    return OperatorError(what, where=path, remedy=FORBIDDEN_REMEDY)


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class ZkError(Enum):
    """The error codes of single operations that callers distinguish."""

    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    ROLLED_BACK = -2
    """RUNTIMEINCONSISTENCY: the operation was undone or not tried, because another one of the multi failed."""


@value
class Stat:
    """The parts of a znode's Stat that this project uses."""

    czxid: int
    mzxid: int
    version: int
    children_version: int
    ephemeral_owner: int
    data_length: int
    children_count: int
    pzxid: int
    mtime_ms: int = field(default=0, compare=False)
    """The leader's clock at ``mzxid``."""


@value
class Znode:
    """One znode as read. ``data`` None and b"" are different, as in ZooKeeper."""

    path: str
    data: bytes | None
    stat: Stat


class ZkSource(Protocol):
    """A source of znodes for reads in bulk: a live server (`migrator.zookeeper.bulk.BulkReader`), a server's files, or
    a model. Results are in the order of the paths, None for a missing znode."""

    def read(self, paths: Iterable[str], /) -> Iterator[Znode | None]: ...
    def children(self, paths: Iterable[str], /) -> Iterator[tuple[str, ...] | None]: ...


@value
class Applied:
    """The multi was applied. It has one entry for each operation: the Stat of a set, the path of a create, or None."""

    results: tuple[Stat | str | None, ...]


@value
class Failed:
    """The multi was not applied. ``error``: that of operation number ``index``, the first one that failed.

    ``identity``: for NO_AUTH this client's identity at ZooKeeper, such as ``sasl:kafka``.
    """

    index: int
    error: ZkError
    identity: str = field(default="", compare=False)


@value
class Unknown:
    """The connection was lost while the multi was under way: it may or may not have been applied."""

    reason: str


MultiOutcome = Applied | Failed | Unknown
