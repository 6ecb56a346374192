"""All output to the terminal. Text from outside is made printable, so that it cannot control the terminal.

Every command prints and asks through this module; a test allows no other one to use ``sys.stdout``. When nobody reads
the output any more (``| head``), a command ends, or goes on in silence where it must (`without_reader`). Acts that
cannot be undone are confirmed with the cluster's id (`confirm_cluster_id`). Source of the escapes:
`migrator.observe.printable`.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, TextIO

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from migrator.errors import ExitCode, OperatorError
from migrator.looked_up import without_looked_up
from migrator.observe.printable import json_text, printable, printable_lines

PACIFIED = "PacifyFlushWrapper"
"""The class with which click replaces a standard output whose pipe is broken."""
PRINTERS = ("click.utils", "rich.console")


def say(line: str, *, err: bool = False) -> None:
    click.echo(printable(without_looked_up(line) if err else line), err=err)


def say_error(text: str) -> None:
    """Print the reason for the end of a command on stderr; the last lines of a child process may follow."""
    click.echo(printable_lines(without_looked_up(text)), err=True)


def say_json(content: Any, *, indent: bool = False) -> None:
    """Print JSON for scripts, on one line unless it is indented."""
    click.echo(json_text(content, indent=indent))


def ask(*lines: str, abort: bool = False, err: bool = False) -> bool:
    """Whether the operator agrees.

    :raises OperatorError: the operator does not agree, and ``abort`` is set.
    :raises click.Abort: the operator ends the command instead.
    """
    with _require_answer():
        agreed = click.confirm("\n".join(map(printable, lines)), err=err)
    if not agreed and abort:
        raise OperatorError(
            "the answer was no, so the command ends here",
            where="the question",
            remedy="Nothing more was changed",
            exit_code=ExitCode.DIFFERENT,
        )
    return agreed


def ask_for(what: str) -> str:
    """Ask for a text, and return it.

    :raises click.Abort: the operator ends the command instead.
    """
    with _require_answer():
        typed: str = click.prompt(printable(what), err=True)
        return typed.strip()


@contextmanager
def _require_answer() -> Iterator[None]:
    """
    :raises OperatorError: the input has ended, as in a script, or is closed, as with the shell's ``<&-``.
    """
    if sys.stdin is None or sys.stdin.closed:
        raise _unanswered("standard input is closed")
    try:
        yield
    except click.Abort as error:
        if sys.stdin.isatty() or isinstance(error.__context__, KeyboardInterrupt):
            raise
        raise _unanswered("the input has ended") from None


def _unanswered(why: str) -> OperatorError:
    return OperatorError(
        f"the question has no answer, because {why}",
        where="standard input",
        remedy="Nothing more was changed. In a script, give the answer as an option (see --help)",
    )


@contextmanager
def without_reader(*, err: bool = False) -> Iterator[None]:
    """Let the command go on, and drop the rest of its output, when the reader of standard output (with ``err``, of
    standard error) ends, as in ``| head`` or when a terminal is closed."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            _send_nowhere(sys.stderr if err else sys.stdout)


def _send_nowhere(stream: TextIO) -> None:
    """Drop everything that is written to the stream from now on, also when Python flushes it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Lasting(io.TextIOBase):
    """A standard output whose reader may end."""

    def __init__(self) -> None:
        self._stream = sys.stdout

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read only there, too, but not for mypy
        return self._stream.encoding

    def write(self, text: str) -> int:
        with without_reader():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with without_reader():
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def prints_on_terminal() -> bool:
    """Whether the standard output is a terminal. The shell's ``>&-`` closes it."""
    return sys.stdout is not None and sys.stdout.isatty()


def lasting_console(**options: Any) -> Console:
    """Like `console`, for a command that goes on when its output is no longer read (`without_reader`)."""
    return console(file=_Lasting(), **options)


def console(**options: Any) -> Console:
    """The console for tables and colours. Strings are not taken as markup, and all styles are ours."""
    return _Console(markup=False, emoji=False, highlight=False, **options)


class _Console(Console):
    """Makes strings printable, on one line each, before they are measured. Other content keeps its line ends."""

    def render_str(self, text: str, **options: Any) -> Text:
        """A string with its control characters made printable (see `Console`)."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments, with control characters made printable (see `Console`)."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                lines = "\n".join(map(printable, segment.text.split("\n")))
                yield Segment(lines, segment.style)


def show_defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected error as Python does; to be set as `sys.excepthook`."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    say_error("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"))


def refused_output() -> OSError | None:
    """The error of writing the output; None if it is written. After an error the rest is dropped, so that Python does
    not try again at its end."""
    try:
        if sys.stdout is not None:  # the shell's >&- has closed the stream
            sys.stdout.flush()
    except OSError as error:
        _send_nowhere(sys.stdout)
        return error
    return None


def is_of_output(error: OSError) -> bool:
    """Whether the error is one of printing, and not of a file or a peer."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__") in PRINTERS


def is_pacified() -> bool:
    """Whether click has met a broken pipe of the output, and ends the command."""
    return type(sys.stdout).__name__.endswith(PACIFIED)


def confirm_cluster_id(cluster_id: str, given: str | None, *, whose: str) -> None:
    """Check that the operator means this cluster.

    :param given: the id from the option ``--yes-cluster-id``; None to ask.
    :param whose: the owner of this id, in words.
    :raises OperatorError: the operator means another cluster.
    """
    typed = (
        ask_for("Type the cluster id to go on (cluster.id in meta.properties of a broker)") if given is None else given
    )
    if typed != cluster_id:
        raise OperatorError(
            f"{whose} has the id {cluster_id}, not {typed}",
            where="" if given is None else "--yes-cluster-id",
            remedy="Nothing was written. Make sure that you are on the right machine",
        )
