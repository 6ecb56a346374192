"""Insecure settings that Kafka allows, and this program, too: what an attacker could do, and a remedy.

None of them is refused, because stock Kafka starts with them. Every start warns of them, and preflight finds them.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from migrator.config.endpoints import is_loopback, parse_host_port
from migrator.config.key_lists import OAUTHBEARER_VALIDATORS
from migrator.config.key_uses import last_part
from migrator.config.keys import KEYS
from migrator.config.properties import doubled_keys, parse_properties, read_decoded
from migrator.config.providers import PLACEHOLDER, files_of
from migrator.config.settings import Settings
from migrator.config.types import trimmed

ANONYMOUS = "User:ANONYMOUS"
_CLIENT_AUTH = "ssl.client.auth"
_MECHANISMS = "sasl.enabled.mechanisms"
_VALIDATOR = "oauthbearer.sasl.server.callback.handler.class"
_IN_CLEAR = ("PLAIN", "OAUTHBEARER")
"""Mechanisms that send the secret in clear text. SCRAM does not, but a weak password can be guessed from its
messages."""
_SECRET_FILES = ("keystore.location", ".key.file", ".jaas.file")
"""Ends of keys that name a file with a secret. The metrics endpoint's passwords are missing here: the process does not
start if others can read them."""

OpenDoor = tuple[str, str, str]
"""(key, the possible attack, remedy)."""


def open_doors(settings: Settings) -> Iterator[OpenDoor]:
    """All insecure settings of a file.

    :raises ValueError: the listeners do not parse.
    """
    for find in _FINDERS:
        yield from find(settings)


def _listeners(settings: Settings) -> Iterator[OpenDoor]:
    for listener in settings.parsed_listeners:
        protocol, name = listener.security_protocol, listener.name
        door = f"listener {name} ({protocol})"
        if not settings.authorizer_class_name:
            who = "has a login for" if _knows_who_comes(settings, name, protocol) else "reaches"
            what = f"everybody who {who} {door} may read all secrets and change everything: there is no authorizer"
            remedy = "Use SASL_SSL, or SSL with client certificates, and set authorizer.class.name and super.users"
            yield "listeners", what, remedy
        elif protocol == "SSL" and not _knows_who_comes(settings, name, protocol):
            what = f"a client without a certificate on {door} is {ANONYMOUS}, and has all rights of {ANONYMOUS}"
            yield _own_key(name, _CLIENT_AUTH), what, f"Set {_CLIENT_AUTH}=required"
        elif protocol == "PLAINTEXT":
            what = (
                f"every client that reaches {door} is {ANONYMOUS}, and has all rights of {ANONYMOUS}; the network can "
                "read everything"
            )
            yield (
                "listener.security.protocol.map",
                what,
                f"Map {name} to SSL or SASL_SSL. As long as it is PLAINTEXT, this listener does not use the ssl.* keys",
            )
        yield from _of_sasl(settings, name, protocol)
        if protocol == "SASL_PLAINTEXT" and not is_loopback(listener.host):
            yield from _logins_in_clear(name, settings.mechanisms_of(name))


def _logins_in_clear(name: str, mechanisms: tuple[str, ...]) -> Iterator[OpenDoor]:
    for mechanism in mechanisms:
        door = f"listener {name} (SASL_PLAINTEXT, {mechanism})"
        if mechanism in _IN_CLEAR:
            what = f"everybody who sees the network can read the passwords and tokens of logins on {door}"
        else:
            what = (
                f"everybody who sees the network can guess passwords from the logins on {door}, and can read the rest "
                "of each connection, with the credentials in the metadata log"
            )
        yield _own_key(name, _MECHANISMS), what, f"Map {name} to SASL_SSL"


def _of_sasl(settings: Settings, name: str, protocol: str) -> Iterator[OpenDoor]:
    for mechanism in settings.mechanisms_of(name):
        if protocol.startswith("SASL_") and mechanism == "OAUTHBEARER" and not _checks_signatures(settings, name):
            what = f"listener {name} accepts unsigned tokens: everybody who reaches it can log in under any name"
            yield _own_key(name, _VALIDATOR), what, f"Set this key to {OAUTHBEARER_VALIDATORS[0]}"
    if protocol == "SASL_SSL" and settings.ssl_client_auth != "none":
        own = _own_key(name, _CLIENT_AUTH)
        if own not in settings.explicit:
            what = f"listener {name} (SASL_SSL) asks for no certificates, because Kafka looks there at its own key only"
            yield _CLIENT_AUTH, what, f"Set {own}, if certificates are wanted"


def _checks_signatures(settings: Settings, name: str) -> bool:
    found = settings.explicit.get(_own_key(name, _VALIDATOR), settings.explicit.get(_VALIDATOR, ""))
    return trimmed(found) in OAUTHBEARER_VALIDATORS


def _own_key(listener: str, key: str) -> str:
    return f"listener.name.{listener.lower()}.{key}"


def _authorizer(settings: Settings) -> Iterator[OpenDoor]:
    if not settings.authorizer_class_name:
        return
    if ANONYMOUS in settings.super_user_names:
        yield (
            "super.users",
            f"{ANONYMOUS} is a super user: every client of a listener without logins may do everything",
            "Protect the controller listener, and name the principals of brokers and controllers instead",
        )
    if settings.allow_everyone_if_no_acl_found:
        yield (
            "allow.everyone.if.no.acl.found",
            "everybody may do everything with each resource that no access control entry names, also the cluster",
            "Set it to false, and add the entries that clients need",
        )


def _secrets(settings: Settings) -> Iterator[OpenDoor]:
    if settings.zookeeper_metadata_migration_enable and not (
        settings.delegation_token_secret_key or settings.delegation_token_master_key
    ):
        yield (
            "delegation.token.secret.key",
            "the key is not set, so delegation tokens, if the cluster has any, can be neither made nor renewed",
            "Copy it from the brokers if they set it",
        )


def _metrics(settings: Settings) -> Iterator[OpenDoor]:
    key = "migrator.metrics.listener"
    if not settings.migrator_metrics_listener or is_loopback(parse_host_port(settings.migrator_metrics_listener)[0]):
        return
    if not settings.migrator_metrics_tls_certificate_file:
        what = "passwords and metrics" if settings.migrator_metrics_basic_auth_file else "metrics"
        remedy = "Set migrator.metrics.tls.certificate.file and .key.file, or an address of this machine only"
        yield key, f"{what} cross the network in the clear", remedy
    elif not (settings.migrator_metrics_tls_ca_file or settings.migrator_metrics_basic_auth_file):
        remedy = "Set migrator.metrics.tls.ca.file, or migrator.metrics.basic.auth.file"
        yield key, "everybody who reaches this address can read the metrics", remedy


def _doubled_keys(settings: Settings) -> Iterator[OpenDoor]:
    try:
        found = list(doubled_keys(read_decoded(Path(settings.source))))
    except (OSError, ValueError):
        return
    for key, earlier, later in found:
        what = (
            f"the key is in line {earlier} and, with another value, in line {later}: the last one counts, as in Kafka"
        )
        yield key, what, "Keep one of the lines"


def _host_names(settings: Settings) -> Iterator[OpenDoor]:
    """The connections for which this node does not check the host name in the server's certificate."""
    for key, text in settings.explicit.items():
        if last_part(key).endswith("ssl.endpoint.identification.algorithm") and not trimmed(text):
            what = "the key is empty, so that every certificate of the trust store is accepted for every host"
            yield key, what, "Remove the key, and give each certificate its host's name"


def _files(settings: Settings) -> Iterator[OpenDoor]:
    """Files with secrets that every user of this machine may read."""
    own = Path(settings.source)
    passwords = _passwords(own)
    if is_exposed(own) and any(not PLACEHOLDER.search(text) for text in passwords.values()):
        what = "every user of this machine may read the file, and it holds passwords"
        yield "(the file itself)", what, f"Run: chmod 600 {own}"
    for key, path in [*_named_files(settings), *_providers_files(own, passwords)]:
        if is_exposed(path):
            yield key, f"every user of this machine may read {path}", f"Run: chmod 600 {path}"


def _named_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    for key, text in settings.explicit.items():
        if last_part(key).endswith(_SECRET_FILES) and trimmed(text):
            yield key, Path(trimmed(text))


def _providers_files(own: Path, passwords: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Files from which ``config.providers`` read passwords, each with the first key that names it."""
    keys: dict[Path, str] = {}
    raw = _raw(own) if passwords else {}
    for key, text in passwords.items():
        for path in files_of(text, raw):
            keys.setdefault(path, key)
    return ((key, path) for path, key in keys.items())


def is_exposed(path: Path) -> bool:
    """Whether every user may read a file, by its mode and those of the directories above it."""
    try:
        file = path.resolve(strict=True)
        if not file.is_file() or not file.stat().st_mode & stat.S_IROTH:
            return False
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in file.parents)
    except OSError:
        return False


def _passwords(path: Path) -> dict[str, str]:
    """Passwords as the file has them, with placeholders."""
    return {
        key: text
        for key, text in _raw(path).items()
        if trimmed(text) and last_part(key) in KEYS and KEYS[last_part(key)].kind == "password"
    }


def _raw(path: Path) -> dict[str, str]:
    try:
        return parse_properties(read_decoded(path))
    except (OSError, ValueError):
        return {}


def _knows_who_comes(settings: Settings, name: str, protocol: str) -> bool:
    if protocol.startswith("SASL_"):
        return True
    own = settings.explicit.get(_own_key(name, _CLIENT_AUTH), settings.ssl_client_auth)
    return protocol == "SSL" and trimmed(own).lower() == "required"


_FINDERS: tuple[Callable[[Settings], Iterator[OpenDoor]], ...] = (
    _listeners,
    _authorizer,
    _secrets,
    _metrics,
    _doubled_keys,
    _host_names,
    _files,
)
