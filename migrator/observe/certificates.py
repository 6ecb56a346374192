"""The certificates that a controller uses, and when they end, for the metrics and the alerts.

Listeners and clients note each load in a `CertificateBook`, also a changed file that could not be used. Threads may
read it at any time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from cryptography import x509

from migrator.clock import wall_seconds
from migrator.config.names import reading_certificates

log = logging.getLogger(__name__)

SOON_SECONDS = 30 * 86_400
"""The log warns of a certificate that ends within this time, when it is loaded."""


def not_after(pem: str | bytes) -> list[int]:
    """The end of each certificate in a PEM text, in seconds since 1970, in the order of the text.

    :raises ValueError: the text has no certificate, or one that cannot be read.
    """
    raw = pem.encode("ascii", "replace") if isinstance(pem, str) else pem
    with reading_certificates():
        found = x509.load_pem_x509_certificates(raw)
        return [int(certificate.not_valid_after_utc.timestamp()) for certificate in found]


def chain_ends(pem: str | bytes) -> int:
    """The time at which a server's chain becomes invalid: the first end of its certificates. Raises as `not_after`."""
    return min(not_after(pem))


def trust_ends(pem: str | bytes) -> int:
    """The time after which no certificate is trusted: the last end of the trusted ones. Raises as `not_after`."""
    return max(not_after(pem))


class CertificateBook:
    """The ends by use, for example ``listener CONTROLLER: key store``. Any thread may read it."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._reload_failures: dict[str, int] = {}

    def note(self, use: str, ends: int) -> None:
        """Note when the certificates of a use end, in seconds since 1970; warns when that is soon."""
        if self._ends.get(use) == ends:
            return
        self._ends[use] = ends
        self._reload_failures.setdefault(use, 0)
        left = ends - wall_seconds()
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends))
        if left <= 0:
            log.error("%s: the certificate expired on %s, and peers refuse it. Renew the certificate now", use, date)
        elif left < SOON_SECONDS:
            log.warning(
                "%s: the certificate expires on %s, in %d days. Renew the certificate", use, date, left // 86_400
            )

    def note_reload_failure(self, use: str) -> None:
        """Note that a changed file could not be used."""
        self._reload_failures[use] = self._reload_failures.get(use, 0) + 1

    def ends(self) -> Mapping[str, int]:
        """Seconds since 1970, by use."""
        return dict(self._ends)

    def reload_failures(self) -> Mapping[str, int]:
        """The number of changed files that could not be used since the controller started, by use."""
        return dict(self._reload_failures)
