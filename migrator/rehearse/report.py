"""The results of a rehearsal, and the verdict.

`rehearse` fills a `RehearsalReport` while it runs, and the command prints it as text or JSON. The outcome is the worst
result of all checks that were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from migrator.errors import ExitCode
from migrator.image.model import MetadataImage
from migrator.migration.machine.readiness import Gap
from migrator.rehearse.forecast import Forecast
from migrator.values import fields_of, value
from migrator.verify.verdict import Verdict

EXAMPLES = 5
"""The number of differences or changed znodes that a sentence names."""


class Outcome(Enum):
    """The result of a rehearsal, or of one of its checks."""

    FINE = "fine"
    BLOCKED = "blocked"
    DIFFERENT = "different"
    UNKNOWN = "could not tell"
    NOT_CHECKED = "not checked"


_EXIT_CODES = {
    Outcome.FINE: ExitCode.OK,
    Outcome.BLOCKED: ExitCode.DIFFERENT,
    Outcome.DIFFERENT: ExitCode.DIFFERENT,
    Outcome.UNKNOWN: ExitCode.REFUSED,
}


@value
class RehearsalCheck:
    """``detail``: the reason of the failure, or the subject of the check."""

    outcome: Outcome
    detail: str

    def to_json(self) -> dict[str, str]:
        """The fields in the form that `--json` prints."""
        return {"outcome": self.outcome.value, "detail": self.detail}


NOTHING_COPIED = RehearsalCheck(Outcome.NOT_CHECKED, "nothing was copied")


@value
class FirstReconcile:
    """The work of the first reconcile in ZooKeeper: how many entities it would write and delete. ``held``: these are
    so many that it would wait for an order."""

    writes: int
    deletes: int
    held: bool


@dataclass
class RehearsalReport:
    """Filled while the rehearsal runs. ``phases``: seconds by name, in order. ``counts``: entities by kind.
    ``others_share``: the share of the processors that other processes used meanwhile, also a ZooKeeper on the same
    machine."""

    zookeeper: str
    cluster_id: str = ""
    metadata_version: str = ""
    metadata_version_from: str = ""
    directory: str = ""
    brokers: int = 0
    records: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    blockers: tuple[Gap, ...] = ()
    blockers_in_all: int = 0
    warnings: tuple[Gap, ...] = ()
    first_reconcile: FirstReconcile | None = None
    kafka: RehearsalCheck = NOTHING_COPIED
    verified: RehearsalCheck = NOTHING_COPIED
    forecast: Forecast | None = None
    others_share: float = 0.0
    peak_memory_bytes: int = 0
    disk_bytes: int = 0

    @property
    def outcome(self) -> Outcome:
        """The worst result of all checks; a check that was not made does not count."""
        if self.blockers:
            return Outcome.BLOCKED
        return worst_of(self.kafka, self.verified)

    @property
    def exit_code(self) -> ExitCode:
        """0 fine, 1 blockers or differences, 2 unknown."""
        return exit_code_of(self.outcome)

    def to_json(self) -> dict[str, object]:
        return {
            "verdict": self.outcome.value,
            "zookeeper": self.zookeeper,
            "cluster_id": self.cluster_id,
            "metadata_version": self.metadata_version,
            "metadata_version_from": self.metadata_version_from,
            "directory": self.directory,
            "brokers": self.brokers,
            "records": self.records,
            "counts": dict(self.counts),
            "seconds": {name: round(seconds, 2) for name, seconds in self.phases.items()},
            "blockers": [_gap(gap) for gap in self.blockers],
            "blockers_in_all": self.blockers_in_all,
            "warnings": [_gap(gap) for gap in self.warnings],
            "first_reconcile": self.first_reconcile and fields_of(self.first_reconcile),
            "kafka": self.kafka.to_json(),
            "verified": self.verified.to_json(),
            "forecast": None if self.forecast is None else _forecast(self.forecast),
            "others_share": round(self.others_share, 2),
            "peak_memory_bytes": self.peak_memory_bytes,
            "disk_bytes": self.disk_bytes,
        }


def worst_of(*checks: RehearsalCheck) -> Outcome:
    """The worst result; a check that was not made does not count."""
    found = {check.outcome for check in checks}
    return next((bad for bad in (Outcome.DIFFERENT, Outcome.UNKNOWN) if bad in found), Outcome.FINE)


def exit_code_of(outcome: Outcome) -> ExitCode:
    """0 fine, 1 blockers or differences, 2 unknown."""
    return _EXIT_CODES[outcome]


def judged(verdict: Verdict, doubt: str = "") -> RehearsalCheck:
    """The check that Spark has made.

    :param doubt: why the sides may differ although the rehearsal was right.
    """
    comparison = verdict.comparison
    if not comparison.differences:
        return RehearsalCheck(Outcome.FINE, f"{comparison.rows:,} rows are equal")
    examples = "; ".join(f"{each.kind} {each.entity} {each.field}" for each in comparison.examples[:EXAMPLES])
    found = f"{comparison.differences:,} of {comparison.rows:,} rows differ: {examples}"
    if doubt:
        return RehearsalCheck(Outcome.UNKNOWN, f"{found}. {doubt}. Rehearse again while nothing changes")
    return RehearsalCheck(Outcome.DIFFERENT, found)


def counts_of(image: MetadataImage) -> dict[str, int]:
    return {
        "topics": len(image.topics.by_id),
        "partitions": sum(len(topic.partitions) for topic in image.topics.by_id.values()),
        "configurations": len(image.configs),
        "quota entities": len(image.quotas),
        "SCRAM credentials": len(image.scram),
        "ACLs": len(image.acls),
        "delegation tokens": len(image.tokens),
    }


def _gap(gap: Gap) -> dict[str, str]:
    return {"path": gap.who, "reason": gap.reason, "remedy": gap.remedy}


def _forecast(forecast: Forecast) -> dict[str, dict[str, float] | None]:
    return {
        "copy": forecast.copy.to_json(),
        "dual_write": forecast.dual_write.to_json(),
        "roll": None if forecast.roll is None else forecast.roll.to_json(),
    }
