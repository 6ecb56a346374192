"""Which values of a configuration must not be shown: one rule for DescribeConfigs, `verify`, dumps and messages.

A value is hidden when its key is of type password, and when nobody knows the key's type: it may be a password of a
plug-in. Source: ``KafkaConfig.maybeSensitive``, ``KafkaConfig.configType``, ``DynamicBrokerConfig``.
"""

from __future__ import annotations

import re
from typing import Final

from migrator.config.kafka_keys import BROKER_KEYS, TOPIC_KEYS
from migrator.config.keys import KEYS

REDACTED: Final = "(redacted)"
"""What stands for such a value, in Kafka's own word (``RecordRedactor``)."""
PASSWORD: Final = "password"  # noqa: S105 - the name of a type

_ONLY_DYNAMIC: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Keys of brokers that no property file may hold (``DynamicConfig.Broker``); numbers."""
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
"""Keys that a SASL mechanism's name may stand in front of, behind a listener's."""


def broker_type(key: str) -> str | None:
    """The type of a broker's or controller's key; that of the key within where a listener's name is in front of it.
    None for a key that Kafka does not have."""
    found = _BROKER_TYPES.get(key)
    within = _LISTENER_KEY.fullmatch(key)
    if found is not None or within is None:
        return found
    return _BROKER_TYPES.get(next((name for name in _OF_A_MECHANISM if within[1].endswith(name)), within[1]))


def kind_of(key: str) -> str | None:
    """The same, where a key may be one of ours, too."""
    return KEYS[key].kind if key in KEYS else broker_type(key)


def topic_type(key: str) -> str | None:
    """The type of a topic's key, None for one that Kafka does not have."""
    return _TOPIC_TYPES.get(key)


def is_sensitive(kind: str | None) -> bool:
    """Whether values of a key of this type must not be shown."""
    return kind in (None, PASSWORD)
