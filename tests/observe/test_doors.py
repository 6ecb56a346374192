"""Failed logins and certificates: what the log says of them, and the metrics."""

from __future__ import annotations

import logging
import re
import time

import pytest

from migrator.observe.certificates import SOON_SECONDS, CertificateBook, chain_ends, not_after, trust_ends
from migrator.observe.doors import (
    CERTIFICATE_END,
    DOOR_METRICS,
    EXPIRED_SESSIONS,
    FAILED_LOGINS,
    RELOAD_FAILURES,
    DoorCollector,
)
from migrator.observe.logins import BURST, PER_SECOND, LoginBook
from migrator.observe.printable import NAME_CHARACTERS, quoted
from tests.wire.support.odd_certificates import make

DAY = 86_400


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_log_of_failed_logins_is_bounded_and_the_count_is_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    book = LoginBook(clock)
    for _ in range(100 * BURST):
        book.failed("listener A", "10.0.0.1", "wrong password", "alice")
    assert len(caplog.records) == BURST
    assert book.read() == {"listener A": 100 * BURST}
    clock.now = 1 / PER_SECOND
    book.failed("listener A", "10.0.0.1", "wrong password", "alice")
    assert f"{99 * BURST} more failed logins were not logged" in caplog.text
    # One door's flood does not hide another's line.
    caplog.clear()
    book.failed("listener B", "10.0.0.2", "no certificate")
    assert caplog.messages == ["listener B: login from 10.0.0.2 failed: no certificate"]


def test_what_a_peer_calls_itself_does_not_steer_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    LoginBook(Clock()).failed("listener A", "10.0.0.1", "bad\nline", "\x1b]0;evil\x07\r\n" + "x" * 10_000)
    (line,) = caplog.messages
    assert line.isprintable()
    assert len(line) < 4 * NAME_CHARACTERS


@pytest.mark.parametrize(
    "name", ["'", "\\", "\\'", "eve' failed: x; listener A: login from 10.0.0.9 as 'admin", "a\nb", "é"]
)
def test_a_name_cannot_end_its_own_quotes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    LoginBook(Clock()).failed("listener A", "10.0.0.1", "wrong password", name)
    (line,) = caplog.messages
    inside = line.removeprefix("listener A: login from 10.0.0.1 as '").removesuffix("' failed: wrong password")
    assert re.fullmatch(r"(?:[^'\\]|\\.)*", inside)
    assert line == f"listener A: login from 10.0.0.1 as {quoted(name)} failed: wrong password"
    assert inside.encode("latin-1", "backslashreplace").decode("unicode_escape") == name


def test_the_end_of_a_chain_is_its_first_and_the_end_of_trust_its_last() -> None:
    short, long = make("short", days=3), make("long", days=300)
    assert not_after(short.pem + long.pem) == [short.ends, long.ends]
    assert chain_ends(short.pem + long.pem) == short.ends
    assert trust_ends((short.pem + long.pem).encode()) == long.ends
    for text in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(ValueError, match=r"."):
            not_after(text)


def test_a_certificate_that_ends_soon_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    book, now = CertificateBook(), int(time.time())
    for use, ends in (
        ("fine", now + SOON_SECONDS + DAY),
        ("soon", now + DAY),
        ("over", now - DAY),
        ("soon", now + DAY),
    ):
        book.note(use, ends)
    assert [(record.levelno, record.args[0]) for record in caplog.records if isinstance(record.args, tuple)] == [
        (logging.WARNING, "soon"),
        (logging.ERROR, "over"),
    ]


def test_the_metrics_show_what_the_books_hold() -> None:
    logins, certificates = LoginBook(Clock()), CertificateBook()
    logins.open("listener A")
    logins.failed("listener B", "10.0.0.1", "reason")
    logins.expired("listener A")
    certificates.note("key store", 4_000_000_000)
    certificates.note_reload_failure("key store")
    families = list(DoorCollector(logins, certificates).collect())
    samples = {(sample.name, *sample.labels.values()): sample.value for one in families for sample in one.samples}
    assert samples == {
        (FAILED_LOGINS, "listener A"): 0,
        (FAILED_LOGINS, "listener B"): 1,
        (EXPIRED_SESSIONS, "listener A"): 1,
        (CERTIFICATE_END, "key store"): 4_000_000_000,
        (RELOAD_FAILURES, "key store"): 1,
    }
    assert {name for name, _ in samples} == DOOR_METRICS
