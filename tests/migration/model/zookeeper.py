"""A ZooKeeper in memory: a tree with versions, all-or-nothing multis, sequential and ephemeral znodes, sessions.

It obeys the server's rules where clients can see them (error codes and their order, data and child versions,
ten-digit sequence numbers from the parent's create counter, zxids), and is cheap to copy, so that a test can try
every crash point from the same state. It satisfies the reading protocol of ``migrator.migration.translate``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from migrator.zookeeper.ops import (
    ANY_VERSION,
    Applied,
    Check,
    Create,
    Delete,
    Failed,
    MultiOutcome,
    Op,
    SetData,
    Stat,
    ZkError,
    Znode,
)


@dataclass(frozen=True, slots=True)
class _Node:
    """Never changed in place: copies of a tree share their nodes."""

    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    version: int = 0
    created: int = 0
    """How many children were ever created; the next sequential child gets this number."""
    owner: int = 0
    children: frozenset[str] = frozenset()

    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            version=self.version,
            children_version=2 * self.created - len(self.children),
            ephemeral_owner=self.owner,
            data_length=len(self.data or b""),
            children_count=len(self.children),
            pzxid=self.pzxid,
        )


class RefusedError(Exception):
    """An operation that the server would refuse."""

    def __init__(self, error: ZkError) -> None:
        super().__init__(error.name)
        self.error = error


@dataclass(slots=True)
class ModelZooKeeper:
    """``unauthorized`` names paths that answer NO_AUTH to every write."""

    zxid: int = 0
    next_session: int = 1
    sessions: set[int] = field(default_factory=set)
    unauthorized: set[str] = field(default_factory=set)
    _nodes: dict[str, _Node] = field(default_factory=lambda: {"/": _Node(b"", 0, 0, 0)})

    def fork(self) -> ModelZooKeeper:
        """A copy that goes its own way."""
        return ModelZooKeeper(
            self.zxid, self.next_session, set(self.sessions), set(self.unauthorized), dict(self._nodes)
        )

    # Reads

    def get(self, path: str) -> Znode | None:
        node = self._nodes.get(path)
        return None if node is None else Znode(path, node.data, node.stat())

    def list_children(self, path: str) -> tuple[str, ...] | None:
        node = self._nodes.get(path)
        return None if node is None else tuple(sorted(node.children))

    def read(self, paths: Iterable[str]) -> Iterator[Znode | None]:
        """In the order of ``paths``; None for a missing znode."""
        return (self.get(path) for path in paths)

    def children(self, paths: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
        """Child names in the order of ``paths``; None for a missing znode."""
        return (self.list_children(path) for path in paths)

    def dump(self) -> dict[str, bytes | None]:
        """Data by path, the root left out."""
        return {path: node.data for path, node in sorted(self._nodes.items()) if path != "/"}

    def dump_versions(self) -> dict[str, int]:
        """Data version by path."""
        return {path: node.version for path, node in self._nodes.items()}

    # Writes

    def multi(self, ops: Iterable[Op], *, session: int = 0) -> MultiOutcome:
        """Apply all or nothing; ``session`` other than 0 owns what is created (ephemeral)."""
        if session and session not in self.sessions:
            raise ValueError(f"session {session} is not open")
        before = dict(self._nodes)
        self.zxid += 1
        results: list[Stat | str | None] = []
        for index, op in enumerate(ops):
            try:
                results.append(self._apply(op, session))
            except RefusedError as refused:
                self._nodes = before
                return Failed(index, refused.error)
        return Applied(tuple(results))

    def create(self, path: str, data: bytes | None = None, *, session: int = 0, parents: bool = False) -> None:
        """Create one znode, for test set-up; missing parents too when asked.

        :raises RefusedError: as the server would.
        """
        if parents:
            ancestors = [path]
            while (above := posixpath.dirname(ancestors[-1])) != "/":
                ancestors.append(above)
            for ancestor in reversed(ancestors[1:]):
                if ancestor not in self._nodes:
                    self.create(ancestor)
        self._single(Create(path, data), session)

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> None:
        self._single(SetData(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._single(Delete(path, version))

    def load(self, dump: Mapping[str, bytes | None], versions: Mapping[str, int] | None = None) -> None:
        """Create everything of a dump, parents first; what exists is set. Data versions can be given."""
        for path in sorted(dump):
            if path in self._nodes:
                self.set(path, dump[path])
            else:
                self.create(path, dump[path], parents=True)
        for path, version in (versions or {}).items():
            self._nodes[path] = replace(self._nodes[path], version=version)

    # Sessions

    def open_session(self) -> int:
        session = self.next_session
        self.next_session += 1
        self.sessions.add(session)
        return session

    def close_session(self, session: int) -> None:
        """Also what an expiry does: its ephemeral znodes go."""
        self.sessions.discard(session)
        for path in sorted((path for path, node in self._nodes.items() if node.owner == session), reverse=True):
            self.delete(path)

    def _single(self, op: Op, session: int = 0) -> None:
        match self.multi([op], session=session):
            case Failed(error=error):
                raise RefusedError(error)

    def _apply(self, op: Op, session: int) -> Stat | str | None:
        if not isinstance(op, Check) and op.path in self.unauthorized:
            raise RefusedError(ZkError.NO_AUTH)
        match op:
            case Create():
                return self._create(op, session)
            case SetData(path, data, version):
                node = self._versioned(path, version)
                self._nodes[path] = replace(node, data=data, mzxid=self.zxid, version=node.version + 1)
                return self._nodes[path].stat()
            case Delete(path, version):
                self._delete(path, version)
                return None
            case Check(path, version):
                self._versioned(path, version)
                return None

    def _versioned(self, path: str, version: int) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise RefusedError(ZkError.NO_NODE)
        if version not in (ANY_VERSION, node.version):
            raise RefusedError(ZkError.BAD_VERSION)
        return node

    def _create(self, op: Create, session: int) -> str:
        parent_path, name = posixpath.split(op.path)
        parent = self._nodes.get(parent_path)
        if parent is None or parent.owner:
            raise RefusedError(ZkError.NO_NODE)
        if op.sequential:
            name += f"{parent.created:010d}"
        if not name or name in {".", ".."} or "\x00" in name:
            raise ValueError(f"{op.path!r} is not a legal path")
        path = posixpath.join(parent_path, name)
        if path in self._nodes:
            raise RefusedError(ZkError.NODE_EXISTS)
        self._nodes[path] = _Node(op.data, self.zxid, self.zxid, self.zxid, owner=session)
        self._nodes[parent_path] = replace(
            parent, children=parent.children | {name}, created=parent.created + 1, pzxid=self.zxid
        )
        return path

    def _delete(self, path: str, version: int) -> None:
        node = self._versioned(path, version)
        if node.children:
            raise RefusedError(ZkError.NOT_EMPTY)
        del self._nodes[path]
        parent_path, name = posixpath.split(path)
        parent = self._nodes[parent_path]
        self._nodes[parent_path] = replace(parent, children=parent.children - {name}, pzxid=self.zxid)
