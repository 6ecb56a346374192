"""Reads again what differed, until it agrees or certainly differs: so a live cluster causes no false alarms.

While ZooKeeper is written behind the log, the readings of the two sides are never of the same moment. So a leaf that
differed is judged in steps. The log is read to its end. When ``/migration`` has passed that offset, the leaf is read
from ZooKeeper. Then the log is read on, until it holds everything that ZooKeeper can have held. Then:

* If ZooKeeper's value is one that the leaf had in the log within that window, the leaf agrees.
* If it is another value, and the leaf did not change in that window, the leaf differs, at that zxid and that offset.
* Any other leaf is read again, for a bounded time. After that it is undecided, and the verdict is not "equal".

Stock controllers write ``/migration``, too, but only after the znodes of a change. So what ZooKeeper can have held is
known only when ``/migration`` has moved once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from migrator.image.model import Changes, MetadataImage
from migrator.records.metadata import ConfigResourceType
from migrator.values import value
from migrator.verify.canonical import RULES, Equality
from migrator.verify.comparison import Difference
from migrator.verify.kraft import image_rows
from migrator.verify.kraft.log_tail import LogTail
from migrator.verify.zookeeper.side import Key, MigrationMark, ZooKeeperSide, topic_of

POLL_SECONDS = 0.1


@value
class Patience:
    """How long to go on, in seconds. ``total``: after it, the remaining leaves count as undecided. ``rest``: when
    neither the log nor ``/migration`` has moved for so long, no controller writes, and waiting is useless."""

    total: float = 60.0
    rest: float = 10.0


@value
class Pair:
    """A point at which both sides were seen: ZooKeeper's last transaction, and the last offset of the log with its
    leader epoch."""

    zxid: int
    offset: int
    epoch: int = -1


@value
class Settlement:
    """The result for the leaves that differed. ``at`` is the point where ``different`` was seen; ``why`` says why
    ``undecided`` could not be decided."""

    different: tuple[Difference, ...] = ()
    undecided: tuple[Difference, ...] = ()
    agreed: tuple[Key, ...] = ()
    at: Pair = Pair(-1, -1)
    rounds: int = 0
    why: str = ""


_SPECIAL = {(rule.kind, rule.field): rule.equality for rule in RULES if rule.equality is not Equality.SAME}


def agrees(key: Key, zookeeper: str | None, kraft: str | None) -> bool:
    """Whether both sides' values of a leaf count as equal; None where a side has no such row."""
    equality = _SPECIAL.get((key[0], key[2]), Equality.SAME)
    if zookeeper is None or kraft is None or equality is Equality.SAME:
        return zookeeper == kraft
    if equality is Equality.AT_LEAST:
        return int(zookeeper) >= int(kraft)
    return kraft in zookeeper.split("|")


class _Window:
    """The values that some leaves have had in the log since the window began."""

    def __init__(self, keys: Iterable[Key], image: MetadataImage, salt: bytes) -> None:
        self._keys = frozenset(keys)
        self._salt = salt
        self._topics = {name for kind, entity, _ in self._keys if (name := topic_of(kind, entity)) is not None}
        self._kinds = {kind for kind, entity, _ in self._keys if topic_of(kind, entity) is None}
        self._configs = {entity for kind, entity, _ in self._keys if kind == "config"}
        self._seen: dict[Key, list[str | None]] = {key: [] for key in self._keys}
        self._touched: set[str] = set()
        for name in self._topics:
            self._take_topic(name, image)
        self._take_others(image)

    def step(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> None:
        """Note the changes of one batch to the entities that are checked again (see `Step`)."""
        ids = {*changes.topics, *changes.partitions}
        known = (image.topics.by_id.get(topic_id) for topic_id in ids for image in (before, after))
        names = {topic.name for topic in known if topic is not None} & self._topics
        self._touched |= names
        for name in names:
            self._take_topic(name, after)
        if self._concern(changes):
            self._take_others(after)

    def held(self, key: Key) -> list[str | None]:
        """The leaf's values in order, each as often as it was set."""
        return self._seen[key]

    def constant(self, key: Key) -> bool:
        """Whether no change touched the leaf."""
        return len(set(self._seen[key])) == 1 and topic_of(key[0], key[1]) not in self._touched

    def _concern(self, changes: Changes) -> bool:
        families = {
            "quota": bool(changes.quotas),
            "scram": bool(changes.scram),
            "acl": bool(changes.acls),
            "token": bool(changes.tokens),
            "producer ids": changes.producer_ids,
        }
        names: dict[int, str] = {ConfigResourceType.TOPIC: "topic", ConfigResourceType.BROKER: "broker"}
        return any(families.get(kind, False) for kind in self._kinds) or any(
            f"{names.get(resource.resource_type)}:{resource.name}" in self._configs for resource in changes.configs
        )

    def _take_topic(self, name: str, image: MetadataImage) -> None:
        topic = image.topics.by_name(name)
        self._take(() if topic is None else image_rows.topic_rows(topic), lambda key: topic_of(key[0], key[1]) == name)

    def _take_others(self, image: MetadataImage) -> None:
        if self._kinds:
            self._take(image_rows.other_rows(image, self._salt), lambda key: topic_of(key[0], key[1]) is None)

    def _take(self, rows: Iterable[tuple[str, str, str, str]], concerned: Callable[[Key], bool]) -> None:
        found = {(kind, entity, name): text for kind, entity, name, text in rows}
        for key in filter(concerned, self._keys):
            self._seen[key].append(found.get(key))


class _Finding(Enum):
    AGREES = "agrees"
    DIFFERS = "differs"
    MOVES = "moves"


@dataclass(slots=True)
class Recheck:
    """Reads again leaves that differed, and judges them.

    :param log: is at the end of the log after each `advance`.
    """

    zookeeper: ZooKeeperSide
    log: LogTail
    salt: bytes
    patience: Patience
    _deadline: float = field(init=False, default=0.0)
    _why: str = field(init=False, default="")

    def settle(self, suspects: Iterable[Difference]) -> Settlement:
        """Read the leaves again until each agrees or certainly differs, or the time is over.

        :raises OperatorError: a side can't be read any more.
        """
        self._deadline = time.monotonic() + self.patience.total
        left = {(suspect.kind, suspect.entity, suspect.field): suspect for suspect in suspects}
        different: list[Difference] = []
        agreed: list[Key] = []
        at, rounds = Pair(-1, -1), 0
        while left and (rounds == 0 or time.monotonic() < self._deadline):
            rounds += 1
            for key, finding, seen in self._round(left):
                if finding is _Finding.AGREES:
                    agreed.append(key)
                    del left[key]
                elif finding is _Finding.DIFFERS:
                    different.append(seen)
                    del left[key]
                else:
                    left[key] = seen
            last = self.log.image.provenance
            at = Pair(self.zookeeper.zxid, last.offset, last.epoch)
        return Settlement(tuple(different), tuple(left.values()), tuple(agreed), at, rounds, self._why if left else "")

    def catch_up(self) -> bool:
        """Read the log until it holds everything that ZooKeeper has now. Returns whether that happened in time."""
        self._deadline = time.monotonic() + self.patience.total
        return self._until_complete(self.zookeeper.mark())

    def until_passed(self) -> int:
        """Wait, for a bounded time, until ZooKeeper holds the log up to its end at the call. Returns that offset."""
        self._deadline = time.monotonic() + self.patience.total
        self.log.advance()
        end = self.log.image.provenance.offset
        self._until_passed(end)
        return end

    def _round(self, left: Mapping[Key, Difference]) -> list[tuple[Key, _Finding, Difference]]:
        self.log.advance()
        generation = self.log.generation
        window = _Window(left, self.log.image, self.salt)
        self.log.on_step = window.step
        try:
            passed = self._until_passed(self.log.image.provenance.offset)
            found = self.zookeeper.rows(left)
            zxid = self.zookeeper.zxid
            complete = self._until_complete(self.zookeeper.mark())
        finally:
            self.log.on_step = None
        if self.log.generation != generation:
            self._why = "the log was truncated, or restarted from a snapshot, while verify read it"
            passed = False
        return [_judged(key, found.get(key), zxid, window, sure=passed and complete) for key in left]

    def _until_passed(self, offset: int) -> bool:
        """Wait until ZooKeeper holds everything up to the offset. Returns whether it does, or no quorum writes to
        it."""
        return self._wait(
            lambda mark: mark.offset >= offset,
            lambda mark: f"ZooKeeper holds the log only up to offset {mark.offset}; verify needs offset {offset}",
        )

    def _until_complete(self, after: MigrationMark) -> bool:
        """Wait until the log holds everything that ZooKeeper had when ``after`` was read."""

        def complete(mark: MigrationMark) -> bool:
            end = self.log.end_offset
            return end > mark.offset and (mark.offset > after.offset or mark.offset >= end - 1)

        def why(mark: MigrationMark) -> str:
            if self.log.end_offset <= mark.offset:
                return f"the log that verify read ends before offset {mark.offset}, which ZooKeeper already holds"
            end = self.log.end_offset - 1
            return f"ZooKeeper holds the log only up to offset {mark.offset}; the log ends at offset {end}"

        return self._wait(complete, why)

    def _wait(self, condition: Callable[[MigrationMark], bool], why: Callable[[MigrationMark], str]) -> bool:
        seen: object = None
        rest_at = 0.0
        while True:
            self.log.advance()
            mark = self.zookeeper.mark()
            if not mark.copied or condition(mark):
                return True
            now = time.monotonic()
            if (moved := (mark.state, self.log.end_offset)) != seen:
                seen, rest_at = moved, now + self.patience.rest
            if now >= rest_at and self.log.end_offset > mark.offset:
                return True
            if now >= rest_at or now >= self._deadline:
                self._deadline, self._why = now, why(mark)  # more time would not help
                return False
            time.sleep(POLL_SECONDS)


def _judged(key: Key, found: str | None, zxid: int, window: _Window, *, sure: bool) -> tuple[Key, _Finding, Difference]:
    held = window.held(key)
    seen = Difference(*key, found, held[-1], zxid)
    if any(agrees(key, found, text) for text in held):
        return key, _Finding.AGREES, seen
    return key, _Finding.DIFFERS if sure and window.constant(key) else _Finding.MOVES, seen
