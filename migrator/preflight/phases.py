"""Which check matters in which phase of a migration: one table. Pure.

`check.run_checks` leaves out checks that have no meaning any more, and docs/checks.md shows the table. Each check has
exactly one span.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from migrator.values import value


class MigrationPhase(Enum):
    """The phases in which a fault shows, in their order, by the names that a rollout gives them."""

    START = "start"
    MIGRATE = "migrate"
    COPY = "copy"
    KRAFT = "kraft"
    FINISH = "finish"
    HANDOVER = "handover"

    @property
    def number(self) -> int:
        return list(MigrationPhase).index(self)


START, MIGRATE, COPY, KRAFT, FINISH, HANDOVER = MigrationPhase


@value
class PhaseSpan:
    """``first``: the phase in which the fault does harm for the first time. ``last``: the phase after which the check
    has no meaning: the cluster looks otherwise then, or the fault can do no harm any more."""

    first: MigrationPhase
    last: MigrationPhase

    def matters_before(self, phase: MigrationPhase) -> bool:
        """Whether the check still has a meaning before this phase begins."""
        return self.last.number >= phase.number

    def __str__(self) -> str:
        return self.first.value if self.first is self.last else f"{self.first.value} to {self.last.value}"


_CODES: Mapping[tuple[MigrationPhase, MigrationPhase], str] = {
    (START, START): "M210 M214",
    (START, COPY): "M005 M006 M212 M213",
    (START, KRAFT): "M008 M208",
    (START, FINISH): "M007 M116 M117 M118 M301 M313 M317 M320 M324 M505 M507 M511",
    (START, HANDOVER): (
        "M126 M201 M202 M203 M204 M205 M206 M207 M209 M211 M217 M314 M315 M316 M321 M322 M323 M501 M502 M503 M504 M508 "
        "M509 M510 M601 M602 M603 M605"
    ),
    (MIGRATE, MIGRATE): "M025 M111 M112 M113 M119 M125",
    (MIGRATE, COPY): "M107 M108 M109 M121",
    (MIGRATE, KRAFT): "M110 M114 M120 M122 M124 M127 M128 M132 M134",
    (MIGRATE, HANDOVER): "M130 M131 M308",
    (COPY, COPY): (
        "M002 M003 M004 M010 M011 M012 M013 M014 M015 M017 M018 M019 M020 M021 M023 M024 M101 M102 M103 M215 M310"
    ),
    (COPY, KRAFT): "M016 M104 M105 M218 M305 M401 M402 M403",
    (COPY, FINISH): "M001 M009 M022 M303 M309 M318 M319 M404 M405 M406 M407 M506",
    (COPY, HANDOVER): "M115 M133 M302 M304 M307 M311 M312",
    (KRAFT, KRAFT): "M106 M123 M129 M306",
    (HANDOVER, HANDOVER): "M216 M604 M606",
}


def _spans() -> Iterator[tuple[str, PhaseSpan]]:
    for (first, last), codes in _CODES.items():
        for code in codes.split():
            yield code, PhaseSpan(first, last)


SPANS: Mapping[str, PhaseSpan] = dict(_spans())
"""The span of each check, by the check's code."""
