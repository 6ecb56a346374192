"""Quota values as text in the configs of users, clients and ips. Pure.

Codecs of configs call it. Brokers in ZooKeeper mode do not start with a text that they cannot parse, so an encoded
value is always in their form. Source: ``QuotaConfigs`` (types), ``ZkConfigMigrationClient.writeClientQuotas``
(rounding).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.fields import INT32_MAX, INT64_MAX

_INTEGRAL = {"producer_byte_rate": INT64_MAX, "consumer_byte_rate": INT64_MAX, "connection_creation_rate": INT32_MAX}
"""The quotas that brokers in ZooKeeper mode parse as integers, and the highest value. Other quotas are doubles."""

_EPSILON = 1e-6
_JAVA_DOUBLE = re.compile(r"\s*([+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?))[fFdD]?\s*")
_JAVA_LONG = re.compile(r"[+-]?[0-9]{1,100}")
_REMEDY = "Set the quota again with kafka-configs, or correct the znode with a ZooKeeper client, and try again"


def parse_quotas(path: str, config: Mapping[str, str]) -> dict[str, float]:
    """:raises ZnodeError: when a value is not a number."""
    return {key: parse_quota(path, key, text) for key, text in config.items()}


def parse_quota(path: str, key: str, text: str) -> float:
    """A number as Java's ``Double.parseDouble`` accepts it, except NaN.

    :raises ZnodeError: the text is not a number.
    """
    match = _JAVA_DOUBLE.fullmatch(text)
    if match is None:
        raise ZnodeError(path, f"the value of quota {key!r} is not a number", _REMEDY)
    return float(match[1])


def brokers_parse(key: str, text: str) -> bool:
    """Whether brokers in ZooKeeper mode can parse the text, which must be an integer for some keys. A broker does not
    start with ``1e3`` there."""
    highest = _INTEGRAL.get(key)
    return highest is None or (_JAVA_LONG.fullmatch(text) is not None and -highest - 1 <= int(text) <= highest)


def format_quota(key: str, quota: float) -> str:
    """The text of a quota that brokers in ZooKeeper mode can parse; they do not start with another one. For an integer
    key a higher value, such as "no limit", becomes the highest integer, as in Scala, and a fraction is cut off."""
    highest = _INTEGRAL.get(key)
    if highest is not None:
        return str(int(max(-highest - 1, min(highest, quota + _EPSILON))))
    if math.isinf(quota):
        return "Infinity" if quota > 0 else "-Infinity"
    return repr(quota)
