"""An index of access control entries by resource pattern and principal.

It is persistent: the index of the next image shares everything that did not change, so a change of one entry costs the
same with ten entries and with a million.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Final

from immutables import Map

from migrator.image.model import Acl
from migrator.records.acl_codes import PatternType
from migrator.records.uuid import Uuid
from migrator.turns import parts

WILDCARD: Final = "*"

Pattern = tuple[int, int, str]
"""Resource type, pattern type and name."""
Entries = tuple[tuple[Uuid, Acl], ...]
ByPrincipal = Map[str, Entries]
_Change = tuple[set[Uuid], list[tuple[Uuid, Acl]]]
"""The removed and the added entries of one pattern and principal."""


class AclIndex:
    """The access control entries of one image, found by resource pattern and principal."""

    __slots__ = ("_lengths", "_patterns")

    def __init__(
        self,
        patterns: Map[Pattern, ByPrincipal] = Map(),  # noqa: B008 (immutable)
        lengths: Map[int, Map[int, int]] = Map(),  # noqa: B008
    ) -> None:
        self._patterns = patterns
        self._lengths = lengths
        """The number of prefixes of each length, for each resource type. A look-up tries only these lengths."""

    @classmethod
    def of(cls, acls: Map[Uuid, Acl]) -> AclIndex:
        """The index of all entries of an image."""
        return at_once(cls().follow(Map(), acls, acls))

    def follow(
        self, before: Map[Uuid, Acl], after: Map[Uuid, Acl], changed: Iterable[Uuid]
    ) -> Generator[None, None, AclIndex]:
        """Returns the index of ``after`` when this is the one of ``before``. Yields where a turn is over.

        :param changed: ids of entries that may differ.
        """
        index = self
        for number, part in enumerate(parts(changed)):
            if number:
                yield
            index = index._with(before, after, part)
        return index

    def at(self, pattern: Pattern) -> ByPrincipal | None:
        """The entries of exactly this pattern, by principal; None if there are none."""
        return self._patterns.get(pattern)

    def applying_to(self, resource_type: int, name: str) -> Iterator[ByPrincipal]:
        """The entries that apply to a resource: those of its name, of the wildcard, and of prefixes of its name."""
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
        """Whether the index has an entry with this content, under any id."""
        by_principal = self._patterns.get(_pattern(acl))
        return by_principal is not None and any(entry == acl for _, entry in by_principal.get(acl.principal, ()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclIndex) and self._content == other._content

    __hash__ = None  # type: ignore[assignment]

    @property
    def _content(self) -> tuple[object, ...]:
        rows = (
            (pattern, principal, entry)
            for pattern, by_principal in self._patterns.items()
            for principal, entries in by_principal.items()
            for entry in entries
        )
        return self._lengths, frozenset(rows)

    def _with(self, before: Map[Uuid, Acl], after: Map[Uuid, Acl], changed: Iterable[Uuid]) -> AclIndex:
        """The index after some changes. They are grouped first, so that each pattern and principal is rebuilt once."""
        touched: dict[Pattern, dict[str, _Change]] = {}
        for acl_id in changed:
            was, now = before.get(acl_id), after.get(acl_id)
            if was is now:
                continue
            if was is not None:
                _change_of(touched, was)[0].add(acl_id)
            if now is not None:
                _change_of(touched, now)[1].append((acl_id, now))
        patterns, lengths = self._patterns.mutate(), self._lengths
        for pattern, principals in touched.items():
            known = self._patterns.get(pattern)
            if known is None:
                left: ByPrincipal = Map({who: tuple(added) for who, (_, added) in principals.items()})
            else:
                left = _changed(known, principals)
            if left:
                patterns[pattern] = left
            elif known is not None:
                del patterns[pattern]
            if pattern[1] == PatternType.PREFIXED and bool(known) != bool(left):
                lengths = _counted(lengths, pattern, 1 if left else -1)
        return AclIndex(patterns.finish(), lengths)


def at_once(steps: Generator[None, None, AclIndex]) -> AclIndex:
    """Take all steps at once, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            index: AclIndex = end.value
            return index


def _pattern(acl: Acl) -> Pattern:
    return acl.resource_type, acl.pattern_type, acl.resource_name


def _change_of(touched: dict[Pattern, dict[str, _Change]], acl: Acl) -> _Change:
    principals = touched.setdefault((acl.resource_type, acl.pattern_type, acl.resource_name), {})
    change = principals.get(acl.principal)
    if change is None:
        change = principals[acl.principal] = set(), []
    return change


def _changed(known: ByPrincipal, principals: Mapping[str, _Change]) -> ByPrincipal:
    for principal, (removed, added) in principals.items():
        left: Entries = known.get(principal, ())
        if removed:
            left = tuple(entry for entry in left if entry[0] not in removed)
        left = (*left, *added)
        if left:
            known = known.set(principal, left)
        elif principal in known:
            known = known.delete(principal)
    return known


def _counted(lengths: Map[int, Map[int, int]], pattern: Pattern, change: int) -> Map[int, Map[int, int]]:
    resource_type, _, prefix = pattern
    counts: Map[int, int] = lengths.get(resource_type, Map())
    count = counts.get(len(prefix), 0) + change
    counts = counts.set(len(prefix), count) if count else counts.delete(len(prefix))
    return lengths.set(resource_type, counts) if counts else lengths.delete(resource_type)
