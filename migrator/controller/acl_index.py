"""Access control entries arranged for look-ups: by resource pattern, and within one by principal.

Persistent: the index of the next image shares all that did not change with this one, so that a change of one entry
costs the same whether there are ten entries or a million.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Final

from immutables import Map

from migrator.image.model import Acl
from migrator.records.acl_codes import PatternType
from migrator.records.uuid import Uuid

SLICE: Final = 500
"""Entries that are taken in between two yields of `AclIndex.follow`."""
WILDCARD: Final = "*"

Pattern = tuple[int, int, str]
"""Resource type, pattern type and name."""
ByPrincipal = Map[str, Map[Uuid, Acl]]


class AclIndex:
    """See the module."""

    __slots__ = ("_lengths", "_patterns")

    def __init__(
        self,
        patterns: Map[Pattern, ByPrincipal] = Map(),  # noqa: B008 (immutable)
        lengths: Map[int, Map[int, int]] = Map(),  # noqa: B008
    ) -> None:
        self._patterns = patterns
        self._lengths = lengths
        """How many prefixes of each length there are, by resource type: the only ones that a name is tried for."""

    @classmethod
    def of(cls, acls: Map[Uuid, Acl]) -> AclIndex:
        """The index of all entries of an image."""
        return at_once(cls().follow(Map(), acls, acls))

    def follow(
        self, before: Map[Uuid, Acl], after: Map[Uuid, Acl], changed: Iterable[Uuid]
    ) -> Generator[None, None, AclIndex]:
        """Returns the index of ``after``, if this is the one of ``before``; other work may be done at each yield.

        :param changed: ids of entries that may differ; ids that do not are passed over.
        """
        index, remaining = self, iter(changed)
        while part := tuple(islice(remaining, SLICE)):
            index = index._with(before, after, part)
            if len(part) == SLICE:
                yield
        return index

    def at(self, pattern: Pattern) -> ByPrincipal | None:
        """Entries of exactly this pattern, by principal; None without any."""
        return self._patterns.get(pattern)

    def applying_to(self, resource_type: int, name: str) -> Iterator[ByPrincipal]:
        """Entries that apply to a resource: of its name, of the wildcard, and of prefixes of its name."""
        patterns = [(resource_type, int(PatternType.LITERAL), name)]
        if name != WILDCARD:
            patterns.append((resource_type, int(PatternType.LITERAL), WILDCARD))
        lengths = self._lengths.get(resource_type, ())
        prefixes = (name[:length] for length in lengths if length <= len(name))
        patterns.extend((resource_type, int(PatternType.PREFIXED), prefix) for prefix in prefixes)
        for pattern in patterns:
            found = self._patterns.get(pattern)
            if found is not None:
                yield found

    def holds(self, acl: Acl) -> bool:
        """Whether there is such an entry, under whatever id."""
        entries = self._patterns.get(_pattern(acl), Map()).get(acl.principal, Map())
        return any(entry == acl for entry in entries.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclIndex) and (self._patterns, self._lengths) == (other._patterns, other._lengths)

    __hash__ = None  # type: ignore[assignment]

    def _with(self, before: Map[Uuid, Acl], after: Map[Uuid, Acl], changed: Iterable[Uuid]) -> AclIndex:
        """Gathered by pattern first: a pattern is rebuilt once however many of its entries change."""
        touched: dict[Pattern, list[tuple[Uuid, Acl, bool]]] = {}
        for acl_id in changed:
            was, now = before.get(acl_id), after.get(acl_id)
            if was == now:
                continue
            if was is not None:
                touched.setdefault(_pattern(was), []).append((acl_id, was, False))
            if now is not None:
                touched.setdefault(_pattern(now), []).append((acl_id, now, True))
        patterns, lengths = self._patterns.mutate(), self._lengths
        for pattern, entries in touched.items():
            known = self._patterns.get(pattern)
            left = _changed(known or Map(), entries)
            if left:
                patterns[pattern] = left
            elif known is not None:
                del patterns[pattern]
            if pattern[1] == PatternType.PREFIXED and bool(known) != bool(left):
                lengths = _counted(lengths, pattern, 1 if left else -1)
        return AclIndex(patterns.finish(), lengths)


def at_once(steps: Generator[None, None, AclIndex]) -> AclIndex:
    """What the steps lead to, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            index: AclIndex = end.value
            return index


def _pattern(acl: Acl) -> Pattern:
    return acl.resource_type, acl.pattern_type, acl.resource_name


def _changed(known: ByPrincipal, entries: Iterable[tuple[Uuid, Acl, bool]]) -> ByPrincipal:
    """``entries``: id, entry, and whether it is added; an entry that changes is removed first."""
    for acl_id, acl, added in entries:
        of_principal: Map[Uuid, Acl] = known.get(acl.principal, Map())
        of_principal = of_principal.set(acl_id, acl) if added else of_principal.delete(acl_id)
        known = known.set(acl.principal, of_principal) if of_principal else known.delete(acl.principal)
    return known


def _counted(lengths: Map[int, Map[int, int]], pattern: Pattern, change: int) -> Map[int, Map[int, int]]:
    resource_type, _, prefix = pattern
    counts: Map[int, int] = lengths.get(resource_type, Map())
    count = counts.get(len(prefix), 0) + change
    counts = counts.set(len(prefix), count) if count else counts.delete(len(prefix))
    return lengths.set(resource_type, counts) if counts else lengths.delete(resource_type)
