"""`migrator preflight`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click

from migrator.cli.terminal import say, say_json
from migrator.migration.readiness import Severity
from migrator.preflight.check import Concerns, Finding, Report, run_checks
from migrator.preflight.evidence import DEFAULT_JUTE_MAXBUFFER, Evidence
from migrator.preflight.gather import Request, gather
from migrator.preflight.reference import CONCERNS
from migrator.preflight.table import CHECKS

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("preflight")
@click.option(
    "-c",
    "--config",
    "controllers",
    metavar="FILE",
    multiple=True,
    required=True,
    type=_FILE,
    help="A controller's property file; may be given several times. How the first reaches ZooKeeper counts.",
)
@click.option(
    "--brokers",
    metavar="FILE",
    multiple=True,
    type=_FILE,
    help="A broker's property file; more of them may follow.",
)
@click.argument("more_brokers", metavar="[FILE]...", nargs=-1, type=_FILE)
@click.option("--zookeeper", metavar="HOSTS", help="As in zookeeper.connect; without it, that of the first -c.")
@click.option(
    "--controllers",
    "kind",
    type=click.Choice(["ours", "stock"]),
    default="ours",
    show_default=True,
    help="Whose controllers will migrate the cluster: this program's, or Kafka's own.",
)
@click.option(
    "--jute-maxbuffer",
    default=DEFAULT_JUTE_MAXBUFFER,
    show_default=True,
    metavar="BYTES",
    help="What the ZooKeeper servers are started with; they do not say it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    controllers: tuple[Path, ...],
    brokers: tuple[Path, ...],
    more_brokers: tuple[Path, ...],
    zookeeper: str | None,
    kind: str,
    jute_maxbuffer: int,
    as_json: bool,
) -> None:
    """Look for everything that would make a migration fail, before it begins. Changes nothing.

    Findings have codes, which docs/checks.md explains. Exit codes: 0 nothing is in the way (warnings alone count as
    nothing); 1 something is; 2 no blocker was seen, but something could not be looked at.
    """
    if more_brokers and not brokers:
        raise click.UsageError("give each controller's file with -c, and brokers' files after --brokers")
    began = time.monotonic()
    request = Request(controllers, (*brokers, *more_brokers), zookeeper, jute_maxbuffer)
    evidence = gather(request, lambda sentence: say(f"{sentence} ...", err=True))
    report = run_checks(CHECKS, evidence, Concerns(kind))
    if as_json:
        shown = {**report.to_json(), "looked_at": _looked_at(evidence), "seconds": round(time.monotonic() - began, 1)}
        say_json(shown, indent=True)
    else:
        for line in _lines(report, evidence):
            say(line)
    sys.exit(report.exit_code)


def _lines(report: Report, evidence: Evidence) -> Iterable[str]:
    for finding in report.findings:
        yield from _described(finding)
    for unknown in report.unknown:
        yield f"COULD NOT TELL  {unknown.where}: {unknown.what}"
        yield f"    {unknown.remedy}"
    warnings = len(report.findings) - report.blockers
    counts = ", ".join(f"{number:,} {what}" for what, number in _looked_at(evidence).items() if number)
    yield f"{report.checks} checks over {counts.replace('_', ' ') or 'nothing'}"
    yield f"{report.blockers} blockers, {warnings} warnings, {len(report.unknown)} could not be looked at"


def _described(finding: Finding) -> Iterable[str]:
    word = "BLOCKER" if finding.check.severity is Severity.BLOCKER else "WARNING"
    concerns = CONCERNS[finding.check.concerns]
    yield f"{word} {finding.check.code} {finding.check.title}{f' ({concerns})' if concerns else ''}"
    yield f"    {finding.where}: {finding.what}"
    yield f"    {finding.remedy}"


def _looked_at(evidence: Evidence) -> dict[str, int]:
    zookeeper = evidence.zookeeper
    topics = None if zookeeper is None else zookeeper.topics
    return {
        "topics": 0 if topics is None else topics.topics,
        "partitions": 0 if topics is None else topics.partitions,
        "records": 0 if zookeeper is None else zookeeper.records,
        "brokers": 0 if zookeeper is None else len(zookeeper.brokers),
        "write_permissions": 0 if zookeeper is None else zookeeper.permissions.probed,
        "controller_files": len(evidence.controllers),
        "broker_files": len(evidence.brokers),
    }
