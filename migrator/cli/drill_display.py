"""The output of `migrator drill`: on a terminal a report that grows, elsewhere a line for each action."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from migrator.cli.picture import save_picture
from migrator.drill.phases import columns
from migrator.drill.report import DrillReport, DrillStep, DrillStepState

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
        """To be called after each change of the report."""
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
