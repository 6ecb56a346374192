"""`migrator drill`: options, the display of the steps while they run, and the picture of the result.

The command makes a directory, calls `migrator.drill.run.run_drill`, and ends with the outcome as its exit code. It runs
no step itself: the display reads the `DrillReport` that the drill fills.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import psutil
from click.core import ParameterSource
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from migrator.cli.interrupted import INTERRUPTED, terminated_as_interrupted
from migrator.cli.options import kafka_hashes_option
from migrator.cli.picture import save_picture
from migrator.cli.terminal import lasting_console, say_json, without_reader
from migrator.config.load import read_properties
from migrator.drill.cluster import ClusterOptions
from migrator.drill.place import refuse_taken
from migrator.drill.report import DATA, LIGHT, DrillBrokers, DrillReport, DrillStep, DrillStepState, columns
from migrator.drill.run import run_drill
from migrator.drill.scenario.steps import STOCK, DrillOptions
from migrator.drill.shape import Shape, refuse_too_large, shape_of
from migrator.drill.zookeeper_place import OutsideZooKeeper, parse_place
from migrator.errors import ExitCode, OperatorError
from migrator.migration.machine.states import PublicState
from migrator.parts.java import find_java
from migrator.parts.kafka import KafkaRelease, StockKafka, numbers_of
from migrator.parts.kafka_jars import NotFetchedError
from migrator.rollout.site import refuse_wrong_executors, site_of

MEGABYTE = 1_000_000
LINE_MEGABYTES = 10
"""Without a terminal, a download prints a line after each so many MB."""
_LOOKS = {
    DrillStepState.HELD: ("✓", "green"),
    DrillStepState.FAILED: ("✗", "red"),
    DrillStepState.INTERRUPTED: ("■", "yellow"),
}


@contextmanager
def shown(report: DrillReport, terminal: Console) -> Iterator[None]:
    """Show the progress while the block runs."""
    if not terminal.is_terminal:
        report.changed = _Lines(report, terminal).changed
        terminal.print(report.heading, soft_wrap=True)
        yield
        return
    spinner = Spinner("dots")
    with Live(get_renderable=lambda: render(report, spinner), console=terminal, refresh_per_second=8):
        yield


@contextmanager
def progress(what: str, terminal: Console) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of downloaded bytes."""
    if terminal.is_terminal:
        with terminal.status(f"{what} ...") as status:
            yield lambda count: status.update(f"{what}: {count / MEGABYTE:,.0f} MB ...")
        return
    terminal.print(f"{what} ...")
    last = 0

    def tell(count: int) -> None:
        nonlocal last
        if count // (LINE_MEGABYTES * MEGABYTE) > last:
            last = count // (LINE_MEGABYTES * MEGABYTE)
            terminal.print(f"{what}: {count / MEGABYTE:,.0f} MB ...")

    yield tell


def render(report: DrillReport, spinner: Spinner) -> RenderableType:
    """The report so far."""
    lines: list[RenderableType] = [Text(report.heading, "bold")]
    lines += [Text(f"  secured: {text}", "dim") for text in report.secured]
    for step in report.steps:
        lines += [_step(report, step, spinner), *_details(step)]
    if report.now:
        lines.append(Text(f"    waiting: {report.now}", "yellow"))
    lines += [Text(f"  {line}", "" if number else "bold") for number, line in enumerate(columns(report.phases))]
    lines += [Text(text, style) for text, style in ((report.failure, "red"), (report.remedy, "yellow")) if text]
    return Group(*lines)


def verdict(report: DrillReport) -> Text:
    """The result, at the end."""
    colour = "green" if report.held else "red" if report.failed else "yellow"
    return Text(report.verdict, f"bold {colour}")


def draw(report: DrillReport, path: Path) -> None:
    """Save the terminal's content as a picture, which loads nothing."""
    save_picture(path, "migrator drill", render(report, Spinner("dots")), verdict(report))


def _step(report: DrillReport, step: DrillStep, spinner: Spinner) -> RenderableType:
    state = report.state_of(step)
    if state in _LOOKS:
        mark, colour = _LOOKS[state]
        word = f"{state.value}, " if state is DrillStepState.INTERRUPTED else ""
        return Text(f"  {mark} {step.name} ({word}{step.seconds:.1f} s)", colour)
    spinner.update(text=Text(step.name))
    return spinner


def _details(step: DrillStep) -> Iterator[Text]:
    for name, number in step.figures.items():
        yield Text(f"    {name}: {number}", "dim")
    if step.pauses:
        yield Text(f"    {step.pauses}", "dim")
    for each in step.checks:
        if not each.held:
            yield Text(f"    failed: {each.name}: {each.detail}", "red")


class _Lines:
    """Prints the news since the last call."""

    def __init__(self, report: DrillReport, terminal: Console) -> None:
        self._report = report
        self._terminal = terminal
        self._begun = 0
        self._ended: set[int] = set()
        self._now = ""
        self._phases = False

    def changed(self) -> None:
        """The drill calls this after each change of the report."""
        report = self._report
        for step in report.steps[self._begun :]:
            self._say(step.name)
            self._begun += 1
        if report.now and report.now != self._now:
            self._say(f"    {report.now} ...")
        self._now = report.now
        for number, step in enumerate(report.steps):
            if number not in self._ended and step.ended:
                self._ended.add(number)
                for text in _details(step):
                    self._terminal.print(text, soft_wrap=True)
                self._terminal.print(_step(report, step, Spinner("dots")), soft_wrap=True)
                self._tell_phases()

    def _tell_phases(self) -> None:
        if self._report.phases and not self._phases:
            self._phases = True
            for line in columns(self._report.phases):
                self._terminal.print(f"  {line}", soft_wrap=True)

    def _say(self, text: str) -> None:
        self._terminal.print(f"{self._report.seconds:5.0f} s  {text}", soft_wrap=True)


KAFKA_VERSION = "3.9.1"
KAFKA_PARTITIONS, LIGHT_PARTITIONS = 300, 2000
FIRST_WITH_MIGRATION, LAST_WITH_ZOOKEEPER = (3, 4), (3, 9)
"""The range of the brokers' releases."""
PICTURE = "summary.svg"
STATES = click.Choice([state.label for state in PublicState], case_sensitive=False)


FREEZES = "--{option} MigrateZkData freezes ZooKeeper, which the drill does only to a server of its own"
SECURES = "--secure needs a ZooKeeper server with the drill's own certificates"


def _place(_context: click.Context, _parameter: click.Parameter, text: str | None) -> OutsideZooKeeper | None:
    try:
        return None if text is None else parse_place(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}. For instance: 127.0.0.1:2181/drill") from None


@click.command("drill")
@click.option(
    "--kafka", metavar="VERSION", default=None,
    help=f"Kafka release of the brokers; the jars are fetched once. 'none': light brokers, which hold no records. "
    f"Default: {KAFKA_VERSION}; if it cannot be fetched, light brokers with a notice.",
)  # fmt: skip
@kafka_hashes_option
@click.option(
    "--partitions", type=click.IntRange(20),
    help=f"Number of partitions at the start. Default: {KAFKA_PARTITIONS}, with light brokers {LIGHT_PARTITIONS}.",
)  # fmt: skip
@click.option("--brokers", type=click.IntRange(1, 50), default=3, show_default=True)
@click.option("--controllers", type=click.IntRange(1, 7), default=3, show_default=True)
@click.option(
    "--transport", type=click.Choice(["grpc", "kafka"]), default="grpc", show_default=True,
    help="The protocol between the controllers.",
)  # fmt: skip
@click.option("--kill-leader-at", type=STATES, help="Kill the leading controller with SIGKILL in this state.")
@click.option(
    "--rollback-at",
    type=click.Choice([*STATES.choices, STOCK], case_sensitive=False),
    help="Roll back to ZooKeeper in this state. At Finished, the migration is reopened first. At stock, Kafka's own "
    "controllers take over before, and hand back; this needs Kafka's brokers.",
)
@click.option(
    "--reassign", is_flag=True,
    help="After the end of the migration, move the voters to as many other controllers while clients write. See "
    "docs/quorum.md.",
)  # fmt: skip
@click.option(
    "--secure",
    is_flag=True,
    help="Protect everything: TLS on every port, SASL or client certificates for every client, access control lists in "
    "Kafka and ZooKeeper. The drill also tries to get in without permission, tries every port without TLS, and "
    "searches logs and reports for passwords and keys. See docs/drill.md.",
)
@click.option(
    "--zookeeper", "outside", metavar="HOST:PORT[/CHROOT]", callback=_place,
    help="Use this ZooKeeper server, for instance a service container of CI, and start none. The place must be empty "
    "or missing; the drill leaves it as it was. Not with --secure, nor where the drill freezes ZooKeeper: "
    "--kill-leader-at MigrateZkData, --rollback-at MigrateZkData.",
)  # fmt: skip
@click.option(
    "--inventory", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Rehearse the cluster of this inventory (docs/rollout.md) with processes of this machine: its nodes, racks, "
    "listeners and protocols. Its hosts are not touched, and its executors are not run.",
)  # fmt: skip
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Directory for the report and the cluster's data. Default: a temporary directory.",
)  # fmt: skip
@click.option(
    "--keep", is_flag=True,
    help="Keep the cluster's data even if every check passed, and what the cluster has in --zookeeper.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else.")
@terminated_as_interrupted()
def command(
    kafka: str | None,
    hashes: Path | None,
    partitions: int | None,
    brokers: int,
    controllers: int,
    transport: str,
    kill_leader_at: str | None,
    rollback_at: str | None,
    reassign: bool,
    secure: bool,
    outside: OutsideZooKeeper | None,
    inventory: Path | None,
    directory: Path | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Migrate a throw-away cluster on this machine and watch it.

    The cluster has unmodified Kafka brokers, a real ZooKeeper, controllers as processes, and clients that write and
    read from start to end; the drill counts every record. If Kafka's jars cannot be fetched, light brokers take the
    place of Kafka's; the heading and the report say so. Exit codes: 0 every check passed; 1 a check failed, see the
    report; 130 interrupted, which is no failed check.
    """
    if reassign and rollback_at is not None:
        raise click.UsageError(
            "--reassign does not go with --rollback-at: the controllers that --reassign replaces lead the way back. "
            "Run the drill twice, once with each option."
        )
    if outside is not None:
        _refuse_what_needs_our_own(kill_leader_at, rollback_at, secure=secure)
    shape = None if inventory is None else _shape(inventory, kafka)
    terminal = lasting_console(quiet=as_json)
    if directory is not None:
        refuse_taken(directory)
    find_java()
    release, chosen = _brokers(KAFKA_VERSION if shape is not None and kafka is None else kafka, hashes, terminal)
    if release is None and rollback_at == STOCK:
        raise click.UsageError(
            "--rollback-at stock needs Kafka's brokers: light brokers do not obey Kafka's own controllers. "
            "Run it with --kafka VERSION."
        )
    count = partitions or (LIGHT_PARTITIONS if release is None else KAFKA_PARTITIONS)
    if shape is not None:
        brokers, controllers = len(shape.brokers), len(shape.controllers)
    cluster = ClusterOptions(count, brokers, controllers, transport, secure, outside, shape)
    options = DrillOptions(cluster, kill_leader_at, rollback_at, reassign)
    report = DrillReport(dataclasses.asdict(options) | {"kafka": chosen.release}, chosen)
    where = directory or _temporary()
    try:
        with shown(report, terminal):
            run_drill(options, report, where, keep=keep, kafka=release)
    except OperatorError:
        if directory is None:
            shutil.rmtree(where, ignore_errors=True)
        raise
    except KeyboardInterrupt:
        _end(report, terminal, where, keep=keep, as_json=as_json)
        sys.exit(INTERRUPTED)
    _end(report, terminal, where, keep=keep, as_json=as_json)
    sys.exit(ExitCode.OK if report.held else ExitCode.DIFFERENT)


def _temporary() -> Path:
    """
    :raises OperatorError: no temporary directory can be made.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="migrator-drill-"))
    except OSError as error:
        raise OperatorError(
            f"a temporary directory cannot be made: {error.strerror or error}",
            where=f"TMPDIR={os.environ.get('TMPDIR', '')}",
            remedy="Name a directory that can be made with --dir",
        ) from error


def _refuse_what_needs_our_own(kill_leader_at: str | None, rollback_at: str | None, *, secure: bool) -> None:
    copying = PublicState.MIGRATE_ZK_DATA.label
    options = {"kill-leader-at": kill_leader_at, "rollback-at": rollback_at}
    reasons = [FREEZES.format(option=option) for option, state in options.items() if state == copying]
    if secure:
        reasons.append(SECURES)
    if reasons:
        raise click.UsageError(f"{'; '.join(reasons)}. Run that drill without --zookeeper.")


def _shape(path: Path, kafka: str | None) -> Shape:
    """The shape of the operator's cluster that the drill rehearses.

    :raises OperatorError: the inventory or its access file is wrong, or this machine is too small.
    """
    context = click.get_current_context()
    for name in ("brokers", "controllers", "secure"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} does not go with --inventory, which says that itself.")
    if context.params["outside"] is not None:
        raise click.UsageError("--zookeeper does not go with --inventory: its ZooKeeper is protected as yours is.")
    if kafka == LIGHT:
        raise click.UsageError(
            "--kafka none does not go with --inventory: a rollout needs brokers with property files."
        )
    site = site_of(path)
    refuse_wrong_executors(site.inventory)
    access = read_properties(path.parent / site.inventory.access)
    shape = shape_of(site.inventory, access, str(path))
    refuse_too_large(shape, psutil.virtual_memory().available, str(path))
    return shape


def _end(report: DrillReport, terminal: Console, where: Path, *, keep: bool, as_json: bool) -> None:
    """Show the result, and the directory of the report."""
    if as_json:
        with without_reader():
            say_json(report.to_json(), indent=True)
    if not terminal.is_terminal:
        for line in filter(None, (report.failure, report.remedy)):
            terminal.print(line, soft_wrap=True)
    terminal.print(verdict(report), soft_wrap=True)
    draw(report, where / PICTURE)
    terminal.print(f"Report: {where / 'report.json'}", soft_wrap=True)
    if not report.held or keep:
        terminal.print(f"The cluster's data and logs: {where / DATA}", soft_wrap=True)
    if report.interrupted:
        terminal.print("Nothing of the drill runs any more. Delete the data when you do not need it.", soft_wrap=True)


def _refuse_without_migration(version: str) -> None:
    major, minor, _ = numbers_of(version)
    if not FIRST_WITH_MIGRATION <= (major, minor) <= LAST_WITH_ZOOKEEPER:
        has_not = "cannot migrate to KRaft" if (major, minor) < FIRST_WITH_MIGRATION else "do not know ZooKeeper"
        raise OperatorError(
            f"brokers of Kafka {version} {has_not}", where="--kafka", remedy="Name a release from 3.4 to 3.9"
        )


def _brokers(wanted: str | None, hashes: Path | None, terminal: Console) -> tuple[StockKafka | None, DrillBrokers]:
    """The brokers' release, None for light brokers; and what to tell the operator.

    :raises OperatorError: the named release cannot be fetched, or the hashes of its jars are unknown or differ.
    """
    if wanted == LIGHT:
        return None, DrillBrokers(LIGHT, "--kafka none asks for them")
    _refuse_without_migration(wanted or KAFKA_VERSION)
    release = KafkaRelease(wanted or KAFKA_VERSION, hashes=hashes)
    what = f"Fetching Apache Kafka {release.version}, once"
    try:
        if release.is_fetched:
            return release.fetch(), DrillBrokers(release.version)
        with progress(what, terminal) as tell:
            return release.fetch(tell), DrillBrokers(release.version)
    except NotFetchedError:
        if wanted is not None:
            raise
        terminal.print(
            f"Apache Kafka {release.version} cannot be fetched: the drill continues with light brokers. "
            f"Run it with '--kafka {release.version}' to see why.",
            style="yellow",
        )
        return None, DrillBrokers(LIGHT, f"Apache Kafka {release.version} cannot be fetched")
