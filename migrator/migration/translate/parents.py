"""Creates missing parents of znodes."""

from __future__ import annotations

from migrator.zookeeper.ops import Create, Op, ZkSource
from migrator.zookeeper.znodes import paths


class Parents:
    """Looks up each parent once; a parent that it has had created counts as existing."""

    def __init__(self, zookeeper: ZkSource) -> None:
        self._source = zookeeper
        self._known: set[str] = set()

    def exists(self, path: str) -> None:
        """Note that this parent exists, or that its creation is on the way."""
        self._known.add(path)

    def of(self, *children: str) -> tuple[Op, ...]:
        """The creations of all missing parents of these paths, topmost first."""
        wanted = [path for child in children for path in paths.ancestors(child) if path not in self._known]
        if not wanted:
            return ()
        wanted = list(dict.fromkeys(wanted))
        self._known.update(wanted)
        found = zip(wanted, self._source.read(wanted), strict=True)
        return tuple(Create(path, None) for path, znode in found if znode is None)
