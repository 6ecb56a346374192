"""The process log on standard error: one line an event, as text for people or as JSON for collectors."""

from __future__ import annotations

import logging
import sys
import time

import orjson

from migrator.config.settings import Settings

TEXT_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
QUIET_LIBRARIES = ("kazoo", "grpc", "asyncio")


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
        return orjson.dumps(line).decode()


def set_up_logging(settings: Settings) -> None:
    """Once per process, as ``migrator.log.format`` says. Secrets are kept out where they arise: no setting, record or
    znode prints the value of one."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.migrator_log_format == "json" else logging.Formatter(TEXT_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
