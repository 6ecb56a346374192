"""Quota values as text in the configs of users, clients and ips.

Source: ``QuotaConfigs`` (types), ``ZkConfigMigrationClient.writeClientQuotas`` (rounding).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from migrator.zookeeper.znodes.errors import ZnodeError

_INTEGRAL = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
"""Quotas that brokers in ZooKeeper mode parse as integers; the others are doubles."""

_EPSILON = 1e-6
_JAVA_DOUBLE = re.compile(r"\s*([+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?))[fFdD]?\s*")
_REMEDY = "Set the quota again with kafka-configs, or correct the znode with a ZooKeeper client, and try again"


def parse_quotas(path: str, config: Mapping[str, str]) -> dict[str, float]:
    """:raises ZnodeError: when a value is not a number."""
    return {key: parse_quota(path, key, text) for key, text in config.items()}


def parse_quota(path: str, key: str, text: str) -> float:
    """A number as Java's ``Double.parseDouble`` takes it, NaN left out.

    :raises ZnodeError: when it is not one.
    """
    match = _JAVA_DOUBLE.fullmatch(text)
    if match is None:
        raise ZnodeError(path, f"the value of quota {key!r} is not a number", _REMEDY)
    return float(match[1])


def format_quota(key: str, quota: float) -> str:
    """The text that brokers in ZooKeeper mode can parse for this key."""
    if math.isinf(quota):
        return "Infinity" if quota > 0 else "-Infinity"
    if key in _INTEGRAL:
        whole = int(quota + _EPSILON)
        if abs(whole - quota) <= _EPSILON:
            return str(whole)
    return repr(quota)
