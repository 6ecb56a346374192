"""Checks configured values: types and ranges from Kafka's own tables, and rules across keys.

As in Kafka, the controller checks the values of topics and client metrics. Of brokers' values it checks only those that
are topics' defaults, because it uses them itself; the brokers check the rest. Source: Kafka's ``LogConfig``,
``ControllerConfigurationValidator``, ``ClientMetricsConfigs``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

from kio.schema.errors import ErrorCode

from migrator.config.kafka_keys import BROKER_KEYS, TOPIC_KEYS, Row
from migrator.config.types import in_kafkas_words, parse, split_list, trimmed
from migrator.controller.decision import RefusedError
from migrator.controller.effective import SYNONYMS, TopicDefaults
from migrator.records.metadata import ConfigResourceType
from migrator.records.primitives import MAX_STRING_BYTES
from migrator.records.versions import parse_version

REMOTE_STORAGE: Final = "remote.storage.enable"
_TOPIC: Final[dict[str, Row]] = {row[0]: row for row in TOPIC_KEYS}
_BROKER: Final[dict[str, Row]] = {row[0]: row for row in BROKER_KEYS}
_TOPIC_DEFAULTS_OF_BROKERS: Final = frozenset(name for names in SYNONYMS.values() for name, _ in names)
_TABLES: Final[dict[int, dict[str, Row]]] = {ConfigResourceType.TOPIC: _TOPIC, ConfigResourceType.BROKER: _BROKER}

_OLD_VERSION: Final = re.compile(r"(0\.8\.[0-2]|0\.9\.0|0\.10\.[0-2]|0\.11\.0|1\.[01]|2\.[0-8])(-IV\d|\.\d+)*")
_THROTTLED: Final = re.compile(r"([0-9]+:[0-9]+)?")
_CLIENT_MATCH: Final = frozenset(
    f"client_{word}"
    for word in ("instance_id", "id", "software_name", "software_version", "source_address", "source_port")
)
_PUSH_INTERVAL_MS: Final = (100, 3_600_000)
_PARSE_EXPRESSION: Final[Callable[[str], object]] = import_module("re._parser").parse
"""The first half of `re.compile`, with the same errors. Its time is proportional to the text."""
_NO_LIMIT: Final = -1
_DERIVED: Final = -2

Values = Mapping[str, str]


def is_list(resource_type: int, key: str) -> bool:
    """Whether the key's value is a list, so that elements can be appended and subtracted."""
    row = _TABLES.get(resource_type, {}).get(key)
    return row is not None and row[1] == "list"


def default_value(resource_type: int, key: str) -> str | None:
    """Kafka's default of a key."""
    row = _TABLES.get(resource_type, {}).get(key)
    return None if row is None else row[2]


def check_topic_config(existing: Values, wanted: Values, defaults: TopicDefaults) -> None:
    """Check a topic's whole new configuration.

    :param existing: the configuration before.
    :raises RefusedError: INVALID_CONFIG.
    """
    for key, text in wanted.items():
        if key not in _TOPIC:
            raise _invalid(f"Unknown topic config name: {key}")
        _check_value(_TOPIC[key], text)
    effective = _Effective(wanted, defaults)
    least, most = (effective.number(f"{bound}.compaction.lag.ms") for bound in ("min", "max"))
    if least > most:
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    if effective.flag(REMOTE_STORAGE):
        _check_remote_storage(effective, defaults)
    elif existing.get(REMOTE_STORAGE, "").lower() == "true" and not effective.flag("remote.log.delete.on.disable"):
        raise _invalid(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data "
            "and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want "
            "to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def check_broker_config(name: str, wanted: Values) -> None:
    """Check a broker's name, and those values that become topics' defaults.

    :param name: a broker id in text, or "" for all brokers.
    :raises RefusedError: INVALID_REQUEST, INVALID_CONFIG.
    """
    if name and (not re.fullmatch(r"[+-]?\d{1,10}", name) or not -(2**31) <= int(name) < 2**31):
        raise RefusedError(ErrorCode.invalid_request, "Unable to parse broker name as a base 10 number.")
    if name and int(name) < 0:
        raise RefusedError(ErrorCode.invalid_request, "Invalid negative broker ID.")
    for key, text in wanted.items():
        if key in _TOPIC_DEFAULTS_OF_BROKERS:
            _check_value(_BROKER[key], text)


def check_client_metrics(name: str, wanted: Values) -> None:
    """Check a subscription to client metrics (KIP-714).

    :raises RefusedError: INVALID_REQUEST, INVALID_CONFIG.
    """
    if not name:
        raise RefusedError(ErrorCode.invalid_request, "Subscription name can't be empty")
    for key, text in wanted.items():
        check = _CLIENT_METRICS.get(key)
        if check is None:
            raise RefusedError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {key}")
        check(text)


def _check_push_interval(text: str) -> None:
    low, high = _PUSH_INTERVAL_MS
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", trimmed(text)) or not low <= int(text) <= high:
        raise RefusedError(
            ErrorCode.invalid_request,
            f"Invalid value {text} for interval.ms, interval must be between {low} and {high} (1 hour)",
        )


def _check_match(text: str) -> None:
    """Check a regular expression that only brokers use. It is parsed and not compiled: compilation of a text such as
    ``[\\u0100-\\uffff]`` under ``(?i)`` takes 20 ms, in which no other decision can be made."""
    if len(text) > MAX_STRING_BYTES:
        raise _invalid(f"match has more than {MAX_STRING_BYTES:,} characters.")
    for pattern in text.split(","):
        key, equals, expression = pattern.partition("=")
        try:
            valid = bool(equals) and key.strip() in _CLIENT_MATCH and "=" not in expression
            _PARSE_EXPRESSION(expression.strip())
        except (re.error, RecursionError, OverflowError):  # nested too deeply, or repeated too often, for any engine
            valid = False
        if not valid:
            raise _invalid(f"Illegal client matching pattern: {pattern}")


_CLIENT_METRICS: Final[dict[str, Callable[[str], None]]] = {
    "metrics": lambda _: None,
    "interval.ms": _check_push_interval,
    "match": _check_match,
}


class _Effective:
    """Typed values of a topic, defaults included."""

    def __init__(self, own: Values, defaults: TopicDefaults) -> None:
        self._own = own
        self._defaults = defaults

    def text(self, key: str) -> str:
        return self._own[key] if key in self._own else self._defaults.resolve(key, _TOPIC[key][2]).value or ""

    def number(self, key: str) -> int:
        """The value of an integer key."""
        return cast("int", parse("long", self.text(key)))

    def flag(self, key: str) -> bool:
        """The value of a boolean key."""
        return self.text(key).strip().lower() == "true"


def _check_remote_storage(topic: _Effective, defaults: TopicDefaults) -> None:
    if not defaults.remote_storage_enabled:
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage."
        )
    if "compact" in topic.text("cleanup.policy").lower():
        raise _invalid("Remote log storage is unsupported for the compacted topics")
    frozen = topic.flag("remote.log.copy.disable")
    for unit in ("bytes", "ms"):
        total, local = topic.number(f"retention.{unit}"), topic.number(f"local.retention.{unit}")
        if local == _DERIVED:
            continue
        if total != _NO_LIMIT and (local == _NO_LIMIT or local > total):
            raise _invalid(f"local.retention.{unit} is above retention.{unit}.")
        if frozen and local != total:
            raise _invalid(
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and `retention.{unit}` "
                "must be set to the identical value because there will be no more logs copied to the remote storage."
            )


def _check_value(row: Row, text: str) -> None:
    key, kind, _, valid, _ = row
    try:
        parse(kind, text, valid)
        if valid == "metadata version" and not _OLD_VERSION.fullmatch(text.strip()):
            parse_version(text)
    except ValueError as error:
        raise _invalid(in_kafkas_words(key, kind, valid, text)) from error
    throttled = split_list(text) if valid.startswith("[partitionId]:") else ()
    if throttled != ("*",) and not all(_THROTTLED.fullmatch(part) for part in throttled):
        raise _invalid(
            f"Invalid value [{', '.join(throttled)}] for configuration {key}: {key} must be the literal '*' or a list "
            "of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_config, message)
