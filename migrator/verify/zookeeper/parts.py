"""Divides the files of a ZooKeeper server among tasks: ranges of the newest whole snapshot, each read by one task.

The encoding of a snapshot has no marks between znodes, so one pass makes an index: it checks the checksum of all, skips
what is below a topic, and notes where ranges begin. The server writes its tree depth first, so the znodes of a topic
lie together; ranges begin with a topic or the config of one. The pass replays the logs for the names of topics, and
finds the last transaction, at which every task ends: so the rows of all tasks are those of one moment. Each task
replays the logs for the znodes in its range. Names that only the logs hold are told to one task. Source:
``org.apache.zookeeper.server.DataTree.serializeNode``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.values import value
from migrator.verify.canonical import Row
from migrator.verify.places import place
from migrator.verify.zookeeper.files import (
    END_MARK,
    DataFiles,
    Znodes,
    ZnodeTree,
    content_of,
    from_newest,
    logs_from,
    nodes_at,
    range_of,
    replay,
    whole_snapshot,
)
from migrator.verify.zookeeper.jute_cursor import Cursor, DamagedFileError
from migrator.verify.zookeeper.reading import other_families, topic_names, topics
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder

PART_BYTES = 128 * 1024 * 1024
"""The most bytes of a snapshot for one task; it goes on to the end of a topic. In memory they take several times as
many."""
_ROOTS = (paths.TOPICS, paths.TOPIC_CONFIGS)
_OTHER_ROOTS = (
    *(paths.BROKER_CONFIGS, paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS, paths.LITERAL_ACLS),
    *(paths.PREFIXED_ACLS, paths.TOKENS, paths.PRODUCER_IDS),
)
_BYTES = "latin-1"
"""A text with a character for each byte."""
_NOTHING = b"\0"
"""No path begins with it."""


@value
class Span:
    """Bytes of a snapshot from ``start`` to ``end``, and their Adler-32."""

    start: int
    end: int
    checksum: int


@value
class Part:
    """The part of one task. ``zxid``: of the snapshot; ``until``: the last transaction to apply; ``late``: the paths of
    topics and configs that only the logs hold, of this task; ``without``: topics that are being deleted, and configs
    that have no topic. ``has_topics``: whether it is a part of the topics, or all that is not of topics."""

    snapshot: str
    zxid: int
    until: int
    spans: tuple[Span, ...]
    has_topics: bool
    late: frozenset[bytes] = frozenset()
    without: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """The size of the snapshot in bytes."""
        return sum(span.end - span.start for span in self.spans)


@value
class Division:
    """``names``: how many topics and configs the index holds while the files are divided."""

    parts: tuple[Part, ...]
    names: int

    def to_text(self) -> str:
        """The division as text for `from_text`."""
        return json.dumps(asdict(self), default=_plain)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the division from a text of `to_text`."""
        found = json.loads(text)
        return cls(tuple(map(_part, found["parts"])), found["names"])


def _plain(one: frozenset[bytes] | frozenset[str] | bytes) -> list[bytes | str] | str:
    return one.decode(_BYTES) if isinstance(one, bytes) else list(one)


def _part(found: dict[str, Any]) -> Part:
    spans = tuple(Span(**span) for span in found.pop("spans"))
    late = frozenset(path.encode(_BYTES) for path in found.pop("late"))
    return Part(**found | {"spans": spans, "late": late, "without": frozenset(found["without"])})


class _Names:
    """The paths of Kafka's topics, their configs and their pending deletions, below a chroot."""

    def __init__(self, chroot: str) -> None:
        self.roots = tuple(f"{chroot}{root}/".encode() for root in _ROOTS)
        self.others = tuple(f"{chroot}{root}".encode() for root in _OTHER_ROOTS)
        self._all = (*self.roots, f"{chroot}{paths.DELETE_TOPICS}/".encode())
        self.depth = self.roots[0].count(b"/")

    def is_name(self, path: bytes) -> bool:
        """Whether a path is the znode of a topic, of a topic's config, or of a pending deletion."""
        return path.startswith(self._all) and path.count(b"/") == self.depth

    def name_of(self, path: bytes) -> bytes:
        """The znode of the topic, config or deletion to which a path belongs."""
        return b"/".join(path.split(b"/", self.depth + 1)[: self.depth + 1])

    def is_compared(self, path: bytes) -> bool:
        """Whether a znode of a topic gives rows."""
        return path.endswith(b"/state") or path.count(b"/") == self.depth


def divided(files: DataFiles, count: int, chroot: str = "") -> Division:
    """Divide the files: first everything that is not of topics, then the topics in about ``count`` parts, or more.

    :raises OperatorError: a file can't be read or is damaged, or transactions are missing; names file and position.
    """
    names = _Names(chroot)

    def read(path: Path, znodes: Znodes) -> _Index:
        index = _Index(path, count)
        index.read(znodes, names)
        return index

    index, znodes, until = from_newest(files, read, names.is_name)
    late = frozenset(path for path in znodes if path.startswith(names.roots)) - index.names
    tree = znodes.tree(len(chroot))
    configs, doomed = tree.children([paths.TOPIC_CONFIGS, paths.DELETE_TOPICS])
    without = frozenset(configs or ()).difference(topic_names(tree)) | frozenset(doomed or ())
    zxid = next(zxid for zxid, path in files.snapshots if path == index.path)
    spans = index.of_topics or [Span(0, 0, zlib.adler32(b""))]
    parts = [Part(str(index.path), zxid, until, (span,), has_topics=True, without=without) for span in spans]
    parts[-1] = replace(parts[-1], late=late)
    others = Part(str(index.path), zxid, until, tuple(index.of_others), has_topics=False)
    return Division((others, *parts), len(index.names | late))


def ranges_of(files: DataFiles, part: Part) -> tuple[tuple[str, int, int], ...]:
    """What the task of a part reads: file, first byte, byte after the last; of the logs everything.

    :raises OperatorError: a log cannot be asked for its size.
    """
    logs = [path for _, path in logs_from(files, part.zxid)]
    with storage_errors("cannot read", files.directory):
        sizes = [path.stat().st_size for path in logs]
    of_logs = ((str(path), 0, size) for path, size in zip(logs, sizes, strict=True))
    return (*((part.snapshot, span.start, span.end) for span in part.spans), *of_logs)


class _Index:
    """The spans of a snapshot, and the names in it."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self.of_topics: list[Span] = []
        self.of_others: list[Span] = []
        self.names: frozenset[bytes] = frozenset()
        self._content = content_of(path)
        self._size = min(PART_BYTES, -(-len(self._content) // count))
        self._start, self._is_inside = -1, False

    def read(self, znodes: Znodes, names: _Names) -> None:
        """Pass over the snapshot, and put the znodes of names, without data."""
        cursor, below, misplaced = Cursor(self._content), _NOTHING, 0

        def is_above(path: bytes) -> bool:
            return not path.startswith(below)

        for node in whole_snapshot(self.path, cursor, is_above, self._cut):
            is_name = names.is_name(node.path)
            if is_name:
                znodes.put(node.path, None, 0, 0, 0, node.ephemeral_owner)
            is_inside = node.path.startswith(names.roots)
            if is_inside and not is_name:  # or a byte of the path is wrong, as the checksum will show
                misplaced = misplaced or cursor.position
            below = node.path + b"/" if is_inside else _NOTHING
            if is_inside != self._is_inside or self._start < 0 or cursor.position - self._start >= self._size:
                self._cut(cursor.position, is_inside=is_inside)
        if misplaced:
            raise DamagedFileError(self.path, "a znode does not follow that of its topic", misplaced)
        self.names = frozenset(znodes)

    def _cut(self, position: int, *, is_inside: bool = False) -> None:
        """End a span, if there is one, and begin another."""
        if self._start >= 0:
            with memoryview(self._content) as view, view[self._start : position] as content:
                span = Span(self._start, position, zlib.adler32(content))
            (self.of_topics if self._is_inside else self.of_others).append(span)
        self._start, self._is_inside = position, is_inside


def read_part(files: DataFiles, part: Part, chroot: str = "") -> ZnodeTree:
    """The znodes of one part, as the transaction ``until`` left them; paths without ``chroot``.

    :raises OperatorError: as `divided`; or the snapshot was replaced meanwhile.
    """
    names, znodes = _Names(chroot), Znodes()

    def is_other(path: bytes) -> bool:
        return path.startswith(names.others)

    for span in part.spans:
        cursor = Cursor(_content(place(part.snapshot), span))
        znodes.put_all(nodes_at(cursor, names.is_compared if part.has_topics else is_other))
    known = part.late.union(path for path in znodes if path.count(b"/") == names.depth)

    def is_known(path: bytes) -> bool:
        return path.startswith(names.roots) and names.is_compared(path) and names.name_of(path) in known

    replay(znodes, replace(files, until=part.until), part.zxid, is_known if part.has_topics else is_other)
    return znodes.tree(len(chroot))


def _content(path: Path, span: Span) -> bytes:
    content = range_of(path, span.start, span.end)
    if zlib.adler32(content) != span.checksum:
        raise OperatorError(
            "the snapshot was replaced while it was read", where=str(path), remedy="Run the command again"
        )
    return content + END_MARK


def part_rows(files: DataFiles, part: Part, chroot: str, encoder: PasswordEncoder, salt: bytes) -> Iterator[Row]:
    """The canonical rows of one part; errors as in `read_part`."""
    tree = read_part(files, part, chroot)
    if not part.has_topics:
        return other_families(tree, encoder, salt)
    found, configured = tree.children([paths.TOPICS, paths.TOPIC_CONFIGS])
    names = sorted({*(found or ()), *(configured or ())} - part.without)
    return topics(tree, names, encoder, salt, is_part=True)
