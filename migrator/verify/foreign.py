"""Finds other writers to ZooKeeper while a quorum dual-writes: znodes that were written without a change in the log.

Every write of a dual-writing controller, ours or stock, follows a change of the same entity in the log, after the
offset that ``/migration`` had before. So each look compares the znodes that were written since the last look with the
changes of the log after the offset that ``/migration`` had at the last look. A takeover reconciles and may write
anything, so a look that contains one reports nothing; the comparison itself sees the contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from migrator.image.model import Changes, MetadataImage
from migrator.migration.translate import names
from migrator.migration.write_behind.audit import CLAIM, METADATA
from migrator.values import value
from migrator.verify.kraft.log_tail import LogTail
from migrator.verify.recheck import Recheck
from migrator.verify.zookeeper.files import data_files
from migrator.verify.zookeeper.side import MigrationMark, ZooKeeperSide
from migrator.verify.zookeeper.transactions import CutTransactionError, Transaction, read_transactions
from migrator.zookeeper.ops import Stat
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.entities import canonical
from migrator.zookeeper.znodes.errors import ZnodeError

_ACLS = (paths.LITERAL_ACLS, paths.PREFIXED_ACLS)


@value
class ForeignWrite:
    """``zxid`` and ``time_ms`` of the write, -1 for a deleted znode, unless transaction logs have them. ``session``:
    the writer's session, None when no transaction log has it."""

    path: str
    zxid: int
    time_ms: int
    session: int | None = None

    @property
    def deleted(self) -> bool:
        """Whether the znode was deleted, and nothing more is known."""
        return self.zxid < 0


@value
class _Reading:
    mark: MigrationMark
    zxid: int
    znodes: Mapping[str, Stat]
    claim: tuple[int, ...]


class ForeignWriteSearch:
    """Looks again and again. The first look only learns the present state.

    :param recheck: has a separate log, which this object follows from now on.
    :param transaction_logs: data directories of a ZooKeeper server that this process can read, if any.
    """

    def __init__(self, recheck: Recheck, transaction_logs: tuple[str, ...] = (), chroot: str = "") -> None:
        self._zookeeper: ZooKeeperSide = recheck.zookeeper
        self._recheck = recheck
        self._log: LogTail = recheck.log
        self._directories = [Path(directory) for directory in transaction_logs]
        self._chroot = chroot
        self._touched: dict[str, int] = {}
        self._log.on_step = self._step
        self._generation = self._log.generation
        self._last: _Reading | None = None

    def look(self) -> tuple[ForeignWrite, ...]:
        """The writes since the last look that are not a dual-writing controller's, oldest first.

        :raises OperatorError: a side can't be read.
        """
        before = self._last
        if before is None or self._generation != self._log.generation:
            self._last = self._begin()
            return ()
        self._last = self._read()
        if not self._recheck.catch_up() or self._generation != self._log.generation:
            self._last = None
            return ()
        found = [] if before.claim != self._last.claim else list(self._unexplained(before, self._last))
        self._touched = {path: offset for path, offset in self._touched.items() if offset > self._last.mark.offset}
        return tuple(map(self._with_session, sorted(found, key=lambda write: (write.zxid, write.path))))

    def _begin(self) -> _Reading | None:
        """Take the first look, after which every change of the log is known; None while ZooKeeper is behind."""
        end = self._recheck.until_passed()
        self._generation = self._log.generation
        look = self._read()
        return look if look.mark.copied and look.mark.offset >= end else None

    def _read(self) -> _Reading:
        mark = self._zookeeper.mark()
        claim = tuple(stat.mzxid for stat in self._zookeeper.stats(CLAIM).values())
        znodes = self._zookeeper.stats(METADATA)
        return _Reading(mark, mark.zxid, znodes, claim)

    def _unexplained(self, before: _Reading, now: _Reading) -> Iterator[ForeignWrite]:
        """The znodes that were written after the last look, without a change in the log after the offset that ZooKeeper
        held then."""
        for path, stat in now.znodes.items():
            old = before.znodes.get(path)
            if (
                (old is None or old.mzxid != stat.mzxid)
                and stat.mzxid > before.zxid
                and not self._explains(path, before)
            ):
                yield ForeignWrite(path, stat.mzxid, stat.mtime_ms)
        for path in before.znodes.keys() - now.znodes.keys():
            parent = paths.parent_of(path)
            gone_with_it = parent in before.znodes and parent not in now.znodes
            if not gone_with_it and not self._explains(path, before):
                yield ForeignWrite(path, -1, -1)

    def _explains(self, path: str, before: _Reading) -> bool:
        return any(self._touched.get(subject, -1) > before.mark.offset for subject in _subjects(path))

    def _step(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> None:
        offset = after.provenance.offset
        self._touched.update((path, offset) for path in _touched(before, after, changes))

    def _with_session(self, write: ForeignWrite) -> ForeignWrite:
        transaction = self._transaction(write)
        if transaction is None:
            return write
        return ForeignWrite(write.path, transaction.zxid, transaction.time_ms, transaction.session)

    def _transaction(self, write: ForeignWrite) -> Transaction | None:
        """The transaction of the write, by its zxid; for a deleted znode, the last transaction with its path."""
        if not self._directories:
            return None
        wanted = (self._chroot + write.path).encode()
        found = None
        for _, path in reversed(data_files(self._directories).logs):
            try:
                for transaction in read_transactions(path):
                    if any(getattr(change, "path", None) == wanted for change in transaction.changes) and (
                        write.deleted or transaction.zxid == write.zxid
                    ):
                        found = transaction
            except CutTransactionError:
                pass  # the server is writing it
            if found is not None:
                return found
        return None


def _subjects(path: str) -> tuple[str, ...]:
    """The paths under which `_touched` may have a change of this znode."""
    if path.startswith(paths.TOPICS + "/"):
        return path, paths.partitions(path.split("/")[3])
    if path.startswith(paths.CONFIG + "/"):
        return path, _canonical(path)
    return (next((root for root in _ACLS if path.startswith(root)), path),)


def _canonical(path: str) -> str:
    """The canonical path of a config, because a change is written to all znodes of its entity. Any other name stays as
    it is."""
    try:
        return paths.config(canonical(path.removeprefix(f"{paths.CONFIG}/")))
    except ZnodeError:
        return path


def _touched(before: MetadataImage, after: MetadataImage, changes: Changes) -> Iterator[str]:
    """The paths that a controller writes for these changes, with parents that it may have to create. For a new or
    deleted topic, its ``partitions`` stands for everything below."""
    for topic_id in (*changes.topics, *changes.partitions):
        for image in (before, after):
            topic = image.topics.by_id.get(topic_id)
            if topic is None:
                continue
            yield paths.topic(topic.name)
            if topic_id in changes.topics:
                yield paths.partitions(topic.name)
                yield paths.topic_config(topic.name)
                yield paths.delete_topic(topic.name)
            for number in changes.partitions.get(topic_id, ()):
                yield paths.partition(topic.name, number)
                yield paths.partition_state(topic.name, number)
    configs = [names.config_name(resource) for resource in changes.configs]
    configs += [names.quota_name(key) for key in changes.quotas]
    configs += [names.quota_name(names.user_key(key.user)) for key in changes.scram]
    for name in filter(None, configs):
        yield paths.config(name)
        if "/clients/" in name:
            yield paths.config(name.rpartition("/")[0])
            yield paths.config(name.partition("/clients/")[0])
    yield from map(paths.token, changes.tokens)
    if changes.producer_ids:
        yield paths.PRODUCER_IDS
    if changes.acls:
        yield from _ACLS
