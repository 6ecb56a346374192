"""Inline JAAS entries (``<mechanism>.sasl.jaas.config``): one login module and its options (KIP-85)."""

from __future__ import annotations

import re

from migrator.errors import OperatorError
from migrator.wire.listener_keys import ListenerKeys

_OPTION = re.compile(r'([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]+)')
_MODULE = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.IGNORECASE | re.DOTALL)
_MODULES = {"PLAIN": "PlainLoginModule", "OAUTHBEARER": "OAuthBearerLoginModule"}


def has_jaas(keys: ListenerKeys, mechanism: str) -> bool:
    """Whether the listener has an entry for the mechanism."""
    return bool(keys.get(f"{mechanism.lower()}.sasl.jaas.config"))


def jaas_options(keys: ListenerKeys, mechanism: str) -> tuple[str, dict[str, str]]:
    """The key of the entry, and the options of its login module.

    :raises OperatorError: it is missing, malformed, or another mechanism's.
    """
    where, text = keys.find(f"{mechanism.lower()}.sasl.jaas.config")
    if not text:
        raise OperatorError(
            "is not set, and a JAAS file of the JVM cannot be read here",
            where=where,
            remedy='Put the login module\'s line into this key, as \'Module required username="..." password="...";\'',
        )
    module = _MODULES.get(mechanism, "ScramLoginModule")
    match = _MODULE.fullmatch(text)
    if match is None or not match[1].endswith(module):
        raise OperatorError(
            f"is not one {module} entry that ends with a semicolon",
            where=where,
            remedy=f"Write '... {module} required ...;'",
        )
    return where, {name: _unquote(raw) for name, raw in _OPTION.findall(match[2])}


def _unquote(raw: str) -> str:
    return re.sub(r"\\(.)", r"\1", raw[1:-1]) if raw.startswith('"') else raw
