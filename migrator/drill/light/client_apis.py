"""A light broker's answers to clients: its settings, and the partitions that it knows.

`LightBroker` calls these functions for its client listener. They serve what rollout and preflight ask, in the versions
of Kafka, and nothing else: no records are produced or fetched. Sources: ``KafkaApis``, ``ConfigHelper``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.config.sensitive import broker_type, is_sensitive
from migrator.drill.light.metadata_cache import CachedPartition
from migrator.wire.broker_settings import BROKER, STATIC_BROKER_CONFIG
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import (
    DESCRIBE_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    VersionRange,
    build,
    response_type,
)

CLIENT_APIS = {
    METADATA: VersionRange(7, 7),
    DESCRIBE_CONFIGS: VersionRange(1, 4),
    LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
}


def configs(context: RequestContext, body: Any, broker_id: int, file: Mapping[str, str]) -> Any:
    """DescribeConfigs: the broker itself has the settings of its property file at its start; topics have no own
    settings."""
    results = []
    for resource in body.resources:
        own = resource.resource_type == BROKER and resource.resource_name == str(broker_id)
        wanted = resource.configuration_keys or tuple(file)
        error = ErrorCode.invalid_request if resource.resource_type == BROKER and not own else ErrorCode.none
        found = tuple(_config(key, file[key]) for key in wanted if key in file) if own else ()
        results.append(
            {
                "error_code": error,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                "configs": found,
            }
        )
    return build(response_type(DESCRIBE_CONFIGS, context.api_version), results=tuple(results))


def _config(key: str, text: str) -> dict[str, Any]:
    shown = None if is_sensitive(broker_type(key)) else text
    synonym = {"name": key, "value": shown, "source": STATIC_BROKER_CONFIG}
    return {"name": key, "value": shown, "config_source": STATIC_BROKER_CONFIG, "synonyms": (synonym,)}


def metadata(context: RequestContext, topics: Mapping[str, Mapping[int, CachedPartition]]) -> Any:
    """Metadata of all topics, without brokers, because no client of a light broker needs others."""
    return build(
        response_type(METADATA, context.api_version),
        topics=tuple(
            {"name": name, "partitions": tuple(_partition(number, it) for number, it in partitions.items())}
            for name, partitions in topics.items()
        ),
    )


def _partition(number: int, it: CachedPartition) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none if it.leader >= 0 else ErrorCode.leader_not_available,
        "partition_index": number,
        "leader_id": it.leader,
        "leader_epoch": it.leader_epoch,
        "replica_nodes": it.replicas,
        "isr_nodes": it.isr,
        "offline_replicas": it.offline_replicas,
    }


def reassignments(context: RequestContext) -> Any:
    """ListPartitionReassignments: a light broker has none."""
    return build(response_type(LIST_PARTITION_REASSIGNMENTS, context.api_version), error_code=ErrorCode.none)
