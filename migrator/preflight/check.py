"""A check, what it finds, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import wraps
from typing import Any

from migrator.errors import ExitCode
from migrator.looked_up import without_looked_up
from migrator.migration.machine.readiness import Severity
from migrator.preflight.evidence import Evidence, UnknownFact, ZooKeeperFacts
from migrator.values import value


class Concerns(Enum):
    """Which controllers a problem is one for."""

    BOTH = "both"
    OURS = "ours"
    STOCK = "stock"


@value
class Found:
    """One case: ``where`` is a path, a file with its key, or an address. ``remedy`` "" stands for the check's own.

    ``hosts``: ``broker 1``, ``controller 3001`` and so on, whom it is about. ``what`` names none of these, so that one
    finding is enough for all of them.
    """

    where: str
    what: str
    remedy: str = ""
    hosts: tuple[str, ...] = ()


Find = Callable[[Evidence], Iterable[Found]]


@value
class PreflightCheck:
    """One row of the table. ``find`` is pure. ``alone``: where it finds something, no other check has a meaning."""

    code: str
    severity: Severity
    title: str
    find: Find
    remedy: str
    concerns: Concerns = Concerns.BOTH
    alone: bool = False
    of_not_examined: bool = False
    """It names keys whose values were not looked up; of these, no other check finds anything."""


@value
class PreflightFinding:
    """All cases in which a check found the same, with the same remedy: at these places, about these hosts."""

    check: PreflightCheck
    what: str
    remedy: str
    where: tuple[str, ...]
    hosts: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "code": self.check.code,
            "severity": self.check.severity.value,
            "title": self.check.title,
            "concerns": self.check.concerns.value,
            "hosts": list(self.hosts),
            "where": list(self.where),
            "what": self.what,
            "remedy": self.remedy,
        }


@value
class PreflightReport:
    """The verdict. ``unknown``: what could not be looked at."""

    findings: tuple[PreflightFinding, ...]
    unknown: tuple[UnknownFact, ...]
    checks: int

    @property
    def blockers(self) -> int:
        return sum(finding.check.severity is Severity.BLOCKER for finding in self.findings)

    @property
    def exit_code(self) -> ExitCode:
        """A blocker decides, whatever else could not be seen; what could not be seen is never a pass."""
        if self.blockers:
            return ExitCode.DIFFERENT
        return ExitCode.REFUSED if self.unknown else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "exit_code": int(self.exit_code),
            "checks": self.checks,
            "blockers": self.blockers,
            "warnings": len(self.findings) - self.blockers,
            "findings": [finding.to_json() for finding in self.findings],
            "unknown": [{"where": it.where, "what": it.what, "remedy": it.remedy} for it in self.unknown],
        }


def run_checks(checks: Sequence[PreflightCheck], evidence: Evidence, controllers: Concerns) -> PreflightReport:
    """Judge the evidence, blockers first.

    :param controllers: whose controllers will migrate the cluster; what concerns only the others is left out.
    """
    wanted = [check for check in checks if check.concerns in (Concerns.BOTH, controllers)]
    for check in wanted:
        if check.alone and (decisive := tuple(_findings(check, evidence))):
            return PreflightReport(decisive, (), 1)
    findings = [finding for check in wanted for finding in _findings(check, evidence)]
    findings.sort(key=lambda finding: finding.check.severity is not Severity.BLOCKER)
    return PreflightReport(tuple(findings), evidence.unknown, len(wanted))


def _findings(check: PreflightCheck, evidence: Evidence) -> Iterator[PreflightFinding]:
    """Grouped by what and remedy, in the order of the first case of each."""
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
    """``broker 2`` before ``broker 10``."""
    kind, _, number = host.partition(" ")
    return kind, int(number) if number.isdecimal() else -1


def of_zookeeper(find: Callable[[ZooKeeperFacts], Iterable[Found]]) -> Find:
    """A check of ZooKeeper alone: finds nothing where it could not be read, which `Evidence.unknown` says."""

    @wraps(find)
    def on_evidence(evidence: Evidence) -> Iterator[Found]:
        if evidence.zookeeper is not None:
            yield from find(evidence.zookeeper)

    return on_evidence
