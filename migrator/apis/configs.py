"""IncrementalAlterConfigs, AlterConfigs (APIs 44, 33) and DescribeConfigs (API 32), as a controller answers it.

A controller describes topics, this node, and the default of all nodes. Of brokers it knows only dynamic configurations;
brokers answer for themselves. Source: Kafka's ``ConfigHelper``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.authorization import allows_cluster
from migrator.apis.call import Call, error_fields
from migrator.config.kafka_keys import BROKER_KEYS, TOPIC_KEYS, Row
from migrator.config.sensitive import broker_type, is_sensitive
from migrator.config.types import parse
from migrator.controller.configs import (
    AlterConfigsRequest,
    ConfigChange,
    ConfigOperation,
    ReplaceConfigsRequest,
    alter_configs,
    replace_configs,
)
from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError
from migrator.controller.effective import NO_CONFIG, ConfigSource, TopicDefaults, effective_topic_configs
from migrator.controller.topic_names import name_fault
from migrator.image.model import ConfigResource, MetadataImage
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.metadata import ConfigResourceType
from migrator.values import value

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


CLIENT_METRICS_SOURCE: Final = 7
BROKER_LOGGER: Final = 8
"""The resource type of a Java process's log levels; this program is no Java process."""
_READ_FORBIDDEN: Final = {
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
}
REPEATED: Final = ApiError(ErrorCode.invalid_request, "The resource is named more than once.")
READ_ONLY: Final = "read-only"
_TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
UNTYPED: Final = "untyped"
"""The kind of client metrics' keys, for which no types and synonyms are returned."""
_UNKNOWN_TYPE: Final = 0
_TOPIC_TYPES: Final = {row[0]: row[1] for row in TOPIC_KEYS}
_DEFAULT_SYNONYM: Final = {row[0]: row[4] for row in TOPIC_KEYS}
_BROKER: Final[dict[str, Row]] = {row[0]: row for row in BROKER_KEYS}


@value
class _Synonym:
    name: str
    value: str | None
    source: int


@value
class _Entry:
    """One key; its first synonym is the source of the value."""

    name: str
    kind: str | None
    read_only: bool
    value: str | None
    synonyms: tuple[_Synonym, ...]

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return is_sensitive(self.kind)


def config_description(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """DescribeConfigs 0-4. Documentation is not given.

    A resource that is named more than once is refused: each time, six bytes of the request would cause 16 KB of the
    answer.
    """
    counts = Counter((row.resource_type, row.resource_name) for row in call.body.resources)
    results = tuple(
        _answer(row, REPEATED)
        if counts[row.resource_type, row.resource_name] > 1
        else _result(call, image, context, row)
        for row in call.body.resources
    )
    return Decision(call.respond(results=results))


def refuse_config_description(call: Call, error: ApiError) -> Any:
    """DescribeConfigs refused as a whole."""
    return call.respond(results=tuple(_answer(row, error) for row in call.body.resources))


def _result(call: Call, image: MetadataImage, context: Context, row: Any) -> dict[str, Any]:
    resource = ConfigResource(row.resource_type, row.resource_name)
    try:
        _check_access(call, resource)
        entries = _entries(image, context, resource)
    except RefusedError as refusal:
        return _answer(row, refusal.error)
    wanted = frozenset(row.configuration_keys or ())
    include_synonyms = getattr(call.body, "include_synonyms", False)
    chosen = (entry for entry in entries if not wanted or entry.name in wanted)
    return _answer(row, NO_ERROR, (_fields(entry, include_synonyms=include_synonyms) for entry in chosen))


def _answer(row: Any, error: ApiError, configs: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    return {
        **error_fields(error),
        "resource_type": row.resource_type,
        "resource_name": row.resource_name,
        "configs": tuple(configs),
    }


def _check_access(call: Call, resource: ConfigResource) -> None:
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not call.access.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.name):
            raise _forbidden(ErrorCode.topic_authorization_failed)
        return
    nodes = (ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS, BROKER_LOGGER)
    if resource.resource_type in nodes and not allows_cluster(call.access, AclOperation.DESCRIBE_CONFIGS):
        raise _forbidden(ErrorCode.cluster_authorization_failed)
    if resource.resource_type not in nodes or resource.resource_type == BROKER_LOGGER:
        raise RefusedError(ErrorCode.invalid_request, f"Resource type {resource.resource_type} is not described here.")


def _forbidden(code: ErrorCode) -> RefusedError:
    return RefusedError(code, _READ_FORBIDDEN[code])


def _other_node(own: int, asked: str) -> str:
    if re.fullmatch(r"[+-]?[0-9]{1,10}", asked) is None:
        return f"Broker id must be an integer, but it is: {asked}"
    return f"Unexpected broker id, expected {own} or empty string, but received {asked}"


def _entries(image: MetadataImage, context: Context, resource: ConfigResource) -> Iterator[_Entry]:
    if resource.resource_type == ConfigResourceType.TOPIC:
        fault = name_fault(resource.name)
        if fault is not None:
            raise RefusedError(ErrorCode.invalid_topic_exception, fault)
        if resource.name not in image.topics.ids:
            raise RefusedError(ErrorCode.unknown_topic_or_partition)
        return _topic_entries(image, context, resource)
    if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        if not resource.name:
            raise RefusedError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
        return _client_metrics_entries(image, resource)
    if not resource.name:
        return _default_entries(image, resource)
    if resource.name != str(context.settings.node_id):
        raise RefusedError(ErrorCode.invalid_request, _other_node(context.settings.node_id, resource.name))
    return _node_entries(image, context, resource)


def _topic_entries(image: MetadataImage, context: Context, resource: ConfigResource) -> Iterator[_Entry]:
    own = image.configs.get(resource, NO_CONFIG)
    for config in effective_topic_configs(own, TopicDefaults(image, context)):
        kind = _TOPIC_TYPES[config.name]
        text = None if config.value is None else _canonical(kind, config.value)
        synonyms = []
        if config.source is ConfigSource.DYNAMIC_TOPIC:
            synonyms.append(_Synonym(config.name, text, config.source))
        broker_key = _DEFAULT_SYNONYM[config.name]
        if broker_key is not None:
            synonyms.extend(_broker_synonyms(image, context, broker_key))
        yield _Entry(config.name, kind, False, text, tuple(synonyms))


def _node_entries(image: MetadataImage, context: Context, resource: ConfigResource) -> Iterator[_Entry]:
    own = image.configs.get(resource, NO_CONFIG)
    for name in sorted({*_BROKER, *_static(context), *own}):
        synonyms = tuple(_broker_synonyms(image, context, name))
        shown = synonyms[0].value if synonyms else None
        yield _Entry(name, broker_type(name), _is_read_only(name), shown, synonyms)


def _default_entries(image: MetadataImage, resource: ConfigResource) -> Iterator[_Entry]:
    for name, text in sorted(image.configs.get(resource, NO_CONFIG).items()):
        synonym = _Synonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        yield _Entry(name, broker_type(name), _is_read_only(name), text, (synonym,))


def _client_metrics_entries(image: MetadataImage, resource: ConfigResource) -> Iterator[_Entry]:
    for name, text in sorted(image.configs.get(resource, NO_CONFIG).items()):
        yield _Entry(name, UNTYPED, False, text, (_Synonym(name, text, CLIENT_METRICS_SOURCE),))


def _broker_synonyms(image: MetadataImage, context: Context, name: str) -> Iterator[_Synonym]:
    """The sources of this node's values for the key, the one in force first."""
    levels = (
        (ConfigSource.DYNAMIC_BROKER, _dynamic(image, str(context.settings.node_id))),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, _dynamic(image, "")),
        (ConfigSource.STATIC_BROKER, _static(context)),
    )
    for source, values in levels:
        if name in values:
            yield _Synonym(name, values[name], source)
    default = _BROKER[name][2] if name in _BROKER else None
    if default is not None:
        yield _Synonym(name, default, ConfigSource.DEFAULT)


def _static(context: Context) -> Mapping[str, str]:
    """The settings of the property file. As in Kafka, the node's id is also the value of its old key."""
    explicit = context.settings.explicit
    node_id = explicit.get("node.id")
    return explicit if node_id is None else {"broker.id": node_id, **explicit}


def _canonical(kind: str, text: str) -> str:
    """A topic's value as Kafka prints it after parsing; a value that does not parse stays as it is."""
    try:
        parsed = parse(kind, text)
    except ValueError:
        return text
    if isinstance(parsed, bool):
        return str(parsed).lower()
    return ",".join(parsed) if isinstance(parsed, tuple) else str(parsed)


def _dynamic(image: MetadataImage, node: str) -> Mapping[str, str]:
    return image.configs.get(ConfigResource(ConfigResourceType.BROKER, node), NO_CONFIG)


def _is_read_only(name: str) -> bool:
    return name not in _BROKER or _BROKER[name][4] == READ_ONLY


def _fields(entry: _Entry, *, include_synonyms: bool) -> dict[str, Any]:
    hidden = entry.is_sensitive
    source = entry.synonyms[0].source if entry.synonyms else ConfigSource.DEFAULT
    return {
        "name": entry.name,
        "value": None if hidden else entry.value,
        "read_only": entry.read_only,
        "config_source": int(source),
        "is_sensitive": hidden,
        "synonyms": tuple(
            {"name": synonym.name, "value": None if hidden else synonym.value, "source": int(synonym.source)}
            for synonym in (entry.synonyms if include_synonyms and entry.kind != UNTYPED else ())
        ),
        "documentation": None,
        "config_type": _TYPES.get(entry.kind or "", _UNKNOWN_TYPE),
    }
