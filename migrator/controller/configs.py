"""IncrementalAlterConfigs and the older AlterConfigs, all or nothing for each resource.

Broker values are recorded even when they do not change: brokers reload files that a value names when they see the
record (KAFKA-14136). Source: Kafka's ``ConfigurationControlManager``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.controller.config_checks import (
    check_broker_config,
    check_client_metrics,
    check_topic_config,
    default_value,
    is_list,
)
from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError, decided
from migrator.controller.effective import NO_CONFIG, TopicDefaults
from migrator.controller.topic_names import name_fault
from migrator.controller.way_back import check_config
from migrator.image.model import ConfigResource, MetadataImage
from migrator.records.metadata import ConfigRecord, ConfigResourceType, MetadataRecord
from migrator.values import value


class ConfigOperation(IntEnum):
    """The operation on a key, with the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@value
class ConfigChange:
    key: str
    operation: ConfigOperation
    value: str | None


@value
class AlterConfigsRequest:
    """Resources are distinct."""

    changes: tuple[tuple[ConfigResource, tuple[ConfigChange, ...]], ...]
    validate_only: bool = False


@value
class ReplaceConfigsRequest:
    """The older request: keys that it does not name are deleted. Resources are distinct."""

    configs: tuple[tuple[ConfigResource, tuple[tuple[str, str | None], ...]], ...]
    validate_only: bool = False


AlterConfigsResponse = tuple[tuple[ConfigResource, ApiError], ...]


def alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, context: Context
) -> Decision[AlterConfigsResponse]:
    """Set, delete, append to and subtract from single keys.

    :raises RefusedError: POLICY_VIOLATION.
    """
    return _each_resource(image, context, request.changes, _incremental, validate_only=request.validate_only)


def replace_configs(
    image: MetadataImage, request: ReplaceConfigsRequest, context: Context
) -> Decision[AlterConfigsResponse]:
    """Replace the whole configuration of resources.

    :raises RefusedError: POLICY_VIOLATION.
    """
    return _each_resource(image, context, request.configs, _replacing, validate_only=request.validate_only)


def _each_resource(
    image: MetadataImage,
    context: Context,
    wanted: Iterable[tuple[ConfigResource, Any]],
    values_of: Callable[[ConfigResource, Any, Mapping[str, str]], dict[str, str | None]],
    *,
    validate_only: bool,
) -> Decision[AlterConfigsResponse]:
    results: list[tuple[ConfigResource, ApiError]] = []
    records: list[MetadataRecord] = []
    defaults = TopicDefaults(image, context)
    for resource, change in wanted:
        current = image.configs.get(resource, NO_CONFIG)
        try:
            values = values_of(resource, change, current)
            _check(image, context, defaults, resource, values)
            check_config(image, context, resource, values)
        except RefusedError as refusal:
            results.append((resource, refusal.error))
            continue
        always = resource.resource_type == ConfigResourceType.BROKER
        records.extend(
            ConfigRecord(resource.resource_type, resource.name, key, text)
            for key, text in values.items()
            if text != current.get(key) or always
        )
        results.append((resource, NO_ERROR))
    return decided(tuple(results), [] if validate_only else records)


def _incremental(
    resource: ConfigResource, changes: tuple[ConfigChange, ...], current: Mapping[str, str]
) -> dict[str, str | None]:
    """The new values of the keys in the changes; None deletes. When a key has several changes, the last one counts."""
    last = {change.key: change for change in changes}
    return {key: _new_value(resource, change, current.get(key)) for key, change in last.items()}


def _replacing(
    _: ConfigResource, configs: tuple[tuple[str, str | None], ...], current: Mapping[str, str]
) -> dict[str, str | None]:
    values = dict(configs)
    return values | {key: None for key in current if key not in values}


def _new_value(resource: ConfigResource, change: ConfigChange, current: str | None) -> str | None:
    if change.operation is ConfigOperation.SET:
        return change.value
    if change.operation is ConfigOperation.DELETE:
        return None
    if not is_list(resource.resource_type, change.key):
        raise RefusedError(
            ErrorCode.invalid_config,
            f"Can't {change.operation.name} to key {change.key} because its type is not LIST.",
        )
    if change.value is None:
        raise RefusedError(ErrorCode.invalid_request, f"Nothing is given to append to or subtract from {change.key}.")
    known = default_value(resource.resource_type, change.key) if current is None else current
    parts = [part for part in (known or "").split(",") if part]
    given = change.value.split(",")
    if change.operation is ConfigOperation.SUBTRACT:
        return ",".join(_without(parts, Counter(given)))
    held = frozenset(parts)
    return ",".join((*parts, *(part for part in dict.fromkeys(given) if part not in held)))


def _without(parts: Iterable[str], gone: Counter[str]) -> Iterator[str]:
    """The elements without those in ``gone``. Each count removes one occurrence, from the beginning."""
    for part in parts:
        if gone[part] > 0:
            gone[part] -= 1
        else:
            yield part


def _check(
    image: MetadataImage,
    context: Context,
    defaults: TopicDefaults,
    resource: ConfigResource,
    values: Mapping[str, str | None],
) -> None:
    """Check a resource's new configuration, and then that the resource exists.

    :raises RefusedError: INVALID_CONFIG, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION,
        BROKER_ID_NOT_REGISTERED.
    """
    current = image.configs.get(resource, NO_CONFIG)
    merged = {**current, **values}
    wanted = {key: text for key, text in merged.items() if text is not None}
    name = resource.name
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not name:
            raise RefusedError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
        fault = name_fault(name)
        if fault is not None:
            raise RefusedError(ErrorCode.invalid_topic_exception, fault)
        check_topic_config(current, wanted, defaults)
        if name not in image.topics.ids:
            raise RefusedError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    elif resource.resource_type == ConfigResourceType.BROKER:
        check_broker_config(name, wanted)
        if name and int(name) not in image.cluster.brokers and int(name) not in context.voters:
            raise RefusedError(ErrorCode.broker_id_not_registered, f"No node with id {int(name)} found.")
    elif resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        check_client_metrics(name, wanted)
    else:
        raise RefusedError(
            ErrorCode.invalid_request, f"Resources of type {resource.resource_type} have no configuration in the log."
        )
