"""Leaves out and names operations that are too large for one ZooKeeper request, so that all others are written.

When a znode cannot be created, the operations below it are left out, too. An operation stays on the list until it has
been written after all, or until a comparison of all of ZooKeeper no longer finds it missing. Each new leader compares
everything, so it finds the same list.
"""

from __future__ import annotations

from collections.abc import Iterable

from migrator.migration.translate.entity import EntityWrite
from migrator.migration.write_behind.messages import SetAside, TakenIn
from migrator.migration.write_behind.multis import Limits
from migrator.zookeeper.ops import Check, Create, Op
from migrator.zookeeper.request_size import op_bytes


class TooLarge:
    """The changes that were set aside as too large for ZooKeeper; one object for each leadership."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_path: dict[str, SetAside] = {}
        self._unconfirmed: set[str] = set()
        """Paths that an earlier comparison found, until the current one has ended."""
        self._absent: set[str] = set()
        """Paths of znodes that could not be created."""
        self._news: list[SetAside | TakenIn] = []

    @property
    def items(self) -> tuple[SetAside, ...]:
        """The operations that were left out, by path."""
        return tuple(self._by_path[path] for path in sorted(self._by_path))

    def news(self) -> list[SetAside | TakenIn]:
        """The changes of the list since the last call."""
        news, self._news = self._news, []
        return news

    def sift(self, write: EntityWrite) -> EntityWrite | None:
        """The part of an entity that can be written; None for nothing."""
        ops = tuple(op for op in write.ops if not self._leaves_out(write.entity, op))
        if len(ops) == len(write.ops):
            return write
        return EntityWrite(write.entity, ops, write.notices, write.effect) if ops else None

    def leave_out(self, entity: str, op: Op, times: int = 0) -> None:
        """Leave one operation out. ``times``: how often the connection was lost when it was sent, 0 if it was not
        tried."""
        self._unconfirmed.discard(op.path)
        if isinstance(op, Create):
            self._absent.add(op.path)
        if op.path not in self._by_path:
            self._by_path[op.path] = SetAside(entity, op.path, op_bytes(op), self._limits.jute_maxbuffer, times)
            self._news.append(self._by_path[op.path])

    def written(self, ops: Iterable[Op]) -> None:
        """These operations were applied."""
        if self._by_path:
            for op in ops:
                if not isinstance(op, Check):
                    self._take_in(op.path)

    def compare(self) -> None:
        """A comparison of everything begins; it will find again what is still missing."""
        self._unconfirmed = set(self._by_path)
        self._absent.clear()

    def compared(self) -> None:
        """The comparison has ended, and all its findings are written."""
        for path in sorted(self._unconfirmed):
            self._take_in(path)

    def _leaves_out(self, entity: str, op: Op) -> bool:
        if op_bytes(op) > self._limits.max_op_bytes:
            self.leave_out(entity, op)
            return True
        if isinstance(op, Create):
            self._absent.discard(op.path)
        return bool(self._absent) and any(op.path.startswith(f"{path}/") for path in self._absent)

    def _take_in(self, path: str) -> None:
        self._absent.discard(path)
        self._unconfirmed.discard(path)
        item = self._by_path.pop(path, None)
        if item is not None:
            self._news.append(TakenIn(item.entity, path))
