"""Znodes held in memory, read in the ways in which a live ZooKeeper is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from migrator.zookeeper.ops import Znode
from migrator.zookeeper.znodes import paths


class ZnodeTree:
    """A `ZkSource` of znodes by path. Parents need not be among them."""

    def __init__(self, znodes: Mapping[str, Znode]) -> None:
        self._znodes = znodes
        children: defaultdict[str, list[str]] = defaultdict(list)
        for path in znodes:
            children[paths.parent_of(path)].append(paths.name_of(path))
        self._children = {path: tuple(sorted(names)) for path, names in children.items()}

    def items(self) -> Iterable[tuple[str, Znode]]:
        """Every znode with its path."""
        return self._znodes.items()

    def read(self, wanted: Iterable[str]) -> Iterator[Znode | None]:
        """Data and Stat of znodes (see `ZkSource`)."""
        return map(self._znodes.get, wanted)

    def children(self, wanted: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
        """Names of the children of znodes (see `ZkSource`)."""
        for path in wanted:
            yield self._children.get(path, () if path in self._znodes else None)
