"""A listener's security from Kafka's own keys: TLS, SASL and principals put together.

Listeners and clients of the Kafka protocol take a `ListenerSecurity` and ask it for each connection, so changed
certificates count from the next connection on. A protocol with TLS never falls back to plain text.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from migrator.config.names import DEFAULT_RULES, MappingRule, distinguished_name, map_name
from migrator.errors import InvariantViolation, PeerError
from migrator.wire.listener_keys import ListenerKeys
from migrator.wire.principal import ANONYMOUS, Principal
from migrator.wire.sasl import NoAccounts, ScramAccounts
from migrator.wire.sasl_settings import SaslSettings, sasl_settings
from migrator.wire.tls import TlsStores, mapping_rules


@dataclass(frozen=True, kw_only=True)
class ListenerSecurity:
    """How connections of a listener are protected, in (``server_context``) and out (``client_context``)."""

    tls: TlsStores | None = None
    sasl: SaslSettings | None = None
    rules: tuple[MappingRule, ...] = DEFAULT_RULES

    @property
    def server_context(self) -> ssl.SSLContext | None:
        """The TLS context for the next incoming connection; None without TLS.

        :raises InvariantViolation: there is TLS, but only for outgoing connections.
        """
        if self.tls is None:
            return None
        server = self.tls.current().server
        if server is None:
            raise InvariantViolation("a listener got the settings of a client only, and would serve without TLS")
        return server

    @property
    def client_context(self) -> ssl.SSLContext | None:
        """The TLS context for the next outgoing connection; None without TLS."""
        return self.tls.current().client if self.tls is not None else None

    def refresh(self) -> None:
        """Read changed certificate files, and ask the identity provider if it is time."""
        if self.tls is not None:
            self.tls.current()
        if self.sasl is not None:
            self.sasl.prepare()

    def principal_of(self, tls: ssl.SSLObject | None) -> Principal:
        """The principal of a new connection without SASL: that of its certificate, or anonymous without one.

        :raises PeerError: no mapping rule applies to the certificate.
        """
        certificate = shown_certificate(tls)
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal("User", map_name(distinguished_name(certificate), self.rules))
        except ValueError as error:
            raise PeerError(str(error)) from error


PLAINTEXT = ListenerSecurity()


def shown_certificate(tls: ssl.SSLObject | None) -> bytes | None:
    """The peer's certificate in DER, which the handshake has verified; None without one."""
    return tls.getpeercert(binary_form=True) if tls is not None else None


def listener_security(
    properties: Mapping[str, str],
    listener: str,
    protocol: str,
    *,
    client_mechanism: str | None = None,
    accounts: ScramAccounts | None = None,
    serves: bool = True,
) -> ListenerSecurity:
    """Security of one listener.

    :param properties: the property file's keys.
    :param listener: its name, in any case.
    :param protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    :param client_mechanism: the mechanism of this node's own logins, ``sasl.mechanism.controller.protocol`` or
        ``sasl.mechanism.inter.broker.protocol``; needed with SASL only.
    :param serves: whether this node listens there. If it only connects, it needs neither a certificate nor the
        credentials of clients.
    :param accounts: the source of clients' SCRAM credentials and delegation tokens; None for no clients.
    :raises OperatorError: a key's value cannot be used; it names the key and the remedy.
    """
    keys = ListenerKeys(properties, listener)
    tls = None
    rules = ListenerSecurity.rules
    if protocol in ("SSL", "SASL_SSL"):
        tls = TlsStores(keys, protocol, serves=serves)
        rules = mapping_rules(keys)
    sasl = None
    if protocol.startswith("SASL_"):
        sasl = sasl_settings(keys, client_mechanism, accounts or NoAccounts(), serves=serves)
    return ListenerSecurity(tls=tls, sasl=sasl, rules=rules)
