"""The type of a check, its findings, the verdict, and the phases in which each check matters. Pure.

`table` lists the checks, `run_checks` applies them to one `Evidence`, and the command prints the report. A check is a
pure function. `run_checks` leaves out checks that have no meaning any more: each has exactly one span of phases
(`SPANS`, shown in docs/checks.md). A report with an unknown source is never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import wraps
from typing import Any

from migrator.errors import ExitCode
from migrator.looked_up import without_looked_up
from migrator.migration.machine.readiness import Severity
from migrator.preflight.evidence import Evidence, UnknownFact, ZooKeeperFacts
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


class Concerns(Enum):
    """The controllers for which a finding is a problem: ours, Kafka's, or both."""

    BOTH = "both"
    OURS = "ours"
    STOCK = "stock"

    @property
    def in_words(self) -> str:
        """The words that follow the title of a check; "" for both."""
        return {Concerns.BOTH: "", Concerns.OURS: "this program only", Concerns.STOCK: "stock controllers only"}[self]


@value
class Found:
    """One case. ``where``: a path, a file with its key, or an address. ``remedy``: "" for that of the check.

    ``hosts``: the nodes that it is about, such as ``broker 1`` or ``controller 3001``. ``what`` does not name them, so
    that one finding covers them all.
    """

    where: str
    what: str
    remedy: str = ""
    hosts: tuple[str, ...] = ()


Find = Callable[[Evidence], Iterable[Found]]


@value
class PreflightCheck:
    """One row of the table. ``find`` is pure. ``alone``: when it finds something, all other checks are meaningless."""

    code: str
    severity: Severity
    title: str
    find: Find
    remedy: str
    concerns: Concerns = Concerns.BOTH
    alone: bool = False
    of_not_examined: bool = False
    """Its finding names keys whose values were not looked up. No other check finds anything about these keys."""
    asks: bool = False
    """A warning about which an operator decides: a rollout asks before it continues."""
    of_host: bool = False
    """The check looks at the host of the first controller's file, so a rollout repeats it on each host (`--here`)."""


@value
class PreflightFinding:
    """All cases of one check with the same text and remedy: their places, and the nodes that they are about."""

    check: PreflightCheck
    what: str
    remedy: str
    where: tuple[str, ...]
    hosts: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.check.code,
            "severity": self.check.severity.value,
            "title": self.check.title,
            "concerns": self.check.concerns.value,
            "asks": self.check.asks,
            "phase": SPANS[self.check.code].first.value,
            "hosts": list(self.hosts),
            "where": list(self.where),
            "what": self.what,
            "remedy": self.remedy,
        }


@value
class PreflightReport:
    """The verdict. ``unknown``: the sources that could not be read."""

    findings: tuple[PreflightFinding, ...]
    unknown: tuple[UnknownFact, ...]
    checks: int

    @property
    def blockers(self) -> int:
        return sum(finding.check.severity is Severity.BLOCKER for finding in self.findings)

    @property
    def exit_code(self) -> ExitCode:
        """A blocker decides, even when facts are unknown. Without a blocker, an unknown fact is not a pass."""
        if self.blockers:
            return ExitCode.DIFFERENT
        return ExitCode.REFUSED if self.unknown else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return {
            "exit_code": int(self.exit_code),
            "checks": self.checks,
            "blockers": self.blockers,
            "warnings": len(self.findings) - self.blockers,
            "findings": [finding.to_json() for finding in self.findings],
            "unknown": [{"where": it.where, "what": it.what, "remedy": it.remedy} for it in self.unknown],
        }


def run_checks(
    checks: Sequence[PreflightCheck], evidence: Evidence, controllers: Concerns, before: MigrationPhase = START
) -> PreflightReport:
    """Judge the evidence; the findings have blockers first.

    :param controllers: whose controllers will migrate the cluster. Checks that concern only the others are left out.
    :param before: the phase that comes next. Checks that have no meaning any more are left out.
    """
    concern = [check for check in checks if check.concerns in (Concerns.BOTH, controllers)]
    wanted = [check for check in concern if SPANS[check.code].matters_before(before)]
    for check in wanted:
        if check.alone and (decisive := tuple(_findings(check, evidence))):
            return PreflightReport(decisive, (), 1)
    findings = [finding for check in wanted for finding in _findings(check, evidence)]
    findings.sort(key=lambda finding: finding.check.severity is not Severity.BLOCKER)
    return PreflightReport(tuple(findings), evidence.unknown, len(wanted))


def _findings(check: PreflightCheck, evidence: Evidence) -> Iterator[PreflightFinding]:
    """The cases grouped by text and remedy, in the order of each group's first case."""
    groups: dict[tuple[str, str], list[Found]] = {}
    unseen = () if check.of_not_examined else {it.file.at(key) for it in evidence.nodes for key in it.file.not_examined}
    for found in (each for each in check.find(evidence) if each.where not in unseen):
        said = without_looked_up(found.what), without_looked_up(found.remedy or check.remedy)
        groups.setdefault(said, []).append(found)
    for (what, remedy), cases in groups.items():
        where = dict.fromkeys(case.where for case in cases)
        hosts = dict.fromkeys(host for case in cases for host in case.hosts)
        places = tuple(map(without_looked_up, where))
        yield PreflightFinding(check, what, remedy, places, tuple(sorted(hosts, key=_by_number)))


def _by_number(host: str) -> tuple[str, int]:
    """A sort key that puts ``broker 2`` before ``broker 10``."""
    kind, _, number = host.partition(" ")
    return kind, int(number) if number.isdecimal() else -1


def of_zookeeper(find: Callable[[ZooKeeperFacts], Iterable[Found]]) -> Find:
    """A check of ZooKeeper alone. Where ZooKeeper could not be read it finds nothing; `Evidence.unknown` says so."""

    @wraps(find)
    def on_evidence(evidence: Evidence) -> Iterator[Found]:
        if evidence.zookeeper is not None:
            yield from find(evidence.zookeeper)

    return on_evidence
