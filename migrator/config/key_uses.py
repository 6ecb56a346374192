"""Judges each key that a property file sets: acted upon, refused, or ignored.

A key for one listener, ``listener.name.<listener>.[<mechanism>.]<key>``, is judged by its last part, as Kafka reads it
(``AbstractConfig.valuesWithPrefixOverride``). Kafka ignores unknown keys. Here an unknown key that looks like a
security key is refused, because it may be a misspelt one whose protection would be missing.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum

from migrator.config.key_lists import (
    IGNORED,
    MORE_SECURITY_KEYS,
    OF_BROKERS,
    OF_BROKERS_FAMILIES,
    OF_LISTENERS,
    OF_THE_JAVA_MACHINE,
    REFUSED,
    SECURITY_FAMILIES,
    TOPIC_DEFAULTS,
)
from migrator.config.keys import KEYS, key_of_attribute
from migrator.config.providers import PLACEHOLDER, PROVIDERS_KEY
from migrator.config.settings import HIDDEN_ATTRIBUTES, Settings
from migrator.config.tls import suite_names, tls_versions
from migrator.config.types import parse, trimmed
from migrator.values import value

PREFIX = "listener.name."
JAAS = "sasl.jaas.config"
OF_MECHANISMS = ("sasl.", "connections.max.reauth.ms")
"""Prefixes of keys that may be set for one mechanism of a listener."""
MECHANISMS = ("gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512")
"""Mechanisms as keys have them: Kafka looks them up in lower case."""
_CLOSE = 0.85


class Use(Enum):
    ACTED_UPON = "acted upon"
    REFUSED = "refused"
    IGNORED = "ignored, and named once"
    OF_BROKERS = "of brokers"
    UNKNOWN = "unknown"


@value
class Judged:
    """The judgement of a key. A refused key has ``what`` and ``remedy``, an unknown key has ``what``."""

    use: Use
    what: str = ""
    remedy: str = ""


ACTED_UPON: frozenset[str] = (
    frozenset(
        key_of_attribute(field.name).name
        for field in dataclasses.fields(Settings)
        if field.name not in HIDDEN_ATTRIBUTES
    )
    | OF_LISTENERS
    | TOPIC_DEFAULTS
    | {"broker.id", "config.providers"}
)
_IGNORED = frozenset(name for names in IGNORED.values() for name in names)
_SECURITY_KEYS = (*(name for name in KEYS if name.startswith(SECURITY_FAMILIES)), *MORE_SECURITY_KEYS)


def listed_use(key: str) -> Use:
    """The list that has this key of Kafka's or ours, regardless of its value."""
    if key in ACTED_UPON:
        return Use.ACTED_UPON
    if key in REFUSED:
        return Use.REFUSED
    if key in _IGNORED:
        return Use.IGNORED
    return Use.OF_BROKERS if key in OF_BROKERS or key.startswith(OF_BROKERS_FAMILIES) else Use.UNKNOWN


def judge(name: str, text: str, listeners: Collection[str]) -> Judged:
    """Judge one key of a file.

    :param listeners: the listener names that a prefix may have, in lower case.
    """
    if name.startswith(PREFIX):
        return _of_one_listener(name, text, listeners)
    if name.startswith(f"{PROVIDERS_KEY}."):
        return Judged(Use.ACTED_UPON)
    if name.startswith(OF_THE_JAVA_MACHINE):
        return Judged(
            Use.REFUSED, "is a property of a Java machine, which no property file sets", "Remove it from the file"
        )
    key = _without_mechanism(name)
    if listed_use(key) is Use.UNKNOWN:
        return _unknown(key)
    if key == JAAS and name == JAAS:
        return Judged(Use.IGNORED)
    return _by_its_list(key, text)


def key_problems(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """The key, the fault, and the remedy, for all refused keys.

    :raises ValueError: the listeners do not parse.
    """
    for name, judged in _judged(settings):
        if judged.use is Use.REFUSED:
            yield name, judged.what, judged.remedy


def unknown_keys(settings: Settings) -> Iterator[str]:
    """A sentence for each unknown key; errors as in `key_problems`."""
    for name, judged in _judged(settings):
        if judged.use is Use.UNKNOWN:
            yield f"{name}: unknown key is ignored, {judged.what}"


def misspelt(settings: Settings, key: str) -> str:
    """An unknown key of the file that is probably this key misspelt, or ""."""
    return misspelt_in(settings.explicit, key)


def misspelt_in(names: Collection[str], key: str) -> str:
    """Like `misspelt`, for any file, also a broker's."""
    unknown = (name for name in names if listed_use(name) is Use.UNKNOWN)
    return next((name for name in unknown if _suggestion(name) == key), "") if key not in names else ""


def ignored_keys(settings: Settings) -> tuple[str, ...]:
    """Keys of the file that have no effect here; errors as in `key_problems`."""
    return tuple(sorted(name for name, judged in _judged(settings) if judged.use is Use.IGNORED))


def concerns_this_program_only(key: str) -> bool:
    """Whether Kafka's own nodes would use a key that is refused here."""
    return last_part(key) in REFUSED


def last_part(name: str) -> str:
    """``[listener.name.<listener>.][<mechanism>.]<key>`` -> the key, for a listener without a dot in its name."""
    return _last_part(name.removeprefix(PREFIX).partition(".")[2] if name.startswith(PREFIX) else name)


def _judged(settings: Settings) -> Iterator[tuple[str, Judged]]:
    for name, text in settings.explicit.items():
        yield name, judge(name, text, settings.known_listeners)


def _by_its_list(key: str, text: str) -> Judged:
    use = listed_use(key)
    if use is Use.REFUSED:
        refusal = REFUSED[key]
        if trimmed(text).lower() in [harmless.lower() for harmless in refusal.harmless]:
            return Judged(Use.ACTED_UPON)
        return Judged(use, f"this value cannot be obeyed here: {refusal.because}", refusal.remedy)
    if use is Use.ACTED_UPON:
        if PLACEHOLDER.fullmatch(trimmed(text)) and key.startswith(SECURITY_FAMILIES):
            return Judged(
                Use.REFUSED,
                "is a placeholder of a provider that config.providers does not name: its own text would be the value",
                "Name the provider in config.providers, with its class",
            )
        try:
            check_value(key, text)
        except ValueError as error:
            return Judged(Use.REFUSED, str(error), "Correct the value, or remove the key")
    return Judged(use)


def _of_one_listener(name: str, text: str, listeners: Collection[str]) -> Judged:
    rest = name.removeprefix(PREFIX)
    mine = [each for each in listeners if rest.startswith(f"{each}.")]
    listener = max(mine, key=len, default=rest.partition(".")[0])
    part = rest[len(listener) + 1 :]
    key = _last_part(part)
    use = listed_use(key)
    if use in (Use.OF_BROKERS, Use.IGNORED):
        return Judged(use)
    if use is Use.UNKNOWN:
        return Judged(Use.REFUSED, f"{key!r} is unknown: {_hint(key)}", "Correct or remove the key")
    if not mine:
        meant = _closest(listener.lower(), listeners)
        hint = f"write {PREFIX}{meant}. if you mean that one" if meant else "remove the key if nothing needs it"
        what = f"the key is for listener {listener!r}, which this node does not know, so that it would protect nothing"
        return Judged(Use.REFUSED, what, f"Map the listener in listener.security.protocol.map, or {hint}")
    if key == part == JAAS:
        return Judged(Use.IGNORED)
    if use is Use.ACTED_UPON and key not in OF_LISTENERS and trimmed(text) != KEYS[key].default:
        what = f"{key} holds for all listeners, and not for one"
        return Judged(Use.REFUSED, what, f"Set {key} without the prefix")
    return _by_its_list(key, text)


def _last_part(part: str) -> str:
    return part if part in KEYS else _without_mechanism(part)


def _without_mechanism(name: str) -> str:
    """``<mechanism>.<key>`` -> the key, if Kafka has such a key; any other name as it is."""
    mechanism, _, key = name.partition(".")
    return key if mechanism in MECHANISMS and key in KEYS and key.startswith(OF_MECHANISMS) else name


def _unknown(name: str) -> Judged:
    meant, hint = _suggestion(name), _hint(name)
    if name.startswith(SECURITY_FAMILIES) or meant in _SECURITY_KEYS:
        return Judged(Use.REFUSED, f"is unknown, and looks like a key of security: {hint}", "Correct or remove the key")
    return Judged(Use.UNKNOWN, hint)


def _hint(name: str) -> str:
    meant = _suggestion(name)
    return f"did you mean {meant}?" if meant else "neither Kafka 3.9 nor migrator has it"


def _suggestion(name: str) -> str:
    return _closest(name.lower().replace("_", ".").replace("-", "."), KEYS)


def _closest(name: str, known: Iterable[str]) -> str:
    """The most similar known name, or ""."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=_CLOSE)), "")


Check = Callable[[str], object]
"""Raises ValueError for a value that cannot be used."""


def check_value(key: str, text: str) -> None:
    """Check one value, for any listener. Kafka finds some wrong values only at the first handshake, or never, and an
    unknown value protects nothing.

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
