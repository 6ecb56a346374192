"""Decides which values of a configuration are secret: one rule for DescribeConfigs, `verify`, dumps and messages.

A value is hidden when its key is of type password, and when the key's type is unknown: it may be a password of a
plug-in. Source: ``KafkaConfig.maybeSensitive``, ``KafkaConfig.configType``, ``DynamicBrokerConfig``.
"""

from __future__ import annotations

import re
from typing import Final

from migrator.config.kafka_keys import BROKER_KEYS, TOPIC_KEYS
from migrator.config.keys import KEYS

REDACTED: Final = "(redacted)"
"""The text in place of such a value, as in Kafka (``RecordRedactor``)."""
PASSWORD: Final = "password"  # noqa: S105 - the name of a type

_ONLY_DYNAMIC: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Numeric keys of brokers that a property file may not have (``DynamicConfig.Broker``)."""
_BROKER_TYPES: Final = {row[0]: row[1] for row in BROKER_KEYS} | dict.fromkeys(_ONLY_DYNAMIC, "long")
_TOPIC_TYPES: Final = {row[0]: row[1] for row in TOPIC_KEYS}
_LISTENER_KEY: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
_OF_A_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Keys that may have a SASL mechanism's name as prefix, after a listener's."""


def broker_type(key: str) -> str | None:
    """The type of a broker's or controller's key; after a listener's prefix, the type of the key itself. None for a key
    that Kafka does not have."""
    found = _BROKER_TYPES.get(key)
    within = _LISTENER_KEY.fullmatch(key)
    if found is not None or within is None:
        return found
    return _BROKER_TYPES.get(next((name for name in _OF_A_MECHANISM if within[1].endswith(name)), within[1]))


def kind_of(key: str) -> str | None:
    """Like `broker_type`, also for keys of this program."""
    return KEYS[key].kind if key in KEYS else broker_type(key)


def topic_type(key: str) -> str | None:
    """The type of a topic's key, None for one that Kafka does not have."""
    return _TOPIC_TYPES.get(key)


def is_sensitive(kind: str | None) -> bool:
    """Whether values of a key of this type must not be shown."""
    return kind in (None, PASSWORD)
