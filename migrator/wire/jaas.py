"""Inline JAAS entries (``<mechanism>.sasl.jaas.config``): one login module and its options (KIP-85).

The parser accepts what Kafka accepts. A login module that is not Kafka's own is refused, too: it may know other users
than those in its options.
Source: ``JaasConfig``, ``JaasContext``.
"""

from __future__ import annotations

from migrator.config.jaas import JaasSyntaxError, parse_entry
from migrator.errors import OperatorError
from migrator.wire.listener_keys import ListenerKeys

_PACKAGE = "org.apache.kafka.common.security."
MODULES = {
    "PLAIN": f"{_PACKAGE}plain.PlainLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule",
}
_SCRAM_MODULE = f"{_PACKAGE}scram.ScramLoginModule"


def has_jaas(keys: ListenerKeys, mechanism: str) -> bool:
    """Whether the listener has an entry for the mechanism."""
    return bool(keys.get(f"{mechanism.lower()}.sasl.jaas.config"))


def jaas_options(keys: ListenerKeys, mechanism: str) -> tuple[str, dict[str, str]]:
    """The key of the entry, and the options of its login module.

    :raises OperatorError: the entry is missing, malformed, or another mechanism's. The error quotes nothing of it.
    """
    where, text = keys.find(f"{mechanism.lower()}.sasl.jaas.config")
    if not text:
        raise OperatorError(
            "the key is not set, and a JAAS file of the JVM cannot be read here",
            where=where if text is not None else keys.own_key(where),
            remedy='Put the login module\'s line into this key, as \'Module required username="..." password="...";\'',
        )
    module = MODULES.get(mechanism, _SCRAM_MODULE)
    try:
        entry = parse_entry(text)
    except JaasSyntaxError:
        entry = None
    if entry is None or entry.name != module:
        raise OperatorError(
            f"the value is not one entry of {module} that ends with a semicolon, as Kafka reads it",
            where=where,
            remedy=f"Write '{module} required name=\"value\" ...;', with all that is no plain word in quotes",
        )
    return where, dict(entry.options)
