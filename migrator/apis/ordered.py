"""Describes by names what a request asked to change, for logs of orders. Never has a value, a salt, a hash, a token.

A part has the name of one requested change, and its error in the answer. Parts of a topic have the topic's name; the
others name their kind.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.metadata import ConfigResourceType, ScramMechanism
from migrator.values import value

KAFKA_NAMES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}
"""The names in Kafka's logs (``SecurityUtils.resourceTypeName``)."""


NAME_MAX: Final = 300
"""The most characters of one name."""
TEXT_MAX: Final = 4 * NAME_MAX
"""The most characters of one part's text. Each name in it is cut separately, so a long name hides nothing after it: the
long name of a principal comes before the resource of the right that it got."""


NO_KEY: Final = "(no key)"
"""AlterConfigs without a key removes all keys."""
NAMED_AGAIN: Final = " (the entity is named again: look whether the first of its orders was carried out)"
"""The first order may be carried out, and the entity's only error is that of the second
(``ClientQuotaControlManager``)."""


@value
class OrderedPart:
    """``topic``: the topic whose name was authorized; "" for everything else."""

    text: str
    error: ErrorCode
    topic: str = ""


def parts_of(key: int, body: Any, answer: Any) -> Iterator[OrderedPart]:
    """The parts of a request of API ``key`` and of its answer; none for an API without orders."""
    read = _PARTS.get(key)
    if read is not None and answer is not None and not isinstance(answer, list):
        yield from read(body, answer)


def error_of(answer: Any) -> ErrorCode | None:
    """The error of the whole answer; None when only parts have one."""
    code: ErrorCode | None = getattr(answer, "error_code", None)
    return code


def clipped(text: str, most: int = NAME_MAX) -> str:
    """The text, cut to the length for a line."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _topics(rows: str) -> Callable[[Any, Any], Iterable[OrderedPart]]:
    def read(_body: Any, answer: Any) -> Iterator[OrderedPart]:
        for row in getattr(answer, rows):
            name = row.name if row.name is not None else f"id {row.topic_id}"
            yield OrderedPart(clipped(name), row.error_code, name)

    return read


def _created_acls(body: Any, answer: Any) -> Iterator[OrderedPart]:
    for acl, result in zip(body.creations, answer.results, strict=False):
        yield OrderedPart(_acl(acl, getattr(acl, "resource_pattern_type", PatternType.LITERAL)), result.error_code)


def _deleted_acls(_body: Any, answer: Any) -> Iterator[OrderedPart]:
    for result in answer.filter_results:
        for acl in result.matching_acls:
            yield OrderedPart(_acl(acl, getattr(acl, "pattern_type", PatternType.LITERAL)), result.error_code)
        if result.error_code is not ErrorCode.none:
            yield OrderedPart("a filter", result.error_code)


def _acl(row: Any, pattern: int) -> str:
    what = f"{_name(AclPermission, row.permission_type)} {_name(AclOperation, row.operation)}"
    where = KAFKA_NAMES.get(row.resource_type, str(row.resource_type))
    which = f"{where}:{_name(PatternType, pattern)}:{clipped(row.resource_name)}"
    return f"{what} for {clipped(row.principal)} from {clipped(row.host)} on {which}"


def _configs(body: Any, answer: Any) -> Iterator[OrderedPart]:
    keys = {(row.resource_type, row.resource_name): [config.name for config in row.configs] for row in body.resources}
    for row in answer.responses:
        is_topic = row.resource_type == ConfigResourceType.TOPIC
        name = clipped(row.resource_name)
        what = name if is_topic else f"{_name(ConfigResourceType, row.resource_type)} {name}"
        for key in keys.get((row.resource_type, row.resource_name)) or (NO_KEY,):
            yield OrderedPart(f"{what}: {clipped(key)}", row.error_code, row.resource_name if is_topic else "")


def _elections(_body: Any, answer: Any) -> Iterator[OrderedPart]:
    for row in answer.replica_election_results:
        for partition in row.partition_result:
            yield OrderedPart(f"{clipped(row.topic)}-{partition.partition_id}", partition.error_code)


def _reassignments(body: Any, answer: Any) -> Iterator[OrderedPart]:
    errors: dict[tuple[str, int], deque[ErrorCode]] = {}
    """The errors in the order of the request: when a partition is named twice, each order has its own."""
    for row in answer.responses:
        for each in row.partitions:
            errors.setdefault((row.name, each.partition_index), deque()).append(each.error_code)
    for row in body.topics:
        for each in row.partitions:
            to = "stays" if each.replicas is None else f"to {','.join(map(str, each.replicas))}"
            said = errors.get((row.name, each.partition_index))
            error = said.popleft() if said else answer.error_code
            yield OrderedPart(f"{clipped(row.name)}-{each.partition_index} {to}", error, row.name)


def _quotas(body: Any, answer: Any) -> Iterator[OrderedPart]:
    errors = {_entity(row): row.error_code for row in answer.entries}
    times = Counter(map(_entity, body.entries))
    for row in body.entries:
        error = errors.get(_entity(row), ErrorCode.none)
        again = NAMED_AGAIN if times[_entity(row)] > 1 else ""
        names = ", ".join(
            f"{kind} {clipped(name) if is_named else '(default)'}" for kind, is_named, name in _entity(row)
        )
        for op in row.ops:
            yield OrderedPart(f"{names}: {clipped(op.key)}{again}", error)


def _entity(row: Any) -> tuple[tuple[str, bool, str], ...]:
    """The text of a quota's entity, in a fixed order. An entry may have one kind twice, with a name and without: the
    last one counts, and the answer has it."""
    names = {part.entity_type: part.entity_name for part in row.entity}
    return tuple(sorted((kind, name is not None, name or "") for kind, name in names.items()))


def _credentials(body: Any, answer: Any) -> Iterator[OrderedPart]:
    errors = {row.user: row.error_code for row in answer.results}
    for verb, rows in (("set", body.upsertions), ("delete", body.deletions)):
        for row in rows:
            error = errors.get(row.name, ErrorCode.none)
            yield OrderedPart(f"{verb} {_name(ScramMechanism, row.mechanism)} of {clipped(row.name)}", error)


def _features(body: Any, answer: Any) -> Iterator[OrderedPart]:
    errors = {row.feature: row.error_code for row in getattr(answer, "results", ())}
    for row in {row.feature: row for row in body.feature_updates}.values():  # the last one with a name counts
        error = errors.get(row.feature, answer.error_code)
        yield OrderedPart(f"{clipped(row.feature)} to level {row.max_version_level}", error)


def _token(_body: Any, answer: Any) -> Iterator[OrderedPart]:
    who = f"{answer.principal_type}:{answer.principal_name}"
    yield OrderedPart(f"token {answer.token_id or '(none)'} of {who}", answer.error_code)


def _broker(body: Any, answer: Any) -> Iterator[OrderedPart]:
    yield OrderedPart(f"broker {body.broker_id}", answer.error_code)


def _voter(body: Any, answer: Any) -> Iterator[OrderedPart]:
    yield OrderedPart(f"voter {body.voter_id}, directory {body.voter_directory_id}", answer.error_code)


def _name(codes: Any, code: int) -> str:
    try:
        return str(codes(code).name)
    except ValueError:
        return str(code)


_PARTS: Final[Mapping[int, Callable[[Any, Any], Iterable[OrderedPart]]]] = {
    19: _topics("topics"),
    20: _topics("responses"),
    30: _created_acls,
    31: _deleted_acls,
    33: _configs,
    37: _topics("results"),
    38: _token,
    43: _elections,
    44: _configs,
    45: _reassignments,
    49: _quotas,
    51: _credentials,
    57: _features,
    62: _broker,
    64: _broker,
    80: _voter,
    81: _voter,
    82: _voter,
}
