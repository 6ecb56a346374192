"""Values of security keys, checked at the start whatever listener uses them.

Kafka finds some of them out at the first handshake, or never; a value that nobody knows protects nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from migrator.config.keys import KEYS
from migrator.config.tls import suite_names, tls_versions
from migrator.config.types import parse, trimmed

Check = Callable[[str], object]
"""Raises ValueError for a value that cannot be used."""


def check_value(key: str, text: str) -> None:
    """Check one value.

    :raises ValueError: says what is expected; never contains a secret.
    """
    parse(KEYS[key].kind, text, KEYS[key].valid)
    if key in _CHECKS:
        _CHECKS[key](trimmed(text))


def _one_of(*allowed: str, empty: bool = False, any_case: bool = False) -> Check:
    def check(text: str) -> None:
        known = [each.lower() for each in allowed] if any_case else allowed
        if (text.lower() if any_case else text) not in known and not (empty and not text):
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}{', or empty' if empty else ''}")

    return check


_STORE = _one_of("PEM", "JKS", "PKCS12", empty=True, any_case=True)
_IDENTIFICATION = _one_of("https", empty=True, any_case=True)
_CHECKS: Mapping[str, Check] = {
    "security.inter.broker.protocol": _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl.cipher.suites": suite_names,
    "ssl.client.auth": _one_of("required", "requested", "none"),
    "ssl.enabled.protocols": tls_versions,
    "ssl.endpoint.identification.algorithm": _IDENTIFICATION,
    "ssl.keystore.type": _STORE,
    "ssl.truststore.type": _STORE,
    "zookeeper.ssl.enabled.protocols": tls_versions,
    "zookeeper.ssl.endpoint.identification.algorithm": _IDENTIFICATION,
    "zookeeper.ssl.cipher.suites": suite_names,
    "zookeeper.ssl.keystore.type": _STORE,
    "zookeeper.ssl.truststore.type": _STORE,
}
