"""A topic's effective configuration: the topic's own value, or a broker's default, or Kafka's.

Order, as for any node's topic defaults: topic; this node's dynamic configuration; the cluster's dynamic default; the
property file; the built-in default. Source: Kafka's ``KafkaConfigSchema`` and ``ServerTopicConfigSynonyms``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from migrator.config.kafka_keys import TOPIC_KEYS
from migrator.controller.context import Context
from migrator.image.model import ConfigResource, MetadataImage
from migrator.records.metadata import ConfigResourceType
from migrator.values import value

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
NO_CONFIG: Final[Mapping[str, str]] = {}

_UNITS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
}
"""Topic keys whose broker default has several names, in order of precedence, with milliseconds per unit."""

SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    key: _UNITS.get(key, ((broker_key, 1),) if broker_key else ()) for key, _, _, _, broker_key in TOPIC_KEYS
}
"""Topic key -> broker keys that give its default, with the factor from the broker key's unit."""


class ConfigSource(IntEnum):
    """The source of a value, with the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@value
class EffectiveConfig:
    name: str
    value: str | None
    source: ConfigSource


class TopicDefaults:
    """The values, on this node, of keys that a topic does not set."""

    __slots__ = ("_levels", "remote_storage_enabled")

    def __init__(self, image: MetadataImage, context: Context) -> None:
        node = ConfigResource(ConfigResourceType.BROKER, str(context.settings.node_id))
        cluster = ConfigResource(ConfigResourceType.BROKER, "")
        self._levels: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
            (ConfigSource.DYNAMIC_BROKER, image.configs.get(node, NO_CONFIG)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, image.configs.get(cluster, NO_CONFIG)),
            (ConfigSource.STATIC_BROKER, context.settings.explicit),
        )
        self.remote_storage_enabled = _is_true(context.settings.explicit.get("remote.log.storage.system.enable"))

    def resolve(self, key: str, default: str | None) -> EffectiveConfig:
        """The value for a topic that does not set the key."""
        for source, values in self._levels:
            for name, factor in SYNONYMS[key]:
                if name in values:
                    return EffectiveConfig(key, _convert(values[name], factor), source)
        return EffectiveConfig(key, default, ConfigSource.DEFAULT)


def effective_topic_configs(own: Mapping[str, str], defaults: TopicDefaults) -> Iterator[EffectiveConfig]:
    """Every topic key with its value, in order of name."""
    for key, _, default, _, _ in TOPIC_KEYS:
        if key in own:
            yield EffectiveConfig(key, own[key], ConfigSource.DYNAMIC_TOPIC)
        else:
            yield defaults.resolve(key, default)


class UncleanElections:
    """Whether topics allow a replica outside the ISR to become leader."""

    __slots__ = ("_configs", "_default")

    def __init__(self, image: MetadataImage, context: Context) -> None:
        self._configs = image.configs
        self._default = _is_true(TopicDefaults(image, context).resolve(UNCLEAN_ELECTION, "false").value)

    def enabled(self, topic: str) -> bool:
        """Whether the topic of that name allows it."""
        own = self._configs.get(ConfigResource(ConfigResourceType.TOPIC, topic))
        if own is None or UNCLEAN_ELECTION not in own:
            return self._default
        return _is_true(own[UNCLEAN_ELECTION])


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"


def _convert(text: str, factor: int) -> str:
    if factor == 1:
        return text
    try:
        return str(int(text) * factor)
    except ValueError:
        return "0"
