"""IncrementalAlterConfigs and AlterConfigs (APIs 44, 33)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.apis.authorization import allows_cluster
from migrator.apis.call import Call, error_fields
from migrator.controller.configs import (
    AlterConfigsRequest,
    ConfigChange,
    ConfigOperation,
    ReplaceConfigsRequest,
    alter_configs,
    replace_configs,
)
from migrator.controller.context import Context
from migrator.controller.decision import ApiError, Decision
from migrator.image.model import ConfigResource, MetadataImage
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.metadata import ConfigResourceType

TOPIC_FORBIDDEN = "Topic authorization failed."
FORBIDDEN = "Cluster authorization failed."
_KNOWN_TYPES = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}
_OPERATIONS = frozenset(int(operation) for operation in ConfigOperation)


def config_change(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """IncrementalAlterConfigs 0-1."""
    errors, granted = _sorted_out(call)
    changes = []
    for resource, row in granted:
        if any(config.config_operation not in _OPERATIONS for config in row.configs):
            errors.append((resource, ApiError(ErrorCode.invalid_request, "The operation on a key is unknown.")))
            continue
        changes.append(
            (
                resource,
                tuple(
                    ConfigChange(config.name, ConfigOperation(config.config_operation), config.value)
                    for config in row.configs
                ),
            )
        )
    decision = alter_configs(image, AlterConfigsRequest(tuple(changes), call.body.validate_only), context)
    return decision.answering(_response(call, (*errors, *decision.response)))


def config_replacement(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """AlterConfigs 0-2."""
    errors, granted = _sorted_out(call)
    configs = tuple(
        (resource, tuple((config.name, config.value) for config in row.configs)) for resource, row in granted
    )
    decision = replace_configs(image, ReplaceConfigsRequest(configs, call.body.validate_only), context)
    return decision.answering(_response(call, (*errors, *decision.response)))


def refuse_config_change(call: Call, error: ApiError) -> Any:
    """Either request refused as a whole."""
    return _response(call, ((_resource(row), error) for row in call.body.resources))


def alter_error(call: Call, resource: ConfigResource) -> ApiError | None:
    """Why the caller may not alter the resource's configuration, or None."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        allowed = call.access.allows(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, resource.name)
        return None if allowed else ApiError(ErrorCode.topic_authorization_failed, TOPIC_FORBIDDEN)
    if resource.resource_type in (ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS):
        allowed = allows_cluster(call.access, AclOperation.ALTER_CONFIGS)
        return None if allowed else ApiError(ErrorCode.cluster_authorization_failed, FORBIDDEN)
    kind = ConfigResourceType(resource.resource_type).name
    return ApiError(ErrorCode.invalid_request, f"Unexpected resource type {kind}.")


def _sorted_out(call: Call) -> tuple[list[tuple[ConfigResource, ApiError]], list[tuple[ConfigResource, Any]]]:
    """Divide the resources into those that are refused at once, and the others."""
    rows = [(_resource(row), row) for row in call.body.resources]
    counts = Counter(resource for resource, _ in rows)
    errors: dict[ConfigResource, ApiError] = {}
    granted = []
    for resource, row in rows:
        if resource.resource_type not in _KNOWN_TYPES:
            errors[resource] = ApiError(
                ErrorCode.unsupported_version, f"Unknown resource type {resource.resource_type}."
            )
        elif counts[resource] > 1:
            errors[resource] = ApiError(ErrorCode.invalid_request, "Duplicate resource.")
        elif (error := alter_error(call, resource)) is not None:
            errors[resource] = error
        else:
            granted.append((resource, row))
    return list(errors.items()), granted


def _resource(row: Any) -> ConfigResource:
    return ConfigResource(row.resource_type, row.resource_name)


def _response(call: Call, results: Iterable[tuple[ConfigResource, ApiError]]) -> Any:
    return call.respond(
        responses=tuple(
            {"resource_type": resource.resource_type, "resource_name": resource.name, **error_fields(error)}
            for resource, error in results
        )
    )
