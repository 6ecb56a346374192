"""`migrator preflight`: gathers evidence, runs the checks, and prints the findings.

It calls `gather` and `run_checks` of `migrator.preflight`, and decides nothing. The exit code is that of the report: 0
no blocker, 1 blockers, 2 something could not be examined.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import click

from migrator.cli.terminal import say, say_json
from migrator.migration.machine.readiness import Severity
from migrator.observe.problem_groups import said_of
from migrator.preflight.census import sample_of
from migrator.preflight.check import (
    START,
    Concerns,
    MigrationPhase,
    PreflightCheck,
    PreflightFinding,
    PreflightReport,
    run_checks,
)
from migrator.preflight.evidence import DEFAULT_JUTE_MAXBUFFER, Evidence
from migrator.preflight.gather import PreflightRequest, gather
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
    help="A controller's property file; repeat for each controller. The first file is that of this host: it says how "
    "to reach ZooKeeper, and its placeholders (config.providers) are looked up. Those of other files are not.",
)
@click.option(
    "--brokers",
    metavar="FILE",
    multiple=True,
    type=_FILE,
    help="A broker's property file. More files may follow.",
)
@click.argument("more_brokers", metavar="[FILE]...", nargs=-1, type=_FILE)
@click.option("--zookeeper", metavar="HOSTS", help="ZooKeeper, as in zookeeper.connect. Default: that of the first -c.")
@click.option(
    "--controllers",
    "kind",
    type=click.Choice(["ours", "stock"]),
    default="ours",
    show_default=True,
    help="Which controllers will migrate the cluster: of this program (ours), or of Kafka (stock).",
)
@click.option(
    "--jute-maxbuffer",
    default=DEFAULT_JUTE_MAXBUFFER,
    show_default=True,
    metavar="BYTES",
    help="The jute.maxbuffer of the ZooKeeper servers. They do not report it.",
)
@click.option(
    "--roll",
    type=click.Choice(["broker", "rack"]),
    default="broker",
    show_default=True,
    help="Which brokers restart together: one at a time, or those of a rack (broker.rack).",
)
@click.option(
    "--verify",
    is_flag=True,
    help="See whether 'migrator verify' can run on this machine: Java, and the packages of the extra [verify].",
)
@click.option(
    "--here",
    is_flag=True,
    help="Look at this host only: ports, directories, key stores, and with --verify what the comparison needs.",
)
@click.option(
    "--before",
    type=click.Choice([phase.value for phase in MigrationPhase]),
    default=START.value,
    show_default=True,
    help="The phase that comes next. In a migration that has begun, checks that have no meaning any more are left out.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    controllers: tuple[Path, ...],
    brokers: tuple[Path, ...],
    more_brokers: tuple[Path, ...],
    zookeeper: str | None,
    kind: str,
    jute_maxbuffer: int,
    roll: str,
    verify: bool,
    here: bool,
    before: str,
    as_json: bool,
) -> None:
    """Find what would make a migration fail, before the migration begins. Changes nothing.

    Each finding has a code; docs/checks.md explains the codes. Exit codes: 0 no blocker, though there may be
    warnings; 1 blockers; 2 no blocker was found, but something could not be examined.
    """
    if more_brokers and not brokers:
        raise click.UsageError("Give each controller's file with -c, and brokers' files after --brokers")
    began = time.monotonic()
    request = PreflightRequest(
        controllers, (*brokers, *more_brokers), zookeeper, jute_maxbuffer, roll == "rack", verify, here
    )
    evidence = gather(request, lambda sentence: say(f"{sentence} ...", err=True))
    checks = [check for check in CHECKS if check.of_host or not here]
    report = run_checks(checks, evidence, Concerns(kind), MigrationPhase(before))
    if as_json:
        shown = {**report.to_json(), "looked_at": _looked_at(evidence), "seconds": round(time.monotonic() - began, 1)}
        say_json(shown, indent=True)
    else:
        for line in _lines(report, evidence):
            say(line)
    sys.exit(report.exit_code)


def _lines(report: PreflightReport, evidence: Evidence) -> Iterable[str]:
    for check, findings in groupby(report.findings, lambda finding: finding.check):
        yield from _described(check, list(findings))
    for unknown in report.unknown:
        yield f"COULD NOT TELL  {unknown.where}: {unknown.what}"
        yield f"    {unknown.remedy}"
    if not evidence.brokers and evidence.no_cluster is None:
        yield "no broker's file was given, so the settings of brokers were not checked: give the files with --brokers"
    warnings = len(report.findings) - report.blockers
    counts = ", ".join(f"{number:,} {what}" for what, number in _looked_at(evidence).items() if number)
    if evidence.no_cluster is None:
        yield f"{report.checks} checks over {counts.replace('_', ' ') or 'nothing'}"
    else:
        yield "nothing else was checked"
    yield f"{report.blockers} blockers, {warnings} warnings, {len(report.unknown)} could not be examined"


def _described(check: PreflightCheck, findings: list[PreflightFinding]) -> Iterable[str]:
    """The findings of one check; findings with the same remedy are followed by it."""
    word = "BLOCKER" if check.severity is Severity.BLOCKER else "WARNING"
    concerns = check.concerns.in_words
    yield f"{word} {check.code} {check.title}{f' ({concerns})' if concerns else ''}"
    for remedy, same in groupby(findings, lambda finding: finding.remedy):
        for finding in same:
            who, what = said_of(list(finding.hosts), finding.what)
            subject = f"{who}: {what}" if who else what
            if len(finding.where) == 1:
                yield f"    {finding.where[0]}: {subject}"
                continue
            places, key = _places(finding.where)
            yield f"    {key}: {subject}" if key and key not in subject else f"    {subject}"
            yield f"      in {sample_of(places)}"
        yield f"    {remedy}"


def _places(where: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Files, and the one key that all of them concern; "" if they concern none or several."""
    parts = [place.rpartition(": ") for place in where]
    keys = {key for _, _, key in parts}
    if len(keys) != 1 or not all(file for file, _, _ in parts):
        return tuple(where), ""
    return tuple(file for file, _, _ in parts), keys.pop()


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
