"""A check, what it finds, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import wraps
from typing import Any

from migrator.errors import ExitCode
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
    """One case: ``where`` is a path, a file with its key, or a broker. ``remedy`` "" stands for the check's own."""

    where: str
    what: str
    remedy: str = ""


Find = Callable[[Evidence], Iterable[Found]]


@value
class PreflightCheck:
    """One row of the table. ``find`` is pure."""

    code: str
    severity: Severity
    title: str
    find: Find
    remedy: str
    concerns: Concerns = Concerns.BOTH


@value
class PreflightFinding:
    """One case, with the check that found it."""

    check: PreflightCheck
    where: str
    what: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "code": self.check.code,
            "severity": self.check.severity.value,
            "title": self.check.title,
            "concerns": self.check.concerns.value,
            "where": self.where,
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
    findings = [
        PreflightFinding(check, found.where, found.what, found.remedy or check.remedy)
        for check in wanted
        for found in check.find(evidence)
    ]
    findings.sort(key=lambda finding: finding.check.severity is not Severity.BLOCKER)
    return PreflightReport(tuple(findings), evidence.unknown, len(wanted))


def of_zookeeper(find: Callable[[ZooKeeperFacts], Iterable[Found]]) -> Find:
    """A check of ZooKeeper alone: finds nothing where it could not be read, which `Evidence.unknown` says."""

    @wraps(find)
    def on_evidence(evidence: Evidence) -> Iterator[Found]:
        if evidence.zookeeper is not None:
            yield from find(evidence.zookeeper)

    return on_evidence
