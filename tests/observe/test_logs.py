"""Lines that the log of the process leaves out, so that it tells the story of a migration."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from migrator.config.load import typed_settings
from migrator.observe.logs import REMEMBERED_TEXTS, REPEAT_SECONDS, ZooKeeperClientWarnings, set_up_logging
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from tests.patience import PATIENCE_SECONDS

ATTEMPTS = 6


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was when the test is over."""
    found = logging.getLogger()
    handlers, level = found.handlers[:], found.level
    yield found
    found.handlers[:] = handlers
    found.setLevel(level)  # which forgets what loggers have noted of the level


def test_while_zookeeper_is_away_its_client_says_nothing(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    set_up_logging(typed_settings({}, "test"))
    enough = threading.Semaphore(0)
    session = ZooKeeperSession(SessionOptions(f"127.0.0.1:{free_port}"))
    session.client._connection.retry_sleeper.sleep_func = lambda _: enough.release()
    session.start_in_background()
    for _ in range(ATTEMPTS):
        assert enough.acquire(timeout=PATIENCE_SECONDS), "the client tries again and again"
    session.close()
    assert root.handlers
    assert capsys.readouterr().err == ""


def test_only_warnings_of_the_client_are_left_out_and_only_for_a_while() -> None:
    now = [0.0]
    passes = ZooKeeperClientWarnings(lambda: now[0]).filter

    def record(name: str, level: int, text: str) -> logging.LogRecord:
        return logging.LogRecord(name, level, "", 0, text, (), None)

    away = record("kazoo.client", logging.WARNING, "away")
    assert [passes(away), passes(away)] == [True, False]
    assert passes(record("kazoo.client", logging.WARNING, "something else"))
    assert all(passes(record("kazoo.client", logging.ERROR, "away")) for _ in range(2))
    assert all(passes(record("migrator.node", logging.WARNING, "away")) for _ in range(2))
    now[0] = REPEAT_SECONDS
    assert [passes(away), passes(away)] == [True, False]
    assert all(passes(record("kazoo.client", logging.WARNING, str(n))) for n in range(REMEMBERED_TEXTS))
    assert passes(away), "what is remembered is bounded"
