"""Ends a command with one exit code for every defect of this program.

A defect is an unexpected error. Python would end the process with exit code 1, which here means that the answer is no.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import NoReturn

from migrator.cli.interrupted import what_is_left
from migrator.cli.terminal import refused_output, say_error, say_json, show_defect, without_reader
from migrator.errors import ExitCode, MigratorError, error_json

LOST = ("Task exception was never retrieved", "Future exception was never retrieved", "Exception in callback")
"""The beginnings of asyncio's messages about errors that no task awaits."""


class UnawaitedErrors(logging.Handler):
    """Notes defects in threads and asyncio tasks whose result no task awaits."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: BaseException | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note defects while the block runs."""
        before, threading.excepthook = threading.excepthook, self._of_thread
        logging.getLogger("asyncio").addHandler(self)
        try:
            yield
        finally:
            logging.getLogger("asyncio").removeHandler(self)
            threading.excepthook = before

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record, as every handler does. Faults of a peer or a disk are no defects."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and record.getMessage().startswith(LOST):
            self._note(error)

    def _of_thread(self, ended: threading.ExceptHookArgs) -> None:
        if ended.exc_value is not None:
            _show(ended.exc_value)
            self._note(ended.exc_value)

    def _note(self, error: BaseException) -> None:
        if self.first is None and not isinstance(error, OSError | MigratorError):
            self.first = error


def end_with(error: BaseException) -> NoReturn:
    """End the command with Python's traceback and what to do, and with a JSON object for a script."""
    with suppress(Exception):  # there may be no memory left
        _show(error)
        what = f"a defect of migrator {version('kraft-migrator')}: {_named(error)}"
        remedy = f"Keep the lines above, and report them. {what_is_left(sys.argv[1:])}"
        with without_reader(err=True):
            say_error(f"migrator: {what}. {remedy}")
        if "--json" in sys.argv[1:]:
            with without_reader():
                say_json(error_json(what, _place(error), remedy, ExitCode.DEFECT))
    with suppress(Exception):
        refused_output()
    sys.exit(ExitCode.DEFECT)


def _show(error: BaseException) -> None:
    with without_reader(err=True):
        show_defect(type(error), error, error.__traceback__)


def _named(error: BaseException) -> str:
    return ": ".join(filter(None, (type(error).__name__, str(error))))


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__, -1)
    return f"{frames[-1].filename}: line {frames[-1].lineno}" if frames else ""
