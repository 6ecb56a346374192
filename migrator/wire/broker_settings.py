"""The settings in force of brokers and topics, read with DescribeConfigs. Reads only.

Preflight and rollout call it on a connection to one broker, because a broker answers only for itself. A refusal of the
broker is a value (`Refused`), not an exception, so that a missing right is reported as such. `describe_broker` takes an
answer of another broker for a `PeerError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.values import value
from migrator.wire.client import KafkaConnection
from migrator.wire.schemas import DESCRIBE_CONFIGS, VersionRange, build, request_type

VERSIONS = VersionRange(1, 4)
BROKER, TOPIC = 4, 2
"""Kinds of resources, by Kafka's numbers (``ConfigResource.Type``)."""
STATIC_BROKER_CONFIG = 4
DYNAMIC = (2, 3)
"""The sources of a value (``DescribeConfigsResponse.ConfigSource``): the broker's property file; a dynamic setting of
the broker or of all brokers, which overrides the file."""


@value
class Refused:
    """A resource whose settings may not be seen; ``error`` is Kafka's name of the reason."""

    error: str


@value
class BrokerConfigs:
    """``in_force``: the settings that have a value. ``in_file``: the values in the broker's property file at its start;
    None for a value that the broker hides. ``dynamic``: the names of dynamic settings that are in force."""

    in_force: Mapping[str, str]
    in_file: Mapping[str, str | None]
    dynamic: Mapping[str, str]


async def describe_configs(
    connection: KafkaConnection, resource_type: int, names: Sequence[str], keys: Sequence[str]
) -> dict[str, Mapping[str, str] | Refused]:
    """The settings with a value, of each resource. A broker answers only for itself.

    :param keys: the names of the settings to read.
    :raises TransportError: the connection broke.
    :raises PeerError: the peer has no such request, or its answer is malformed.
    """
    answer = await _ask(connection, resource_type, names, keys, synonyms=False)
    return {
        result.resource_name: _in_force(result) if result.error_code is ErrorCode.none else _refused(result)
        for result in answer.results
    }


async def describe_broker(
    connection: KafkaConnection, broker_id: int, keys: Sequence[str]
) -> BrokerConfigs | Refused | None:
    """The settings of the broker at the other end; None when the broker refuses. Parameters as in `describe_configs`.

    Kafka names each source of a value (``DescribeConfigsSynonym``), also the overridden ones.

    :raises PeerError: as in `describe_configs`, and when another broker answers (``ConfigHelper``: "Unexpected broker
        id").
    """
    answer = await _ask(connection, BROKER, [str(broker_id)], keys, synonyms=True)
    found = next((result for result in answer.results if result.resource_name == str(broker_id)), None)
    if found is not None and found.error_code is ErrorCode.invalid_request:
        raise PeerError("another broker answers at its address")
    if found is None or found.error_code is not ErrorCode.none:
        return None if found is None else _refused(found)
    in_file = {
        config.name: synonym.value
        for config in found.configs
        for synonym in config.synonyms
        if synonym.name == config.name and synonym.source == STATIC_BROKER_CONFIG
    }
    in_force = _in_force(found)
    dynamic = {config.name for config in found.configs if config.config_source in DYNAMIC}
    return BrokerConfigs(in_force, in_file, {key: text for key, text in in_force.items() if key in dynamic})


def _in_force(result: Any) -> dict[str, str]:
    return {config.name: config.value for config in result.configs if config.value is not None}


def _refused(result: Any) -> Refused:
    return Refused(result.error_code.name)


async def _ask(
    connection: KafkaConnection, resource_type: int, names: Sequence[str], keys: Sequence[str], *, synonyms: bool
) -> Any:
    theirs = connection.apis.get(DESCRIBE_CONFIGS, VersionRange(0, 0))
    version = min(theirs.max, VERSIONS.max)
    if version < max(theirs.min, VERSIONS.min):
        raise PeerError("it does not answer DescribeConfigs")
    request = build(
        request_type(DESCRIBE_CONFIGS, version),
        resources=tuple(
            {"resource_type": resource_type, "resource_name": name, "configuration_keys": tuple(keys)} for name in names
        ),
        include_synonyms=synonyms,
        include_documentation=False,
    )
    return await connection.request(request)
