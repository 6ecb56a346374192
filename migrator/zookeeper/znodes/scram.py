"""SCRAM credentials in ``/config/users/<user>``, which share the znode with the user's quotas. Pure.

The codec of entities calls it. Values are secrets, and messages do not quote them. Quotas and credentials of a user are
joined and split here, so writing one never loses the other. Source: ``ScramCredentialUtils``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from migrator.image.model import ScramCredential
from migrator.records.java_base64 import decode_base64
from migrator.records.metadata import ScramMechanism
from migrator.values import value
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.fields import INT32_MAX, parse_decimal
from migrator.zookeeper.znodes.quotas import format_quota, parse_quotas

MECHANISM_NAMES: Mapping[str, ScramMechanism] = {
    "SCRAM-SHA-256": ScramMechanism.SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SHA_512,
}
_NAMES_BY_MECHANISM = {mechanism: name for name, mechanism in MECHANISM_NAMES.items()}
_PARTS = ("salt", "stored_key", "server_key", "iterations")
_REMEDY = "Set the user's SCRAM credential again with kafka-configs, or delete it, and try again"


@value
class UserConfig:
    """The content of a user's znode: quotas by key, credentials by mechanism."""

    quotas: Mapping[str, float]
    credentials: Mapping[ScramMechanism, ScramCredential]


def split_user_config(path: str, config: Mapping[str, str]) -> UserConfig:
    """:raises ZnodeError: when a credential or a quota does not parse."""
    credentials = {
        mechanism: parse_credential(path, name, config[name])
        for name, mechanism in MECHANISM_NAMES.items()
        if name in config
    }
    rest = {key: text for key, text in config.items() if key not in MECHANISM_NAMES}
    return UserConfig(parse_quotas(path, rest), credentials)


def join_user_config(user: UserConfig) -> dict[str, str]:
    """The config for the user's znode, with quotas and credentials."""
    config = {key: format_quota(key, quota) for key, quota in user.quotas.items()}
    for mechanism, credential in user.credentials.items():
        config[_NAMES_BY_MECHANISM[mechanism]] = format_credential(credential)
    return config


def parse_credential(path: str, mechanism: str, text: str) -> ScramCredential:
    """Parse a credential as Kafka does: commas at the end and repeated parts are ignored.

    :raises ZnodeError: the text is not a credential.
    """
    parts = [part.partition("=") for part in text.rstrip(",").split(",")]
    fields = {name: content for name, _, content in parts}
    if not all(separator for _, separator, _ in parts) or set(fields) != set(_PARTS):
        raise ZnodeError(path, f"the {mechanism} credential must have the parts {', '.join(_PARTS)}", _REMEDY)
    try:
        salt, stored_key, server_key = (decode_base64(fields[name]) for name in _PARTS[:3])
    except ValueError:
        raise ZnodeError(path, f"the {mechanism} credential is not base64", _REMEDY) from None
    iterations = parse_decimal(path, fields["iterations"], f"the iteration count of {mechanism}", _REMEDY)
    if not 0 < iterations <= INT32_MAX:
        raise ZnodeError(path, f"the iteration count of {mechanism} is out of range", _REMEDY)
    return ScramCredential(salt, stored_key, server_key, iterations)


def format_credential(credential: ScramCredential) -> str:
    """The text form, in Kafka's order."""
    keys = (credential.salt, credential.stored_key, credential.server_key)
    encoded = [f"{name}={base64.b64encode(key).decode('ascii')}" for name, key in zip(_PARTS, keys, strict=False)]
    return ",".join([*encoded, f"iterations={credential.iterations}"])
