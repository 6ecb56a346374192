"""``/config/<type>/<name>`` of every kind, and the notices below ``/config/changes``.

Source: ``kafka.zk.ConfigEntityZNode``, ``kafka.server.DynamicConfigManager``.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from migrator.zookeeper.znodes.fields import Fields

_REMEDY = "Write the config again with kafka-configs, or correct the znode with a ZooKeeper client, and try again"


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    """Values by key. No data means no keys: parents of other entities have none. Brokers do not look at the version.

    Values may be secrets.

    :raises ZnodeError: when it is not a config. (Kafka takes data that is not JSON for an empty config.)
    """
    if not data:
        return {}
    return Fields.parse(path, data, _REMEDY).text_map("config")


def encode_config(config: Mapping[str, str]) -> bytes:
    """Version 1, keys sorted."""
    return orjson.dumps({"version": 1, "config": dict(sorted(config.items()))})


def encode_config_change(entity_path: str) -> bytes:
    """Version 2."""
    return orjson.dumps({"version": 2, "entity_path": entity_path})
