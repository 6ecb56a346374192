"""The process log on standard error: one line for each event, as text for people or as JSON for collectors.

Text from clients and peers is escaped, so that no name forges a line or controls a terminal. The lines of an exception
are indented.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

from migrator.config.settings import Settings
from migrator.looked_up import without_looked_up
from migrator.observe.printable import json_text, printable, printable_lines

QUIET_LIBRARIES = ("kazoo", "grpc", "asyncio")
REPEAT_SECONDS = 60.0
"""kazoo repeats its warnings; each text is logged once in this time."""
REMEMBERED_TEXTS = 100


class TextFormatter(logging.Formatter):
    """One line of text, and the stack of an exception below it."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"[{self.formatTime(record)}] {record.levelname}"
        line = f"{head} {printable(without_looked_up(record.getMessage()))} ({printable(record.name)})"
        if record.exc_info:
            line = f"{line}\n    {printable_lines(without_looked_up(self.formatException(record.exc_info)))}"
        return line


class CommandFormatter(logging.Formatter):
    """Formats log lines for the terminal of a command."""

    def format(self, record: logging.LogRecord) -> str:
        """The error on one line."""
        return printable(f"migrator: {record.levelname.lower()}: {without_looked_up(record.getMessage())}")


class JsonFormatter(logging.Formatter):
    """One JSON object for each line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": without_looked_up(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = without_looked_up(self.formatException(record.exc_info))
        return json_text(line)


class ZooKeeperClientWarnings(logging.Filter):
    """Lets each warning of kazoo pass once in `REPEAT_SECONDS`, and every other record always.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING or record.name.partition(".")[0] != "kazoo":
            return True
        text, now = record.getMessage(), self._clock()
        if now - self._said.get(text, float("-inf")) < REPEAT_SECONDS:
            return False
        if len(self._said) >= REMEMBERED_TEXTS:
            self._said.clear()
        self._said[text] = now
        return True


def set_up_logging(settings: Settings) -> None:
    """Set the log up as ``migrator.log.format`` says, once for each process. Nothing here removes secrets: settings,
    records and znodes do not print them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.migrator_log_format == "json" else TextFormatter())
    handler.addFilter(ZooKeeperClientWarnings())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def set_up_command_logging() -> None:
    """Warnings go to standard error, unless a log is set up later."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(CommandFormatter())
    logging.lastResort = handler
