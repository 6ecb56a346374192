"""The result of a comparison of both sides: counts, and a bounded number of differences. Needs no Spark.

`verify.spark.compare` makes it; the verdict, the page and the second reading use it. Counts are exact. At most
`SUSPECTS_MAX` differences of one kind and status are kept, so a broken cluster cannot fill the memory of the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Self

from migrator.values import value

EXAMPLES_MAX = 50
"""The most differences that are shown."""
SUSPECTS_MAX = 2_000
"""The most differences of one kind and status that reach the driver, which reads them again."""


@value
class Difference:
    """One leaf that differs; a value is None when that side has no such row. ``zxid``: ZooKeeper's last transaction
    when the value was read again, None when it was not."""

    kind: str
    entity: str
    field: str
    zookeeper: str | None
    kraft: str | None
    zxid: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """The leaf: kind, entity, field."""
        return self.kind, self.entity, self.field

    @property
    def status(self) -> str:
        """missing: only ZooKeeper has it; extra: only KRaft has it; different."""
        return "extra" if self.zookeeper is None else "missing" if self.kraft is None else "different"


@value
class KindCounts:
    """Rows of one kind, and how many of them differ."""

    zookeeper: int
    kraft: int
    missing: int
    extra: int
    different: int


@value
class Reading:
    """How Spark read the files of one side: ``size`` in all, ``largest`` of a task and what was read ``twice``, by
    another task, are bytes; ``at_driver``: the records that reached the driver."""

    tasks: int
    size: int
    largest: int
    twice: int
    at_driver: int

    @classmethod
    def of(cls, tasks: Sequence[Sequence[tuple[str, int, int]]], at_driver: int) -> Self:
        """The sum of the bytes that tasks have read. A task's ranges: file, first byte, byte after the last."""
        sizes = [sum(end - start for _, start, end in ranges) for ranges in tasks]
        twice, ends = 0, Counter[str]()
        for path, start, end in sorted(chain(*tasks)):
            twice += max(0, min(end, ends[path]) - start)
            ends[path] = max(end, ends[path])
        return cls(len(sizes), sum(sizes), max(sizes), twice, at_driver)

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks read {self.size:,} bytes, each at most {self.largest:,}, and {self.twice:,} of them "
            f"twice; {self.at_driver:,} records reached the driver"
        )

    def to_json(self) -> dict[str, int]:
        """The figures as JSON for scripts."""
        return {
            "tasks": self.tasks,
            "bytes": self.size,
            "bytes_of_largest_task": self.largest,
            "bytes_read_twice": self.twice,
            "records_at_driver": self.at_driver,
        }


@value
class Comparison:
    """Counts by kind, and differences: at most `SUSPECTS_MAX` of one kind and status. ``log`` and ``files``, those of
    ZooKeeper: None if there were none to read."""

    kinds: dict[str, KindCounts]
    found: tuple[Difference, ...]
    log: Reading | None = None
    files: Reading | None = None

    @property
    def examples(self) -> tuple[Difference, ...]:
        return self.found[:EXAMPLES_MAX]

    @property
    def rows(self) -> int:
        """The number of rows of both sides."""
        return sum(counts.zookeeper + counts.kraft for counts in self.kinds.values())

    @property
    def differences(self) -> int:
        """The number of leaves that differ."""
        return sum(counts.missing + counts.extra + counts.different for counts in self.kinds.values())


def settled(first: Comparison, different: Iterable[Difference], agreed: Collection[tuple[str, str, str]]) -> Comparison:
    """The comparison after differences were read again; those beyond `SUSPECTS_MAX` stay as they were.

    :param different: the leaves that still differ; their values may have changed.
    :param agreed: the leaves that turned out to be equal.
    """
    now = sorted(different, key=place_of)
    counts: Counter[tuple[str, str]] = Counter()
    for kind, seen in first.kinds.items():
        differing = {"missing": seen.missing, "extra": seen.extra, "different": seen.different}
        counts.update({(kind, status): number for status, number in differing.items()})
        counts[kind, "equal"] = seen.zookeeper - seen.missing - seen.different
    counts.subtract((one.kind, one.status) for one in first.found)
    counts.update((one.kind, one.status) for one in now)
    counts.update((kind, "equal") for kind, _, _ in agreed)
    return Comparison({kind: counts_of(counts, kind) for kind in first.kinds}, tuple(now), first.log, first.files)


def place_of(difference: Difference) -> tuple[str, str, str]:
    """The sort key of a difference, for the order in which people see them."""
    return difference.key


def counts_of(rows: Mapping[tuple[str, str], int], kind: str) -> KindCounts:
    equal, missing, extra, different = (
        rows.get((kind, status), 0) for status in ("equal", "missing", "extra", "different")
    )
    return KindCounts(equal + different + missing, equal + different + extra, missing, extra, different)
