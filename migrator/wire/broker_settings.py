"""Settings in force of brokers and topics, asked with DescribeConfigs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.values import value
from migrator.wire.client import KafkaConnection
from migrator.wire.schemas import DESCRIBE_CONFIGS, VersionRange, build, request_type

VERSIONS = VersionRange(1, 4)
BROKER, TOPIC = 4, 2
"""Kinds of resources, by Kafka's numbers (``ConfigResource.Type``)."""


@value
class Refused:
    """A resource whose settings may not be seen; ``error`` is Kafka's name of the reason."""

    error: str


async def describe_configs(
    connection: KafkaConnection, resource_type: int, names: Sequence[str], keys: Sequence[str]
) -> dict[str, Mapping[str, str] | Refused]:
    """Of each resource the settings that have a value. A broker answers for itself only.

    :param keys: others are not asked for.
    :raises TransportError: the connection broke.
    :raises PeerError: the peer has no such request, or its answer is malformed.
    """
    theirs = connection.apis.get(DESCRIBE_CONFIGS, VersionRange(0, 0))
    version = min(theirs.max, VERSIONS.max)
    if version < max(theirs.min, VERSIONS.min):
        raise PeerError("it does not answer DescribeConfigs")
    request = build(
        request_type(DESCRIBE_CONFIGS, version),
        resources=tuple(
            {"resource_type": resource_type, "resource_name": name, "configuration_keys": tuple(keys)} for name in names
        ),
        include_synonyms=False,
        include_documentation=False,
    )
    answer = await connection.request(request)
    return {
        result.resource_name: {config.name: config.value for config in result.configs if config.value is not None}
        if result.error_code is ErrorCode.none
        else Refused(result.error_code.name)
        for result in answer.results
    }
