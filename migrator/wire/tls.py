"""TLS of a listener from Kafka's own ``ssl.*`` keys; stores are read again when their files change.

As in Kafka, only certificates in the trust store are trusted, not those of the system. Each certificate in it is a
trust anchor, also an intermediate one, as in Java. Source: ``SslFactory``, ``DefaultSslEngineFactory``.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from migrator.clock import monotonic_seconds, wall_seconds
from migrator.config.names import (
    DEFAULT_RULES,
    MappingRule,
    distinguished_name,
    parse_mapping_rules,
    reading_certificates,
)
from migrator.config.tls import tls_choice, tls_versions
from migrator.config.types import trimmed
from migrator.errors import OperatorError
from migrator.machine import FileState, machine
from migrator.observe.certificates import CertificateBook, chain_ends, trust_ends
from migrator.values import value
from migrator.wire.listener_keys import ListenerKeys
from migrator.wire.stores import PemStore, load_key, load_trust, read_store

log = logging.getLogger(__name__)

CHECK_SECONDS = 10.0
"""The least seconds between two checks of the files."""
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_KEY_KEYS = ("ssl.keystore.key", "ssl.keystore.certificate.chain")
_TRUST_KEYS = ("ssl.truststore.certificates",)

"""Inode, time and size of the file at a path; None when there is no file."""


@value
class TlsContexts:
    """The result of reading the stores once. ``own``: this node's certificate chain, if there is one."""

    server: ssl.SSLContext | None
    client: ssl.SSLContext
    own: PemStore | None
    trust: PemStore | None


class TlsStores:
    """TLS of one listener.

    A changed file counts for later connections; open connections stay. A change that cannot be used has no effect but
    an error in the log and in the metrics, and is tried again when a file changes again.

    :param serves: whether there are incoming connections, or only outgoing ones.
    :param clock: in seconds.
    :raises OperatorError: a key's value cannot be used.
    """

    def __init__(
        self, keys: ListenerKeys, protocol: str, *, serves: bool = True, clock: Callable[[], float] = monotonic_seconds
    ) -> None:
        self._keys = keys
        self._protocol = protocol
        self._serves = serves
        self._clock = clock
        self._certificates = machine().own(CertificateBook)
        self._next_look = clock() + CHECK_SECONDS
        self._seen = self._look()
        self._contexts = self._build()
        self._note(self._contexts)

    def current(self) -> TlsContexts:
        """The contexts for the next connection."""
        if self._clock() >= self._next_look:
            self._next_look = self._clock() + CHECK_SECONDS
            seen = self._look()
            if seen != self._seen:
                # The file's state is noted before it is read, so a change in between is seen the next time.
                self._seen = seen
                self._reload()
        return self._contexts

    def _look(self) -> tuple[FileState, ...]:
        return tuple(
            machine().file_state(Path(location))
            for kind in ("keystore", "truststore")
            if (location := self._keys.get(f"ssl.{kind}.location"))
        )

    def _build(self) -> TlsContexts:
        server = server_context(self._keys, self._protocol) if self._serves else None
        own, trust = _store(self._keys, "keystore", _KEY_KEYS)[1], _store(self._keys, "truststore", _TRUST_KEYS)[1]
        return TlsContexts(server, client_context(self._keys), own, trust)

    def _reload(self) -> None:
        try:
            contexts = self._build()
            self._check_successor(contexts)
        except OperatorError as error:
            self._certificates.note_reload_failure(self._use("key store" if self._contexts.own else "trust store"))
            log.error(  # noqa: TRY400 - where in our code says nothing to an operator
                "%s: the changed certificates are not used: %s. The previous certificates stay in use",
                self._door,
                error,
            )
            return
        self._contexts = contexts
        self._note(contexts)
        log.info("%s: certificates read again; new connections use them", self._door)

    def _check_successor(self, contexts: TlsContexts) -> None:
        """Refuse a new key store that Kafka would refuse in a running listener, and one whose certificate has
        expired."""
        if contexts.own is None or self._contexts.own is None:
            return
        key = self._keys.find("ssl.keystore.location")[0]
        old, new = _first(self._contexts.own, key), _first(contexts.own, key)
        if new.not_valid_after_utc.timestamp() <= wall_seconds():
            raise OperatorError("the certificate has expired", where=key, remedy="Put a valid certificate there")
        if _distinguished(new) != _distinguished(old) and not self._allows("ssl.allow.dn.changes"):
            raise OperatorError(
                f"the certificate is of {_distinguished(new)}, and the previous one is of {_distinguished(old)}",
                where=key,
                remedy="Keep the subject, or set ssl.allow.dn.changes=true; a restart takes any certificate",
            )
        lost = _alternative_names(old) - _alternative_names(new)
        if lost and not self._allows("ssl.allow.san.changes"):
            raise OperatorError(
                f"the certificate lacks names of the previous one: {', '.join(sorted(lost))}",
                where=key,
                remedy="Keep the alternative names, or set ssl.allow.san.changes=true; a restart takes any certificate",
            )

    def _allows(self, key: str) -> bool:
        return self._keys.get(key, "false").lower() == "true"

    def _note(self, contexts: TlsContexts) -> None:
        for name, store, ends in (("key store", contexts.own, chain_ends), ("trust store", contexts.trust, trust_ends)):
            if store is None:
                continue
            try:
                self._certificates.note(self._use(name), ends(store.certificates))
            except ValueError as error:  # OpenSSL accepts some certificates that this parser finds malformed
                log.warning("%s: cannot read when the certificate expires: %s", self._use(name), error)

    @property
    def _door(self) -> str:
        return f"listener {self._keys.listener}"

    def _use(self, store: str) -> str:
        return f"{self._door}: {store}"


def server_context(keys: ListenerKeys, protocol: str) -> ssl.SSLContext:
    """TLS of incoming connections.

    :raises OperatorError: a key's value cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _versions(context, keys)
    # No session tickets: a resumed session would skip the check against a changed trust store. (A TLS 1.2 session lives
    # for minutes, within the context that verified its certificate.)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    key, store = _store(keys, "keystore", _KEY_KEYS)
    if store is None:
        raise OperatorError(
            "the key is not set, and a TLS listener needs it", where=key, remedy="Name a PKCS12, JKS or PEM file"
        )
    load_key(context, store, keys.get("ssl.key.password") or None, key)
    where, wanted = keys.find("ssl.client.auth")
    if protocol != "SSL":
        # As in Kafka, SASL_SSL asks for certificates only when the listener's own key says so.
        wanted = keys.own("ssl.client.auth")
    wanted = trimmed(wanted or "none").lower()
    if wanted not in _CLIENT_AUTH:
        raise OperatorError(
            f"{wanted!r} is not one of {', '.join(_CLIENT_AUTH)}", where=where, remedy="Set one of them"
        )
    trust_key, trust = _store(keys, "truststore", _TRUST_KEYS)
    if trust is not None:
        _trust_only(context, trust, trust_key)
    elif wanted != "none":
        raise OperatorError(
            f"the key is not set, and {where}={wanted}: every certificate of every public CA would be let in",
            where=trust_key,
            remedy="Name a PEM file with the CAs of your brokers and controllers, and ssl.truststore.type=PEM; "
            "to trust the CAs of the system, name their file",
        )
    context.verify_mode = _CLIENT_AUTH[wanted]
    return context


def client_context(keys: ListenerKeys) -> ssl.SSLContext:
    """The TLS context of outgoing connections; errors as `server_context`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _versions(context, keys)
    where, algorithm = keys.find("ssl.endpoint.identification.algorithm")
    algorithm = "https" if algorithm is None else trimmed(algorithm).lower()
    if algorithm not in ("https", ""):
        raise OperatorError(f"{algorithm!r} is not known", where=where, remedy="Set https, or leave the value empty")
    context.check_hostname = algorithm == "https"
    trust_key, trust = _store(keys, "truststore", _TRUST_KEYS)
    if trust is not None:
        _trust_only(context, trust, trust_key)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if not context.check_hostname:
            log.warning(
                "%s is empty and %s is not set: every server with a certificate of any public CA is taken for a broker "
                "or controller. Name your own CAs",
                where,
                trust_key,
            )
    key, store = _store(keys, "keystore", _KEY_KEYS)
    if store is not None:
        load_key(context, store, keys.get("ssl.key.password") or None, key)
    return context


def _trust_only(context: ssl.SSLContext, trust: PemStore, key: str) -> None:
    load_trust(context, trust, key)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _first(store: PemStore, key: str) -> x509.Certificate:
    """The node's own certificate. The others in the chain only lead to its CA."""
    try:
        with reading_certificates():
            first = x509.load_pem_x509_certificates(store.certificates.encode())[0]
            _distinguished(first), _alternative_names(first)  # some faults appear only when a field is parsed
            return first
    except ValueError as error:
        raise OperatorError(
            f"the file holds a malformed certificate: {error}", where=key, remedy="Issue the certificate again"
        ) from error


def _distinguished(certificate: x509.Certificate) -> str:
    return distinguished_name(certificate.public_bytes(Encoding.DER))


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _store(keys: ListenerKeys, kind: str, inline: tuple[str, ...]) -> tuple[str, PemStore | None]:
    """The configuration key of a store's file, and the store's content; ``kind`` is keystore or truststore."""
    type_key, store_type = keys.find(f"ssl.{kind}.type")
    location_key, location = keys.find(f"ssl.{kind}.location")
    texts = [keys.get(key) for key in inline]
    if not location and not any(texts):
        return location_key, None
    if location:
        password, key_password = keys.get(f"ssl.{kind}.password") or None, keys.get("ssl.key.password") or None
        return location_key, read_store(location, location_key, store_type or "JKS", password, key_password)
    if (store_type or "JKS").upper() != "PEM":
        raise OperatorError(
            f"the type is {store_type or 'JKS'}, but {inline[0]} holds PEM",
            where=type_key,
            remedy=f"Set {type_key}=PEM",
        )
    return keys.find(inline[0])[0], PemStore("\n".join(texts))


def _versions(context: ssl.SSLContext, keys: ListenerKeys) -> None:
    where, text = keys.find("ssl.enabled.protocols")
    try:
        versions = tls_versions(text)
        where, suites = keys.find("ssl.cipher.suites")
        tls_choice(versions, suites).apply(context)
    except ValueError as error:
        remedy = "Correct the value, or remove the key for the TLS library's own choice"
        raise OperatorError(str(error), where=where, remedy=remedy) from error


def mapping_rules(keys: ListenerKeys) -> tuple[MappingRule, ...]:
    """The rules that map certificates to principals; errors as `server_context`."""
    where, text = keys.find("ssl.principal.mapping.rules")
    try:
        return DEFAULT_RULES if text is None else parse_mapping_rules(text)
    except ValueError as error:
        raise OperatorError(str(error), where=where, remedy="Write the rules as Kafka's documentation says") from error
