"""Finds writes of other clients to ZooKeeper while we dual-write, by the zxids of znodes: znodes in, paths out.

Each multi of ours has one zxid, and its outcome shows it (it sets ``/migration``, whose Stat comes back). So a watched
znode was written by another client if its data (mzxid) or children (pzxid) changed after the end of the reconcile, in a
transaction that is none of ours. One look takes the families and a slice of the znodes below them. The audit detects,
and repairs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from migrator.image.model import MetadataImage
from migrator.migration.translate import names
from migrator.migration.translate.target import Spellings, pattern_of
from migrator.zookeeper.ops import Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import ROOTS, acl_path

METADATA: Sequence[str] = (
    paths.TOPICS,
    paths.TOPIC_CONFIGS,
    paths.BROKER_CONFIGS,
    paths.USER_CONFIGS,
    paths.CLIENT_CONFIGS,
    paths.IP_CONFIGS,
    paths.LITERAL_ACLS,
    paths.PREFIXED_ACLS,
    paths.DELETE_TOPICS,
    paths.TOKENS,
    paths.PRODUCER_IDS,
)
"""The parent znodes of the families of metadata."""
CLAIM: Sequence[str] = (paths.CONTROLLER, paths.CONTROLLER_EPOCH)
_ACL_TYPES = tuple(f"{root}/{kind}" for root in ROOTS.values() for kind in paths.ACL_RESOURCE_TYPES)
FAMILIES: Sequence[str] = (*METADATA, *_ACL_TYPES, *CLAIM)
"""The znodes of every look."""
SLICE = 5_000
"""Znodes of one look beside the families: some 45 looks go through 200,000 partitions."""
MAX_OWN = 1_000_000
MAX_REPORTED = 1_000


class ForeignWrites:
    """The writes of other clients under one claim, since the end of its reconcile.

    :param since: zxid of the last write of the reconcile; older writes are ignored.
    """

    def __init__(self, since: int) -> None:
        self._since = since
        self._own: set[int] = set()
        self._order: deque[int] = deque()
        self._reported: dict[str, int] = {}

    def wrote(self, zxid: int) -> None:
        """Note that a multi of ours was applied in that transaction."""
        self._own.add(zxid)
        self._order.append(zxid)
        if len(self._order) > MAX_OWN:
            forgotten = self._order.popleft()
            self._own.discard(forgotten)
            self._since = max(self._since, forgotten)

    def foreign(self, znodes: Iterable[Znode | None]) -> tuple[str, ...]:
        """The znodes that another client wrote; each write is reported once. Call it only when every multi that was
        under way during the reading has been answered."""
        found = []
        for znode in znodes:
            if znode is None:
                continue
            zxid = max(self._foreign_zxids(znode), default=-1)
            if zxid < 0 or self._reported.get(znode.path) == zxid:
                continue
            if len(self._reported) >= MAX_REPORTED:
                self._reported.clear()
            self._reported[znode.path] = zxid
            found.append(znode.path)
        return tuple(found)

    def _foreign_zxids(self, znode: Znode) -> Iterator[int]:
        for zxid in (znode.stat.mzxid, znode.stat.pzxid):
            if zxid > self._since and zxid not in self._own:
                yield zxid


def slices(image: MetadataImage, size: int = SLICE, *, spellings: Spellings | None = None) -> Iterator[list[str]]:
    """Yield the paths of everything that the image has in ZooKeeper, in slices; an empty image has none.

    :param spellings: the znodes that configs have beside their canonical ones.
    """
    every = _paths(image, spellings or {})
    while some := list(islice(every, size)):
        yield some


def _paths(image: MetadataImage, spellings: Spellings) -> Iterator[str]:
    for topic in image.topics.by_id.values():
        yield paths.topic(topic.name)
        yield paths.topic_config(topic.name)
        yield from (paths.partition_state(topic.name, number) for number in topic.partitions)
    configs = chain(
        map(names.config_name, image.configs),
        map(names.quota_name, image.quotas),
        (names.quota_name(names.user_key(scram.user)) for scram in image.scram),
    )
    for name in filter(None, configs):
        if not name.startswith("topics/"):
            yield from map(paths.config, (name, *spellings.get(name, ())))
    yield from {acl_path(pattern_of(acl)) for acl in image.acls.values()}
    yield from map(paths.token, image.tokens)
