"""Persistent maps under change that remember the changed keys, and an interner for equal values.

The image builders use them. The base map never changes, nothing is copied before the first write, and `snapshot` is not
affected by later changes. So old images stay valid for readers on other threads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from immutables import Map, MapMutation

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T", bound=Hashable)

MAX_INTERNED = 65_536


class TrackedMap(Generic[K, V]):
    """A map under change. Nothing is copied before the first write, and the base map never changes."""

    __slots__ = ("_base", "_mutation", "changed")

    def __init__(self, base: Map[K, V]) -> None:
        self._base = base
        self._mutation: MapMutation[K, V] | None = None
        self.changed: set[K] = set()

    def get(self, key: K) -> V | None:
        """The value as changed so far, or None."""
        return self._base.get(key) if self._mutation is None else self._mutation.get(key)

    def put(self, key: K, value: V) -> None:
        """Set or replace one entry."""
        self.changed.add(key)
        self._writable()[key] = value

    def remove(self, key: K) -> bool:
        """Drop one entry; False when there was none."""
        if self.get(key) is None:
            return False
        self.changed.add(key)
        del self._writable()[key]
        return True

    def snapshot(self) -> Map[K, V]:
        """The map as changed so far. Later changes do not affect it."""
        if self._mutation is not None:
            self._base = self._mutation.finish()
            self._mutation = None
        return self._base

    def _writable(self) -> MapMutation[K, V]:
        if self._mutation is None:
            self._mutation = self._base.mutate()
        return self._mutation


class TrackedDicts(Generic[K, V]):
    """A map of string-keyed dictionaries under change. Each dictionary is copied once, at its first change. Empty ones
    are removed."""

    __slots__ = ("_copies", "_emptied", "_entries")

    def __init__(self, base: Map[K, Mapping[str, V]]) -> None:
        self._entries: TrackedMap[K, Mapping[str, V]] = TrackedMap(base)
        self._copies: dict[K, dict[str, V]] = {}
        self._emptied: set[K] = set()

    @property
    def changed(self) -> set[K]:
        """The keys of the dictionaries touched."""
        return self._entries.changed

    def put(self, key: K, name: str, value: V) -> None:
        """Set one item of the dictionary at ``key``."""
        self._copy(key)[name] = value

    def discard(self, key: K, name: str) -> None:
        """Drop one item of the dictionary at ``key``, if it is there."""
        items = self._copy(key)
        items.pop(name, None)
        if not items:
            self._emptied.add(key)

    def clear(self, key: K) -> None:
        """Drop the dictionary at ``key``, if there is one."""
        if self._entries.get(key) is not None:
            self._copy(key).clear()
            self._emptied.add(key)

    def finish(self) -> Map[K, Mapping[str, V]]:
        """The resulting map. Nothing may be changed afterwards."""
        for key in self._emptied:
            if not self._copies[key]:
                self._entries.remove(key)
        return self._entries.snapshot()

    def _copy(self, key: K) -> dict[str, V]:
        items = self._copies.get(key)
        if items is None:
            items = self._copies[key] = dict(self._entries.get(key) or {})
            self._entries.put(key, items)
        return items


class Interner(dict[Hashable, Hashable]):
    """Keeps one object per equal value: a cluster has few different assignments and very many partitions.

    It is bounded: when it holds `MAX_INTERNED` values, it forgets all of them. Later equal values then become new
    objects.
    """

    __slots__ = ()

    def __call__(self, value: T) -> T:
        """The first object that equals ``value``. Note that 1, 1.0 and True are equal."""
        return self[value]  # type: ignore[return-value]  # equal objects of one type

    def __missing__(self, value: T) -> T:
        if len(self) >= MAX_INTERNED:
            self.clear()
        self[value] = value
        return value
