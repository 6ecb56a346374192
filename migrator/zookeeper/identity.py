"""This controller's identity at ZooKeeper and its TLS, from its settings."""

from __future__ import annotations

from pathlib import Path

from migrator.config.settings import Settings
from migrator.config.tls import TlsChoice, tls_choice, tls_versions
from migrator.errors import OperatorError
from migrator.zookeeper.logins import JaasEntry
from migrator.zookeeper.tls import TlsOptions


def tls_options(settings: Settings) -> TlsOptions | None:
    """TLS by ``zookeeper.ssl.*``, tested once; None if ``zookeeper.ssl.client.enable`` is false.

    :raises OperatorError: a file or a value cannot be used.
    """
    if not settings.zookeeper_ssl_client_enable:
        return None
    options = TlsOptions(
        key_file=_file(settings, "keystore"),
        key_kind=settings.zookeeper_ssl_keystore_type or "",
        key_password=settings.zookeeper_ssl_keystore_password,
        trust_file=_file(settings, "truststore"),
        trust_kind=settings.zookeeper_ssl_truststore_type or "",
        trust_password=settings.zookeeper_ssl_truststore_password,
        check_hostname=settings.zookeeper_ssl_endpoint_identification_algorithm.upper() == "HTTPS",
        choice=_choice(settings),
    )
    options.context()
    return options


def jaas_entry(settings: Settings) -> JaasEntry | None:
    """This client's section of the JAAS file, read once as a test; None without ``migrator.zookeeper.jaas.file``.

    :raises OperatorError: see `JaasEntry.read`.
    """
    if not settings.migrator_zookeeper_jaas_file:
        return None
    entry = JaasEntry(settings.migrator_zookeeper_jaas_file, settings.migrator_zookeeper_jaas_section)
    entry.read()
    return entry


def identity_of(tls: TlsOptions | None, jaas: JaasEntry | None) -> str:
    """The identity in access control lists by the present files, such as ``sasl:kafka`` or ``x509:CN=kafka``."""
    found = []
    try:
        if jaas is not None:
            found.append(f"sasl:{jaas.read().name}")
        subject = tls.subject() if tls is not None else None
        if subject is not None:
            found.append(f"x509:{subject}")
    except OperatorError as error:  # a file may be just being replaced; the next connect reports a real fault
        found.append(f"unknown ({error.what})")
    return " and ".join(found) or "world:anyone"


def _choice(settings: Settings) -> TlsChoice:
    """The TLS versions and suites. As in Kafka, ``zookeeper.ssl.protocol`` is the only version unless
    ``zookeeper.ssl.enabled.protocols`` names some. But its default, TLSv1.2, does not forbid TLSv1.3 here."""
    key, versions = "zookeeper.ssl.enabled.protocols", settings.zookeeper_ssl_enabled_protocols or ()
    if not versions and settings.explicit.get("zookeeper.ssl.protocol", "TLS") != "TLS":
        key, versions = "zookeeper.ssl.protocol", (settings.zookeeper_ssl_protocol,)
    try:
        spoken = tls_versions(",".join(versions))
        key = "zookeeper.ssl.cipher.suites"
        return tls_choice(spoken, ",".join(settings.zookeeper_ssl_cipher_suites or ()))
    except ValueError as error:
        remedy = "Correct the value, or remove the key for the TLS library's own choice"
        raise OperatorError(str(error), where=f"{settings.source}: {key}", remedy=remedy) from error


def _file(settings: Settings, store: str) -> str | None:
    location: str | None = getattr(settings, f"zookeeper_ssl_{store}_location")
    if location is not None and not Path(location).is_file():
        raise OperatorError(
            f"zookeeper.ssl.{store}.location names no file: {location}",
            where=settings.source,
            remedy="Correct the path",
        )
    return location
