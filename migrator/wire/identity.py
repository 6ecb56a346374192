"""The identity of a controller for its peers: its user or certificate, and the principal that the peers make of it.

The start of a controller and preflight ask whether peers will give it rights. A name that is known only at the login is
None, and never guessed.
"""

from __future__ import annotations

import ssl

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from migrator.config.names import MappingRule, distinguished_name, map_name, reading_certificates
from migrator.values import value
from migrator.wire.principal import ANONYMOUS
from migrator.wire.security import ListenerSecurity


@value
class ShownIdentity:
    """``user``: that of its SASL login, "" when it is known only at the login; ``subject``: that of its certificate."""

    user: str
    subject: str | None


@value
class ListenerAuthentication:
    """How a listener authenticates a peer, and which principal the peer gets."""

    asks_for_login: bool
    asks_for_certificate: bool
    rules: tuple[MappingRule, ...]

    def principal_of(self, shown: ShownIdentity) -> str | None:
        """The principal, spelled as in ``super.users``; None when it is known only at the login.

        :raises ValueError: no mapping rule applies to the certificate.
        """
        if self.asks_for_login:
            return f"{ANONYMOUS.kind}:{shown.user}" if shown.user else None
        if self.asks_for_certificate and shown.subject is not None:
            return f"{ANONYMOUS.kind}:{map_name(shown.subject, self.rules)}"
        return str(ANONYMOUS)


def shown_by(security: ListenerSecurity) -> ShownIdentity:
    """The user or certificate that a node with this security presents to its peers.

    :raises ValueError: its certificate is malformed.
    """
    own = security.tls.current().own if security.tls is not None else None
    subject = None
    if own is not None:
        with reading_certificates():
            (first, *_) = x509.load_pem_x509_certificates(own.certificates.encode())
        subject = distinguished_name(first.public_bytes(Encoding.DER))
    return ShownIdentity(security.sasl.client_user if security.sasl is not None else "", subject)


def authentication_of(security: ListenerSecurity) -> ListenerAuthentication:
    """How a listener with this security authenticates its peers."""
    server = security.server_context
    asks = server is not None and server.verify_mode is not ssl.CERT_NONE
    return ListenerAuthentication(security.sasl is not None, asks, security.rules)
