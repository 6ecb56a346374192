"""Groups problems by remedy, so that nodes with the same problem share a line. Pure.

`status`, `top` and preflight show groups. No problem is left out; those that block the migration come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from migrator.observe.printable import number_ranges
from migrator.observe.status import Problem
from migrator.values import value

NUMBERED = re.compile(r"(broker|controller) (\d+)")


@value
class Group:
    """Problems with one remedy. ``whats``: pairs of nodes and their fault."""

    remedy: str
    warning: bool
    whats: tuple[tuple[str, str], ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The faults, one line each, and the remedy; all on one line if there is only one problem."""
        said = [f"{who}: {what}" for who, what in self.whats]
        remedy = self.remedy.rstrip(".")
        if len(said) == 1:
            return (f"{said[0]}. {remedy}" if remedy else said[0],)
        return (*said, f"  for all of them: {remedy}") if remedy else tuple(said)

    @property
    def sentence(self) -> str:
        """The same on one line."""
        said = "; ".join(f"{who}: {what}" for who, what in self.whats)
        return f"{said}. {self.remedy.rstrip('.')}" if self.remedy else said


def groups_of(problems: Iterable[Problem]) -> tuple[Group, ...]:
    """The groups. In a group, problems with the same text share a line. Groups that block the migration come first."""
    groups: dict[tuple[str, bool], dict[str, list[str]]] = {}
    for problem in problems:
        whats = groups.setdefault((problem.remedy, problem.warning), {})
        whats.setdefault(problem.what, []).append(problem.who)
    found = [
        Group(remedy, warning, tuple(said_of(whos, what) for what, whos in whats.items()))
        for (remedy, warning), whats in groups.items()
    ]
    return tuple(sorted(found, key=lambda group: group.warning))


def said_of(whos: list[str], what: str) -> tuple[str, str]:
    """``brokers 1-3``, ``each runs, but ...``; "" for no node."""
    if len(whos) < 2:
        return "".join(whos), what
    numbers: dict[str, list[int]] = {}
    rest = []
    for who in whos:
        match = NUMBERED.fullmatch(who)
        if match:
            numbers.setdefault(match[1], []).append(int(match[2]))
        else:
            rest.append(who)
    names = [number_ranges(noun, ids) for noun, ids in numbers.items()]
    each = f"each {what.removeprefix('it ')}" if what.startswith("it ") else what
    return ", ".join([*names, *rest]), each
