"""TLS to ZooKeeper, as Kafka's ``zookeeper.ssl.*`` keys say. `wire.stores` reads the stores.

Unlike kazoo's own code, it trusts only a configured trust store if there is one, uses only the configured versions, and
reads the files again at each connect.
"""

from __future__ import annotations

import datetime as dt
import errno
import socket
import ssl
from dataclasses import field

from cryptography import x509

from migrator.config.names import reading_certificates
from migrator.config.tls import TlsChoice
from migrator.config.types import Secret
from migrator.errors import OperatorError
from migrator.values import value
from migrator.wire.stores import load_key, load_trust, read_store

_WRONG_NAME = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


@value
class TlsOptions:
    """``key_kind`` and ``trust_kind``: PEM, PKCS12 or JKS, "" to decide by the file's content. Without a trust file the
    system's authorities are trusted, as in Java. ``choice``: versions and suites."""

    key_file: str | None = None
    key_kind: str = ""
    key_password: Secret | None = field(default=None, repr=False)
    trust_file: str | None = None
    trust_kind: str = ""
    trust_password: Secret | None = field(default=None, repr=False)
    check_hostname: bool = True
    choice: TlsChoice = TlsChoice()

    def context(self) -> ssl.SSLContext:
        """A context from the present files.

        :raises OperatorError: a file or a value cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_hostname
        self.choice.apply(context)
        if self.trust_file is not None:
            key = "zookeeper.ssl.truststore.location"
            password = self.trust_password.reveal() if self.trust_password else None
            load_trust(context, read_store(self.trust_file, key, self.trust_kind, password), key)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if self.key_file is not None:
            key = "zookeeper.ssl.keystore.location"
            password = self.key_password.reveal() if self.key_password else None
            load_key(context, read_store(self.key_file, key, self.key_kind, password), password, key)
        return context

    def subject(self) -> str | None:
        """The subject of this client's certificate, as in ZooKeeper's access control lists; None without one.

        :raises OperatorError: the file cannot be used.
        """
        own = self._certificate()
        return None if own is None else own.subject.rfc4514_string()

    def expiry(self) -> str:
        """The end of a sentence about this client's certificate if it has expired, or "". A server that refuses an
        expired certificate does not always say so."""
        try:
            own = self._certificate()
        except OperatorError:
            return ""
        if own is None or own.not_valid_after_utc > dt.datetime.now(dt.UTC):
            return ""
        return f"; our certificate in {self.key_file} has expired at {own.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"

    def _certificate(self) -> x509.Certificate | None:
        if self.key_file is None:
            return None
        key = "zookeeper.ssl.keystore.location"
        password = self.key_password.reveal() if self.key_password else None
        store = read_store(self.key_file, key, self.key_kind, password)
        try:
            with reading_certificates():
                (own, *_) = x509.load_pem_x509_certificates(store.certificates.encode())
                _ = own.subject  # the parser finds a fault only at this access
        except ValueError as error:
            raise OperatorError(
                f"the store of {key} holds no certificate",
                where=self.key_file,
                remedy="Put the certificate of this node and its chain into this file",
            ) from error
        return own


def connect(options: TlsOptions, host: str, address: tuple[str, int], timeout: float | None) -> ssl.SSLSocket:
    """Connect and do the handshake.

    The server's certificate must have the configured host name or the server's address, as in ``ZKTrustManager``.

    :raises OSError: no server listens, or one side does not accept the other.
    """
    try:
        context = options.context()
    except OperatorError as error:  # a file may be just being replaced: the next attempt finds it whole
        raise OSError(errno.EIO, str(error)) from error
    try:
        return _handshake(context, host, address, timeout)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in _WRONG_NAME or host == address[0]:
            raise
    return _handshake(context, address[0], address, timeout)


def _handshake(context: ssl.SSLContext, name: str, address: tuple[str, int], timeout: float | None) -> ssl.SSLSocket:
    plain = socket.create_connection(address, timeout)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise
