"""`migrator drill`."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import tempfile
from pathlib import Path

import click
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from migrator.cli.terminal import console, say_json
from migrator.drill.cluster import ClusterOptions
from migrator.drill.report import DATA, DrillReport, DrillStep
from migrator.drill.run import run_drill
from migrator.drill.scenario.steps import DrillOptions
from migrator.errors import ExitCode, OperatorError
from migrator.migration.machine.states import PublicState
from migrator.parts.kafka import KafkaRelease, StockKafka

KAFKA_VERSION, LIGHT = "3.9.1", "none"
KAFKA_PARTITIONS, LIGHT_PARTITIONS = 300, 2000
PICTURE, PICTURE_WIDTH = "summary.svg", 100
_FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""What a picture of rich's would load from the network."""
STATES = click.Choice([state.label for state in PublicState], case_sensitive=False)


@click.command("drill")
@click.option(
    "--kafka", metavar="VERSION", default=None,
    help=f"Kafka release of the brokers; the jars are fetched once. 'none': light brokers, which hold no records. "
    f"Default: {KAFKA_VERSION}; if it cannot be fetched, light brokers with a notice.",
)  # fmt: skip
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
    type=STATES,
    help="Roll back to ZooKeeper in this state. At Finished, the rollback must be refused.",
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
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the report and the cluster's data. Default: a temporary directory.",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep the cluster's data even if every check passed.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else.")
def command(
    kafka: str | None,
    partitions: int | None,
    brokers: int,
    controllers: int,
    transport: str,
    kill_leader_at: str | None,
    rollback_at: str | None,
    reassign: bool,
    secure: bool,
    directory: Path | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Migrate a throw-away cluster on this machine and watch it.

    The cluster has unmodified Kafka brokers, a real ZooKeeper, controllers as processes, and clients that write and
    read from start to end; the drill counts every record. If Kafka's jars cannot be fetched, light brokers take the
    place of Kafka's. Exit codes: 0 every check passed; 1 a check failed, see the report.
    """
    if reassign and rollback_at is not None:
        raise click.UsageError(
            "--reassign does not go with --rollback-at: voters change only after the end of the migration. "
            "Run the drill twice, once with each option."
        )
    terminal = console(quiet=as_json)
    release = _release(kafka, terminal)
    count = partitions or (LIGHT_PARTITIONS if release is None else KAFKA_PARTITIONS)
    cluster = ClusterOptions(count, brokers, controllers, transport, secure)
    options = DrillOptions(cluster, kill_leader_at, rollback_at, reassign)
    where = directory or Path(tempfile.mkdtemp(prefix="migrator-drill-"))
    shown = dataclasses.asdict(options) | {"kafka": LIGHT if release is None else release.version}
    display = _Display(DrillReport(shown))
    with Live(get_renderable=display.render, console=terminal, refresh_per_second=8):
        run_drill(options, display.report, where, keep=keep, kafka=release)
    report = display.report
    if as_json:
        say_json(report.to_json(), indent=True)
    if not terminal.is_terminal:
        terminal.print()  # the last line above has no end
    terminal.print(display.verdict())
    _draw(display, where / PICTURE)
    terminal.print(f"Report: {where / 'report.json'}", soft_wrap=True)
    if not report.held or keep:
        terminal.print(f"The cluster's data and logs: {where / DATA}", soft_wrap=True)
    sys.exit(ExitCode.OK if report.held else ExitCode.DIFFERENT)


def _release(wanted: str | None, terminal: Console) -> StockKafka | None:
    """The brokers' release, None for light brokers.

    :raises OperatorError: it was asked for by name, and cannot be fetched.
    """
    if wanted == LIGHT:
        return None
    release = KafkaRelease(wanted or KAFKA_VERSION)
    if not release.is_fetched:
        terminal.print(f"Fetching Apache Kafka {release.version}, once ...")
    try:
        return release.fetch()
    except OperatorError:
        if wanted is not None:
            raise
        terminal.print(
            f"Apache Kafka {release.version} cannot be fetched: the drill continues with light brokers. "
            f"Run it with '--kafka {release.version}' to see why.",
            style="yellow",
        )
        return None


def _draw(display: _Display, path: Path) -> None:
    """The terminal as a picture, which loads nothing."""
    recording = console(record=True, width=PICTURE_WIDTH, file=io.StringIO())
    recording.print(display.render(), display.verdict(), sep="\n")
    picture = _FONT_FACE.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code", "monospace")
    recording.save_svg(str(path), title="migrator drill", code_format=picture)


class _Display:
    """The report so far, as lines."""

    def __init__(self, report: DrillReport) -> None:
        self.report = report
        self._spinner = Spinner("dots")

    def render(self) -> RenderableType:
        lines: list[RenderableType] = [Text(f"Drill, {self.report.seconds:.0f} s", "bold")]
        lines += [Text(f"  secured: {text}", "dim") for text in self.report.secured]
        for step in self.report.steps:
            lines.append(self._step(step))
            lines += [Text(f"    {name}: {number}", "dim") for name, number in step.figures.items()]
            if step.pauses:
                lines.append(Text(f"    {step.pauses}", "dim"))
            lines += [Text(f"    failed: {each.name}: {each.detail}", "red") for each in step.checks if not each.held]
        if self.report.now:
            lines.append(Text(f"    waiting: {self.report.now}", "yellow"))
        if self.report.failure:
            lines.append(Text(self.report.failure, "red"))
        if self.report.remedy:
            lines.append(Text(self.report.remedy, "yellow"))
        return Group(*lines)

    def verdict(self) -> RenderableType:
        """What came of it, in the end."""
        words = "Every check passed" if self.report.held else "A check failed"
        style = "bold green" if self.report.held else "bold red"
        return Text(f"{words}{self.report.totals_text(': ')}.", style)

    def _step(self, step: DrillStep) -> RenderableType:
        if step.held:
            return Text(f"  ✓ {step.name} ({step.seconds:.1f} s)", "green")
        if step.done or self.report.failure:
            return Text(f"  ✗ {step.name} ({step.seconds:.1f} s)", "red")
        self._spinner.update(text=Text(step.name))
        return self._spinner
