"""Failed logins and the ends of certificates for the metrics endpoint.

A scrape reads the two books that listeners and clients fill. Every controller has these metrics, in every role.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from migrator.observe.certificates import CertificateBook
from migrator.observe.logins import LoginBook

FAILED_LOGINS = "migrator_failed_logins_total"
EXPIRED_SESSIONS = "migrator_expired_sessions_total"
CERTIFICATE_END = "migrator_certificate_end_seconds"
RELOAD_FAILURES = "migrator_certificate_reload_failures_total"
DOOR_METRICS = frozenset({FAILED_LOGINS, EXPIRED_SESSIONS, CERTIFICATE_END, RELOAD_FAILURES})


class DoorCollector(Collector):
    """Reads the two books at each scrape."""

    def __init__(self, logins: LoginBook, certificates: CertificateBook) -> None:
        self._logins = logins
        self._certificates = certificates

    def collect(self) -> Iterator[Metric]:
        failed = CounterMetricFamily(FAILED_LOGINS, "Logins that failed, TLS handshakes among them", labels=("door",))
        for door, count in sorted(self._logins.read().items()):
            failed.add_metric([door], count)
        yield failed
        expired = CounterMetricFamily(
            EXPIRED_SESSIONS, "Connections closed because their clients did not log in again in time", labels=("door",)
        )
        for door, count in sorted(self._logins.read_expired().items()):
            expired.add_metric([door], count)
        yield expired
        end = GaugeMetricFamily(
            CERTIFICATE_END, "When a certificate in use ends, in seconds since 1970", labels=("use",)
        )
        for use, seconds in sorted(self._certificates.ends().items()):
            end.add_metric([use], seconds)
        yield end
        broken = CounterMetricFamily(
            RELOAD_FAILURES, "Changed files of certificates that could not be used", labels=("use",)
        )
        for use, count in sorted(self._certificates.reload_failures().items()):
            broken.add_metric([use], count)
        yield broken
