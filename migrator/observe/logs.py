"""The process log on standard error: one line an event, as text for people or as JSON for collectors.

What others sent is escaped, so that no name forges a line or speaks to a terminal. Of an exception, the lines are
indented."""

from __future__ import annotations

import logging
import sys
import time

from migrator.config.settings import Settings
from migrator.observe.printable import json_text, printable, printable_lines

QUIET_LIBRARIES = ("kazoo", "grpc", "asyncio")


class TextFormatter(logging.Formatter):
    """One line, and the stack of an exception below it."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        head = f"[{self.formatTime(record)}] {record.levelname}"
        line = f"{head} {printable(record.getMessage())} ({printable(record.name)})"
        if record.exc_info:
            line = f"{line}\n    {printable_lines(self.formatException(record.exc_info))}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_text(line)


def set_up_logging(settings: Settings) -> None:
    """Once per process, as ``migrator.log.format`` says. Secrets are kept out where they arise: no setting, record or
    znode prints the value of one."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.migrator_log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
