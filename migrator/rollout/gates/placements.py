"""Places of replicas: how many partitions are unhealthy, and which ones the stop of brokers would harm. Pure.

The observer counts partitions with `Placements`, and gates ask `harmed`. Equal placements are counted together, and
only some names are kept, so millions of partitions fit into memory. Counts are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from migrator.rollout.ports import PartitionsSeen, Placement, Some

EXAMPLES_MAX = 5
NAMES_MAX = 1000
"""The most names kept of partitions that are alike and unhealthy."""


class Placements:
    """Counts partitions; those that are alike are counted together.

    :param placed: whether healthy partitions are kept, too.
    """

    def __init__(self, *, placed: bool) -> None:
        self._placed = placed
        self._found: dict[tuple[tuple[int, ...], tuple[int, ...], int, bool], list[str]] = {}
        self._counts: dict[tuple[tuple[int, ...], tuple[int, ...], int, bool], int] = {}

    def add(
        self, topic: str, number: int, leader: int, replicas: tuple[int, ...], in_sync: tuple[int, ...], min_isr: int
    ) -> None:
        """Add one partition; ``leader`` is below 0 when it has none."""
        well = leader >= 0 and len(in_sync) >= len(replicas)
        if well and not self._placed:
            return
        key = (replicas, in_sync, min_isr, leader >= 0)
        names = self._found.setdefault(key, [])
        if len(names) < (EXAMPLES_MAX if well else NAMES_MAX):
            names.append(f"{topic}-{number}")
        self._counts[key] = self._counts.get(key, 0) + 1

    def seen(self, reassigning: Some) -> PartitionsSeen:
        """The counts of all partitions that were added."""
        alike: dict[tuple[frozenset[int], frozenset[int], int, bool], Placement] = {}
        for (replicas, in_sync, min_isr, led), names in self._found.items():
            key = (frozenset(replicas), frozenset(in_sync), min_isr, led)
            count, others = self._counts[replicas, in_sync, min_isr, led], alike.get(key)
            if others is not None:
                count, names = count + others.count, [*others.names, *names][:NAMES_MAX]  # noqa: PLW2901
            alike[key] = Placement(*key, count, tuple(names))
        return counted(tuple(alike.values()), reassigning, placed=self._placed)


def counted(placements: tuple[Placement, ...], reassigning: Some, *, placed: bool = False) -> PartitionsSeen:
    """The numbers of unhealthy partitions, each with examples."""
    offline = _some(each for each in placements if not each.led)
    short = _some(each for each in placements if each.in_sync < each.replicas)
    below = _some(each for each in placements if _is_below(each))
    return PartitionsSeen(offline, short, below, reassigning, placements, placed)


def without_replicas_on(partitions: PartitionsSeen, brokers: Collection[int]) -> PartitionsSeen:
    """The counts when replicas on these brokers need not be in sync. A partition without a leader counts
    nevertheless."""
    counts = [each for each in partitions.placements if not each.led or not each.replicas - each.in_sync <= {*brokers}]
    return replace(counted(tuple(counts), partitions.reassigning), placements=())


def harmed(partitions: PartitionsSeen, brokers: Collection[int]) -> Iterator[tuple[Placement, bool]]:
    """The partitions that suffer more from a stop of all these brokers now than from a stop of one of them in a healthy
    cluster; and whether they go offline. The loss by one stop alone, as of a partition with one replica, does not
    count: no order of restarts prevents it."""
    together = frozenset(brokers)
    for each in partitions.placements:
        if not each.led or not each.in_sync & together:
            continue
        alone = max(_level(each, each.replicas - {broker}) for broker in each.replicas & together)
        now = _level(each, each.in_sync - together)
        if now > alone:
            yield each, now == OFFLINE


OFFLINE, BELOW, FINE = 2, 1, 0


def _level(placement: Placement, left: frozenset[int]) -> int:
    if not left:
        return OFFLINE
    return BELOW if len(left) < min(placement.min_isr, len(placement.replicas)) else FINE


def _is_below(placement: Placement) -> bool:
    return _level(placement, placement.in_sync) != FINE


def _some(placements: Iterable[Placement]) -> Some:
    found = tuple(placements)
    names = (name for each in found for name in each.names[:EXAMPLES_MAX])
    return Some(sum(each.count for each in found), tuple(islice(names, EXAMPLES_MAX)))
