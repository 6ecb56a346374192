"""Who may read metrics, and the encryption: PEM files, and a file with names and passwords.

The files are checked for each connection, and read again when one has changed. A changed file that cannot be used is an
error in the log and in the metrics, and the files that were read before stay in force.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import ssl
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.machine import machine
from migrator.observe.certificates import CertificateBook, chain_ends, trust_ends
from migrator.values import value

log = logging.getLogger(__name__)

T = TypeVar("T")

CERTIFICATE_KEY = "migrator.metrics.tls.certificate.file"
KEY_KEY = "migrator.metrics.tls.key.file"
CA_KEY = "migrator.metrics.tls.ca.file"
PASSWORDS_KEY = "migrator.metrics.basic.auth.file"
_USE = "metrics"
_SCHEME = "basic "


@value
class AccessFiles:
    """File names; "" when a part is not used. With ``ca``, a client must show a certificate that it has signed."""

    certificate: str = ""
    key: str = ""
    ca: str = ""
    passwords: str = ""


OPEN = AccessFiles()
"""Every client that reaches the port may read, without encryption."""


def access_files(settings: Settings) -> AccessFiles:
    return AccessFiles(
        settings.migrator_metrics_tls_certificate_file,
        settings.migrator_metrics_tls_key_file,
        settings.migrator_metrics_tls_ca_file,
        settings.migrator_metrics_basic_auth_file,
    )


class MetricsAccess:
    """The access to one endpoint; any thread may use it.

    :raises OperatorError: a file cannot be used, or users other than its owner and group can read the passwords.
    """

    def __init__(self, files: AccessFiles) -> None:
        self._tls: _Followed[ssl.SSLContext] | None = None
        self._passwords: _Followed[tuple[bytes, ...]] | None = None
        if files.certificate:
            parts = [name for name in (files.certificate, files.key, files.ca) if name]
            self._tls = _Followed(parts, partial(_context, files, machine().own(CertificateBook)))
        if files.passwords:
            self._passwords = _Followed([files.passwords], lambda: _digests(files.passwords))

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for the next connection; None without encryption."""
        return None if self._tls is None else self._tls.current()

    def admits(self, authorization: str | None) -> bool:
        """Whether the header names a user who may read. Every wrong header takes the same time."""
        if self._passwords is None:
            return True
        given = hashlib.sha256(_credentials(authorization or "")).digest()
        known = [hmac.compare_digest(given, digest) for digest in self._passwords.current()]
        return any(known)


class _Followed(Generic[T]):
    """The value that was read from some files; read again when one has changed."""

    def __init__(self, files: Sequence[str], read: Callable[[], T]) -> None:
        self._files = files
        self._read = read
        self._certificates = machine().own(CertificateBook)
        self._lock = Lock()
        self._seen = self._look()
        self._current = read()

    def current(self) -> T:
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen  # taken before reading, so a change during it is seen next time
                try:
                    self._current = self._read()
                except OperatorError as error:
                    self._certificates.note_reload_failure(_USE)
                    log.error("%s. The files that were read before stay in use", error)  # noqa: TRY400 - no defect of ours
                else:
                    log.info(
                        "Metrics: these files were read again, and new connections use them: %s", ", ".join(self._files)
                    )
            return self._current

    def _look(self) -> tuple[object, ...]:
        return tuple(machine().file_state(Path(name)) for name in self._files)


def _context(files: AccessFiles, certificates: CertificateBook) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    chain = _content(files.certificate, CERTIFICATE_KEY)
    _content(files.key, KEY_KEY)
    try:  # with an empty password, or OpenSSL would ask for one on the terminal
        context.load_cert_chain(files.certificate, files.key, password="")
        certificates.note(f"{_USE}: certificate", chain_ends(chain))
    except (ssl.SSLError, ValueError) as error:
        remedy = f"Name a PEM certificate chain there, and its private key, not encrypted, in {KEY_KEY}"
        raise OperatorError(
            f"{files.certificate} and {files.key} cannot be used: {error}", where=CERTIFICATE_KEY, remedy=remedy
        ) from error
    if files.ca:
        trusted = _content(files.ca, CA_KEY)
        try:
            context.load_verify_locations(cadata=trusted.decode("ascii", "replace"))
            certificates.note(f"{_USE}: trusted certificates", trust_ends(trusted))
        except (ssl.SSLError, ValueError) as error:
            raise OperatorError(
                f"{files.ca} holds no usable certificate: {error}", where=CA_KEY, remedy="Name a file of PEM blocks"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _digests(name: str) -> tuple[bytes, ...]:
    """The digest of each line ``user:password``; the texts are not kept."""
    content = _content(name, PASSWORDS_KEY)
    if Path(name).stat().st_mode & stat.S_IRWXO:
        raise OperatorError(f"everybody can read {name}", where=PASSWORDS_KEY, remedy=f"Run: chmod o= {name}")
    lines = {number: line.rstrip(b"\r") for number, line in enumerate(content.split(b"\n"), 1) if line.strip()}
    for number, line in lines.items():
        user, _, password = line.partition(b":")
        if not user or not password:
            raise OperatorError(
                f"{name} has no user and password in line {number}", where=PASSWORDS_KEY, remedy="Write user:password"
            )
    if not lines:
        raise OperatorError(f"{name} is empty", where=PASSWORDS_KEY, remedy="Write user:password, one a line")
    return tuple(hashlib.sha256(line).digest() for line in lines.values())


def _content(name: str, key: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise OperatorError(
            f"{name} cannot be read: {error.strerror}", where=key, remedy="Name a file that this user can read"
        ) from error


def _credentials(authorization: str) -> bytes:
    if authorization[: len(_SCHEME)].lower() != _SCHEME:
        return b""
    try:
        return base64.b64decode(authorization[len(_SCHEME) :].strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
