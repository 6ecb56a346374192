"""``/brokers/ids/<id>``: registrations of brokers in ZooKeeper mode. Source: ``kafka.zk.BrokerIdZNode``.

Versions: 1 one plaintext ``host`` and ``port``; 2 ``endpoints``; 3 ``rack``; 4 ``listener_security_protocol_map``;
5 ``features`` (KIP-584)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from migrator.records.metadata import Endpoint, FeatureRange, SecurityProtocol
from migrator.values import value
from migrator.zookeeper.znodes.fields import Fields

_VERSIONS = (1, 2, 3, 4, 5)
_REMEDY = "Restart the broker: it registers again"
_ENDPOINT = re.compile(r"([^:/]+)://(\[[^\[\]]*\]|[^:\[\]]*):([0-9]{1,5})")


@value
class BrokerRegistrationZnode:
    """``host`` and ``port`` are those of the first plaintext endpoint, for old clients (None and -1 without one)."""

    version: int
    endpoints: tuple[Endpoint, ...]
    host: str | None
    port: int
    jmx_port: int
    timestamp_ms: int
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()


def decode_broker(path: str, data: bytes | None) -> BrokerRegistrationZnode:
    """:raises ZnodeError: when it is not a registration."""
    fields = Fields.parse(path, data, _REMEDY)
    version = fields.version(_VERSIONS)
    host = fields.text("host") if fields.has("host") else None
    port = fields.integer("port", -1, 65535, default=-1)
    if version == 1:
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", host or "", port, SecurityProtocol.PLAINTEXT),)
    else:
        protocols = fields.text_map("listener_security_protocol_map")
        endpoints = tuple(_endpoint(fields, text, protocols) for text in fields.texts("endpoints"))
    return BrokerRegistrationZnode(
        version=version,
        endpoints=endpoints,
        host=host,
        port=port,
        jmx_port=fields.integer("jmx_port", default=-1),
        timestamp_ms=fields.decimal("timestamp", default=-1),
        rack=fields.text("rack") if fields.has("rack") else None,
        features=_features(fields),
    )


def encode_broker(broker: BrokerRegistrationZnode) -> bytes:
    """The fields of its version."""
    fields: dict[str, Any] = {
        "version": broker.version,
        "host": broker.host,
        "port": broker.port,
        "jmx_port": broker.jmx_port,
        "timestamp": str(broker.timestamp_ms),
    }
    if broker.version >= 2:
        fields["endpoints"] = [f"{end.name}://{_bracketed(end.host)}:{end.port}" for end in broker.endpoints]
    if broker.version >= 3 and broker.rack is not None:
        fields["rack"] = broker.rack
    if broker.version >= 4:
        names = {end.name: SecurityProtocol(end.security_protocol).name for end in broker.endpoints}
        fields["listener_security_protocol_map"] = names
    if broker.version >= 5:
        fields["features"] = {
            feature.name: {"min_version": feature.min_version, "max_version": feature.max_version}
            for feature in broker.features
        }
    return orjson.dumps(fields)


def _endpoint(fields: Fields, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise fields.fault(f"endpoint {text!r} is not of the form NAME://host:port")
    name = match[1]
    protocol = protocols.get(name, name)
    if protocol not in SecurityProtocol.__members__:
        raise fields.fault(f"listener {name!r} has no known security protocol")
    return Endpoint(name, match[2].strip("[]"), int(match[3]), SecurityProtocol[protocol])


def _features(fields: Fields) -> tuple[FeatureRange, ...]:
    ranges = []
    for name, levels in fields.mapping("features").items():
        if type(levels) is not dict:
            raise fields.fault(f"feature {name!r} is not an object")
        level = Fields(fields.path, levels, _REMEDY)
        ranges.append(FeatureRange(name, level.integer("min_version"), level.integer("max_version")))
    return tuple(sorted(ranges, key=lambda feature: feature.name))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
