"""A listener's security from Kafka's own keys: TLS with PEM stores, SASL with inline credentials, principals.

Keys are looked up as ``listener.name.<name>.<key>`` and then as ``<key>`` (KIP-103).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.errors import OperatorError, PeerError
from migrator.wire.names import MappingRule, distinguished_name, map_name, parse_mapping_rules
from migrator.wire.pem import PemStore, load_key, load_trust, read_store
from migrator.wire.principal import ANONYMOUS, Principal
from migrator.wire.sasl import MECHANISMS, PLAIN, PlainClient, SaslServer, ScramClient, ScramLookup, no_credentials

_OPTION = re.compile(r'([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]+)')
_MODULE = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.IGNORECASE | re.DOTALL)
_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, kw_only=True)
class SaslSettings:
    """``mechanisms`` that we accept, ``users`` of PLAIN, and how we log in elsewhere."""

    mechanisms: tuple[str, ...]
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    scram: ScramLookup = field(default=no_credentials, repr=False)
    client_mechanism: str | None = None
    client_user: str = ""
    client_password: str = field(default="", repr=False)

    def server(self) -> SaslServer:
        """A new connection's server side."""
        return SaslServer(self.mechanisms, self.users, self.scram)

    def client(self) -> PlainClient | ScramClient:
        """A new connection's client side."""
        if self.client_mechanism == PLAIN:
            return PlainClient(self.client_user, self.client_password)
        return ScramClient(self.client_mechanism or "", self.client_user, self.client_password)


@dataclass(frozen=True, kw_only=True)
class ListenerSecurity:
    """How connections of a listener are protected, in (``server_context``) and out (``client_context``)."""

    server_context: ssl.SSLContext | None = None
    client_context: ssl.SSLContext | None = None
    sasl: SaslSettings | None = None
    rules: tuple[MappingRule, ...] = (MappingRule(None),)

    def principal_of(self, tls: ssl.SSLObject | None) -> Principal:
        """Who a new connection is before any SASL: by its certificate, else anonymous.

        :raises PeerError: no mapping rule applies to the certificate.
        """
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal("User", map_name(distinguished_name(certificate), self.rules))
        except ValueError as error:
            raise PeerError(str(error)) from error


PLAINTEXT = ListenerSecurity()


def listener_security(
    properties: Mapping[str, str],
    listener: str,
    protocol: str,
    *,
    client_mechanism: str | None = None,
    scram: ScramLookup = no_credentials,
) -> ListenerSecurity:
    """Security of one listener.

    :param properties: the property file's keys.
    :param listener: its name, in any case.
    :param protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    :param client_mechanism: how we log in at peers, ``sasl.mechanism.controller.protocol`` or
        ``sasl.mechanism.inter.broker.protocol``; needed with SASL only.
    :param scram: where SCRAM credentials of clients come from.
    :raises OperatorError: a key's value cannot be used, with the key and the remedy.
    """
    keys = _Keys(properties, listener)
    server = client = None
    rules = ListenerSecurity.rules
    if protocol in ("SSL", "SASL_SSL"):
        server, client = _server_context(keys, protocol), _client_context(keys)
        rules = _rules(keys)
    sasl = _sasl(keys, client_mechanism, scram) if protocol.startswith("SASL_") else None
    return ListenerSecurity(server_context=server, client_context=client, sasl=sasl, rules=rules)


class _Keys:
    """The keys of one listener."""

    def __init__(self, properties: Mapping[str, str], listener: str) -> None:
        self._properties = properties
        self._prefix = f"listener.name.{listener.lower()}."

    def find(self, key: str) -> tuple[str, str | None]:
        """The full key that counts, and its value."""
        for name in (self._prefix + key, key):
            if name in self._properties:
                return name, self._properties[name]
        return key, None

    def get(self, key: str, default: str = "") -> str:
        found = self.find(key)[1]
        return default if found is None else found

    def own(self, key: str) -> str | None:
        """The value set for this listener alone."""
        return self._properties.get(self._prefix + key)


def _store(keys: _Keys, kind: str, inline: tuple[str, ...]) -> tuple[str, PemStore | None]:
    """The key of a store and its content; ``kind`` is keystore or truststore."""
    type_key, store_type = keys.find(f"ssl.{kind}.type")
    location_key, location = keys.find(f"ssl.{kind}.location")
    texts = [keys.get(key) for key in inline]
    if not location and not any(texts):
        return location_key, None
    if (store_type or "JKS").upper() != "PEM":
        raise OperatorError(
            f"a {kind} of type {store_type or 'JKS'} cannot be read here, only PEM",
            where=type_key,
            remedy=f"Export it ('keytool -importkeystore ... -deststoretype PKCS12', 'openssl pkcs12 ...') and set "
            f"{type_key}=PEM with ssl.{kind}.location naming the PEM file; stock Kafka reads that too",
        )
    if location:
        return location_key, read_store(location, location_key)
    return keys.find(inline[0])[0], PemStore("\n".join(texts))


def _server_context(keys: _Keys, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _versions(context, keys)
    key, store = _store(keys, "keystore", ("ssl.keystore.key", "ssl.keystore.certificate.chain"))
    if store is None:
        raise OperatorError("is not set, and a TLS listener needs it", where=key, remedy="Name a PEM file")
    load_key(context, store, keys.get("ssl.key.password") or None, key)
    # As in Kafka, SASL_SSL asks for certificates only when the listener's own key says so.
    wanted = keys.get("ssl.client.auth", "none") if protocol == "SSL" else keys.own("ssl.client.auth") or "none"
    if wanted not in _CLIENT_AUTH:
        raise OperatorError(
            f"{wanted!r} is none of {', '.join(_CLIENT_AUTH)}",
            where=keys.find("ssl.client.auth")[0],
            remedy="Set one of them",
        )
    trust_key, trust = _store(keys, "truststore", ("ssl.truststore.certificates",))
    if trust is not None:
        load_trust(context, trust, trust_key)
    elif wanted != "none":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = _CLIENT_AUTH[wanted]
    return context


def _client_context(keys: _Keys) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _versions(context, keys)
    context.check_hostname = keys.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    trust_key, trust = _store(keys, "truststore", ("ssl.truststore.certificates",))
    if trust is not None:
        load_trust(context, trust, trust_key)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    key, store = _store(keys, "keystore", ("ssl.keystore.key", "ssl.keystore.certificate.chain"))
    if store is not None:
        load_key(context, store, keys.get("ssl.key.password") or None, key)
    return context


def _versions(context: ssl.SSLContext, keys: _Keys) -> None:
    where, text = keys.find("ssl.enabled.protocols")
    names = [name.strip() for name in (text or "TLSv1.2,TLSv1.3").split(",")]
    known = sorted(_TLS_VERSIONS[name] for name in names if name in _TLS_VERSIONS)
    if not known:
        raise OperatorError(
            f"{text!r} names no TLS version that is still safe", where=where, remedy="Set TLSv1.2,TLSv1.3"
        )
    context.minimum_version, context.maximum_version = known[0], known[-1]
    where, suites = keys.find("ssl.cipher.suites")
    if suites:
        raise OperatorError(
            "cipher suites by Java's names cannot be set here",
            where=where,
            remedy="Remove the key from this node's file: the TLS library's own choice is then used",
        )


def _rules(keys: _Keys) -> tuple[MappingRule, ...]:
    where, text = keys.find("ssl.principal.mapping.rules")
    try:
        return parse_mapping_rules(text or "DEFAULT")
    except (ValueError, re.error) as error:
        raise OperatorError(str(error), where=where, remedy="Write the rules as Kafka's documentation says") from error


def _sasl(keys: _Keys, client_mechanism: str | None, scram: ScramLookup) -> SaslSettings:
    where, text = keys.find("sasl.enabled.mechanisms")
    enabled = tuple(name.strip().upper() for name in (text or "GSSAPI").split(",") if name.strip())
    wanted = (*enabled, *filter(None, [client_mechanism]))
    for mechanism in wanted:
        if mechanism not in MECHANISMS:
            raise OperatorError(
                f"SASL mechanism {mechanism} is not supported",
                where=where if mechanism in enabled else "sasl.mechanism.controller.protocol",
                remedy=f"Use one of {', '.join(MECHANISMS)} on this listener",
            )
    users: dict[str, str] = {}
    if PLAIN in enabled:
        options = _jaas(keys, PLAIN)
        users = {name[len("user_") :]: text for name, text in options.items() if name.startswith("user_")}
    own = _jaas(keys, client_mechanism) if client_mechanism else {}
    return SaslSettings(
        mechanisms=enabled,
        users=users,
        scram=scram,
        client_mechanism=client_mechanism,
        client_user=own.get("username", ""),
        client_password=own.get("password", ""),
    )


def _jaas(keys: _Keys, mechanism: str) -> dict[str, str]:
    """Options of the login module in ``<mechanism>.sasl.jaas.config``."""
    where, text = keys.find(f"{mechanism.lower()}.sasl.jaas.config")
    if not text:
        raise OperatorError(
            "is not set, and a JAAS file of the JVM cannot be read here",
            where=where,
            remedy='Put the login module\'s line into this key, as \'Module required username="..." password="...";\'',
        )
    module = "PlainLoginModule" if mechanism == PLAIN else "ScramLoginModule"
    match = _MODULE.fullmatch(text)
    if match is None or not match[1].endswith(module):
        raise OperatorError(
            f"is not one {module} entry that ends with a semicolon",
            where=where,
            remedy=f"Write '... {module} required ...;'",
        )
    return {name: _unquote(raw) for name, raw in _OPTION.findall(match[2])}


def _unquote(raw: str) -> str:
    return re.sub(r"\\(.)", r"\1", raw[1:-1]) if raw.startswith('"') else raw
