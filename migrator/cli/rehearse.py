"""`migrator rehearse`: options, progress and the printed result of a rehearsal.

`migrator.rehearse.rehearse` does the work and only reads ZooKeeper. Without a property file the command rehearses with
the settings of a controller that has only defaults. The exit code is that of the report.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.cli.first_version import typed_version, version_to_rehearse
from migrator.cli.interrupted import at_once, terminated_as_interrupted
from migrator.cli.options import Seconds, config_option, kafka_hashes_option
from migrator.cli.terminal import console, say, say_json
from migrator.config.load import load_settings, settings_from
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.log.meta_properties import read_meta_properties
from migrator.observe.loop_health import calm_garbage_collector
from migrator.observe.printable import printable
from migrator.parts.java import find_java
from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.kafka_jars import NotFetchedError
from migrator.rehearse.forecast import Estimate
from migrator.rehearse.read_only_zookeeper import PlannedQuorum
from migrator.rehearse.rehearse import RehearsalRequest, rehearse
from migrator.rehearse.report import Outcome, RehearsalCheck, RehearsalReport
from migrator.rehearse.way_back import WayBackReport, WayBackRequest, rehearse_way_back
from migrator.verify.verdict import VerifyRequest
from migrator.zookeeper.password_encoder import password_encoder
from migrator.zookeeper.session import options_from

KAFKA_VERSION, NO_KAFKA = "3.9.1", "none"
_ASSUMED = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.quorum.voters": "3000@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
}
"""The settings of a controller when there is no property file yet; nothing listens at these addresses."""
_STYLES = {Outcome.FINE: "green", Outcome.NOT_CHECKED: "yellow", Outcome.UNKNOWN: "yellow"}
MEGABYTE = 1e6


@click.command("rehearse")
@click.option("--zookeeper", metavar="HOSTS", help="ZooKeeper, as in zookeeper.connect: host:port[,...][/chroot].")
@click.option(
    "--out", "directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="A new or empty directory that keeps log, snapshot and report.json. Default: nothing is kept.",
)  # fmt: skip
@config_option("A controller's property file: ZooKeeper's address and security, password encoder, copy settings.")
@click.option(
    "-r", "--release-version", metavar="VERSION",
    help="The metadata.version, for example 3.9. Default: that of the formatted directory of -c, else the "
    "inter.broker.protocol.version of all brokers, else the newest.",
)  # fmt: skip
@click.option(
    "--broker-seconds",
    type=Seconds(0),
    metavar="S",
    help="How many seconds the restart of one broker takes, for the forecast.",
)
@click.option(
    "--kafka", metavar="VERSION", default=KAFKA_VERSION, show_default=True,
    help="The Kafka release whose controller has to load the log; 'none' skips this check.",
)  # fmt: skip
@kafka_hashes_option
@click.option("--no-spark", is_flag=True, help="Do not compare the log with ZooKeeper in Spark.")
@click.option(
    "--way-back", is_flag=True,
    help="Rehearse the way back of a finished migration: write the log of the controller of -c to a throw-away "
    "ZooKeeper. Takes only -c, --zookeeper, --no-spark, --json.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    zookeeper: str | None,
    directory: Path | None,
    config: Path | None,
    release_version: str | None,
    broker_seconds: float | None,
    kafka: str,
    hashes: Path | None,
    no_spark: bool,
    way_back: bool,
    as_json: bool,
) -> None:
    """Make the metadata log that a migration would make; name what prevents the migration, and forecast its duration.

    The command only reads ZooKeeper. A stock Kafka controller loads the log, and Spark compares it with ZooKeeper.
    Exit codes: 0 nothing prevents the migration; 1 blockers or differences; 2 could not tell.
    """
    if way_back:
        if (
            directory
            or release_version
            or hashes
            or broker_seconds is not None
            or kafka not in (KAFKA_VERSION, NO_KAFKA)
        ):
            raise click.UsageError("--way-back takes only -c, --zookeeper, --no-spark and --json.")
        return _way_back(config, zookeeper, spark=not no_spark, as_json=as_json)
    if not no_spark:
        importlib.import_module("migrator.verify.verify")  # a missing package is reported before the work begins
    settings = _settings(zookeeper, config)
    typed = typed_version(release_version)
    if not no_spark or kafka != NO_KAFKA:
        find_java()
    with terminated_as_interrupted(), ExitStack() as stack:
        stock = _kafka(kafka, hashes)
        version, version_from = version_to_rehearse(settings, typed)
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="migrator-rehearsal-")))
        request = RehearsalRequest(
            session=options_from(settings),
            passwords=password_encoder(settings),
            directory=directory,
            quorum=_quorum(settings, assumed=config is None),
            version=version,
            version_from=version_from,
            batch_records=max(
                settings.zookeeper_metadata_migration_min_batch_size, settings.migrator_copy_batch_records
            ),
            max_deletes=settings.migrator_reconcile_max_deletes,
            kafka=stock,
            verification=None if no_spark else _verification(settings, directory, config),
            broker_seconds=broker_seconds,
        )
        calm_garbage_collector()
        with at_once():
            report = asyncio.run(rehearse(request, lambda phase: say(f"{phase} ...", err=True)))
    if as_json:
        say_json(report.to_json(), indent=True)
    else:
        _print(report, console())
    sys.exit(report.exit_code)


def _way_back(config: Path | None, zookeeper: str | None, *, spark: bool, as_json: bool) -> None:
    if config is None:
        raise OperatorError(
            "the way back begins with the log of a controller", where="--way-back", remedy="Give its file with -c"
        )
    if spark:
        importlib.import_module("migrator.verify.verify")
    settings = _settings(zookeeper, config)
    find_java()
    request = WayBackRequest(
        directory=settings.metadata_directory,
        config=str(config),
        passwords=password_encoder(settings),
        node_id=settings.node_id,
        jute_maxbuffer=settings.migrator_zookeeper_jute_maxbuffer,
        own=options_from(settings) if settings.zookeeper_connect else None,
        spark=spark,
    )
    with terminated_as_interrupted(), at_once():
        report = rehearse_way_back(request, lambda phase: say(f"{phase} ...", err=True))
    if as_json:
        say_json(report.to_json(), indent=True)
    else:
        _print_way_back(report, console())
    sys.exit(report.exit_code)


def _settings(zookeeper: str | None, config: Path | None) -> Settings:
    """The settings of the file, otherwise of a controller with only defaults."""
    if config is None:
        if zookeeper is None:
            raise OperatorError(
                "no ZooKeeper is named", where="--zookeeper", remedy="Give --zookeeper, or a file with -c"
            )
        settings, _ = settings_from(_ASSUMED, "--zookeeper")
    else:
        settings, _ = load_settings(config)
    return settings if zookeeper is None else dataclasses.replace(settings, zookeeper_connect=zookeeper)


def _quorum(settings: Settings, *, assumed: bool) -> PlannedQuorum:
    if assumed:
        return PlannedQuorum(settings.node_id)
    formatted = read_meta_properties(settings.metadata_directory)
    return PlannedQuorum(
        settings.node_id, settings.broker_rpc_listener, None if formatted is None else formatted.cluster_id
    )


def _kafka(version: str, hashes: Path | None) -> StockKafka | str:
    """The release, or the reason why it is missing.

    :raises OperatorError: the hashes of its jars are unknown, or differ.
    """
    if version == NO_KAFKA:
        return "it was not asked for"
    release = KafkaRelease(version, hashes=hashes)
    if not release.is_fetched:
        say(f"Fetching Apache Kafka {version}, once ...", err=True)
    try:
        return release.fetch()
    except NotFetchedError as error:
        return f"Kafka {version} could not be fetched: {error.what.partition('. ')[0]}"


def _verification(settings: Settings, directory: Path, config: Path | None) -> VerifyRequest:
    return VerifyRequest(settings.zookeeper_connect, str(directory), None if config is None else str(config))


def _print(report: RehearsalReport, terminal: Console) -> None:
    for gap in report.blockers:
        terminal.print(Text.assemble(("blocker", "red"), f" {printable(str(gap))}"))
    unnamed = report.blockers_in_all - len(report.blockers)
    if unnamed:
        terminal.print(f"and {unnamed:,} more", style="red")
    for gap in report.warnings:
        terminal.print(Text.assemble(("warning", "yellow"), f" {printable(str(gap))}"))
    if report.counts:
        terminal.print(_figures(report))
    terminal.print(f"The metadata.version is {report.metadata_version}, {printable(report.metadata_version_from)}")
    if report.first_reconcile is not None:
        found = report.first_reconcile
        asks = ". It would wait for an order first (migrator.reconcile.max.deletes)" if found.held else ""
        terminal.print(
            f"The first comparison in dual-write would write {found.writes:,} and delete {found.deletes:,} "
            f"entities of ZooKeeper{asks}"
        )
    _conclude((("Kafka", report.kafka), ("Spark", report.verified)), report.outcome, terminal)


def _print_way_back(report: WayBackReport, terminal: Console) -> None:
    for gate in report.obstacles:
        terminal.print(Text.assemble(("obstacle", "red"), f" {printable(f'{gate.name}: {gate.what}. {gate.remedy}')}"))
    for what in report.dropped:
        terminal.print(Text.assemble(("dropped", "red"), f" {printable(what)}"))
    table = Table("", "", show_header=False)
    table.columns[1].justify = "right"
    rows = [(name, f"{count:,}") for name, count in report.counts.items()]
    rows += [("operations that write everything", f"{report.operations:,}")]
    if report.own is not None:
        rows += [
            ("entities that differ in the cluster's ZooKeeper", f"{report.own.entities:,}"),
            ("operations that make them equal", f"{report.own.operations:,}"),
            ("sets that raise versions behind dual-write", f"{report.own.sets:,}"),
        ]
    rows += [(f"{name}, seconds", f"{seconds:.1f}") for name, seconds in report.phases.items()]
    rows += [(f"forecast: {name}", _estimate(estimate)) for name, estimate in report.forecast.items()]
    for row in rows:
        table.add_row(*row)
    terminal.print(table)
    if report.own is None:
        terminal.print(
            f"The cluster's ZooKeeper was not read ({printable(report.away)}): the forecast is that of an empty one"
        )
    _conclude((("Spark", report.verified),), report.outcome, terminal)


def _conclude(checks: Iterable[tuple[str, RehearsalCheck]], outcome: Outcome, terminal: Console) -> None:
    for name, check in checks:
        style, detail = _STYLES.get(check.outcome, "red"), printable(check.detail)
        terminal.print(Text.assemble(f"{name}: ", (check.outcome.value, style), f": {detail}"))
    terminal.print(Text.assemble("Verdict: ", (outcome.value, f"bold {_STYLES.get(outcome, 'red')}")))


def _figures(report: RehearsalReport) -> Table:
    """The sizes, the duration of the rehearsal, and the forecast."""
    table = Table("", "", show_header=False)
    table.columns[1].justify = "right"
    rows = [(name, f"{count:,}") for name, count in report.counts.items()]
    rows += [("records of the copy", f"{report.records:,}"), ("brokers", f"{report.brokers:,}")]
    rows += [(f"{name}, seconds", f"{seconds:.1f}") for name, seconds in report.phases.items()]
    rows += [
        ("share of the processors that other programs used", f"{report.others_share:.0%}"),
        ("peak memory, all processes", f"{report.peak_memory_bytes / MEGABYTE:,.0f} MB"),
        ("log and snapshot", f"{report.disk_bytes / MEGABYTE:,.1f} MB"),
    ]
    if report.forecast is not None:
        rows += [
            ("forecast: claim to end of copy", _estimate(report.forecast.copy)),
            ("forecast: last broker ready to dual-write", _estimate(report.forecast.dual_write)),
        ]
        if report.forecast.roll is not None:
            rows.append(("forecast: one roll of all brokers (there are two)", _estimate(report.forecast.roll)))
    for row in rows:
        table.add_row(*row)
    return table


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.seconds:.1f} s ± {estimate.error:.1f} s"
