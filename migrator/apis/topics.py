"""CreateTopics, DeleteTopics, CreatePartitions (APIs 19, 20, 37).

`registry` lists these functions. They translate between kio's messages and `migrator.controller`. Rights are checked
for each topic. The answer to a deletion does not show whether a topic exists that its caller may not see. Topics that
brokers need for themselves do not wait for ZooKeeper.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.authorization import allows_cluster, undenied
from migrator.apis.call import Call, error_fields
from migrator.apis.fields import uuid_in, uuid_out
from migrator.controller.context import Context
from migrator.controller.decision import ApiError, Decision, RefusedError
from migrator.controller.effective import EffectiveConfig
from migrator.controller.mutation_quotas import MutationQuota
from migrator.controller.partitions import CreatePartitionsRequest, MorePartitions, create_partitions
from migrator.controller.topics import CreateTopicsRequest, NewTopic, TopicResult, create_topics, delete_topics
from migrator.image.model import MetadataImage
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.schemas import build, part_type, response_type

INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""Topics that brokers create when the first client needs them; consumer groups do not work without them. (Kafka's
``Topic``.)"""
DELETION_DISABLED_SINCE: Final = 3
"""First version of DeleteTopics with a separate error code for ``delete.topic.enable=false``."""

NO_THROTTLE: Final = dt.timedelta(0)
DUPLICATE: Final = ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
PROHIBITED: Final = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
NEITHER: Final = "Neither topic name nor id were specified."
BOTH: Final = "You may not specify both topic name and topic id."
NAMED_BY_ID: Final = "The provided topic name maps to an ID that was already supplied."
UNKNOWN: Final = "This server does not host this topic-partition."
STRICT_SINCE: Final = {19: 6, 20: 5, 37: 3}
"""The first version of each API whose clients know THROTTLING_QUOTA_EXCEEDED. Older clients are served, and have to
wait afterwards."""
FORBIDDEN: Final = ApiError(ErrorCode.topic_authorization_failed, "Topic authorization failed.")


def topic_creation(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """CreateTopics 0-7."""
    asked = call.body.topics
    errors = dict(_creation_errors(call, asked))
    allowed = [topic for topic in asked if topic.name not in errors]
    shown = undenied(call.access)
    request = CreateTopicsRequest(
        topics=tuple(_new_topic(topic) for topic in allowed),
        validate_only=getattr(call.body, "validate_only", False),
        describable=frozenset(
            topic.name
            for topic in allowed
            if shown.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
        ),
    )
    quota = _quota(call, image, context)
    decision = create_topics(image, request, context, quota)
    refused = (TopicResult(name, error) for name, error in errors.items())
    encoded = _EncodedConfigs(call)
    results = (_creation_result(result, encoded) for result in (*decision.response, *refused))
    return decision.answering(call.respond(topics=tuple(results), throttle_time=_throttle(quota)))


def creates_for_people(call: Call) -> bool:
    """Whether a CreateTopics request has a topic that is not internal."""
    return any(topic.name not in INTERNAL_TOPICS for topic in call.body.topics)


def refuse_topic_creation(call: Call, error: ApiError) -> Any:
    """CreateTopics refused as a whole."""
    return call.respond(topics=tuple({"name": topic.name, **error_fields(error)} for topic in call.body.topics))


def topic_deletion(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """DeleteTopics 0-6: by name, from version 6 on by id too."""
    if not context.settings.delete_topic_enable:
        disabled = ErrorCode.topic_deletion_disabled
        raise RefusedError(ErrorCode.invalid_request if call.version < DELETION_DISABLED_SINCE else disabled)
    deletion = _Deletion(call, image)
    quota = _quota(call, image, context)
    decision = delete_topics(image, tuple(deletion.granted), context, quota)
    results = [
        *deletion.refused,
        *((deletion.granted[topic_id], topic_id, error) for topic_id, error in decision.response),
    ]
    context.random.shuffle(results)  # the order must not show which topics are missing and which forbidden
    responses = tuple(_deletion_result(*result) for result in results)
    return decision.answering(call.respond(responses=responses, throttle_time=_throttle(quota)))


def refuse_topic_deletion(call: Call, error: ApiError) -> Any:
    """DeleteTopics refused as a whole."""
    return call.respond(
        responses=tuple(_deletion_result(name, topic_id, error) for name, topic_id in _asked_to_delete(call.body))
    )


def partition_creation(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """CreatePartitions 0-3."""
    counts = Counter(topic.name for topic in call.body.topics)
    errors: dict[str, ApiError] = {}
    wanted: list[MorePartitions] = []
    for topic in call.body.topics:
        if counts[topic.name] > 1:
            errors[topic.name] = DUPLICATE
        elif not _allowed(call, AclOperation.ALTER, topic.name):
            errors[topic.name] = ApiError(FORBIDDEN.code)
        else:
            assignments = topic.assignments
            given = None if assignments is None else tuple(tuple(row.broker_ids) for row in assignments)
            wanted.append(MorePartitions(topic.name, topic.count, given))
    quota = _quota(call, image, context)
    request = CreatePartitionsRequest(tuple(wanted), call.body.validate_only)
    decision = create_partitions(image, request, context, quota)
    results = (*errors.items(), *decision.response)
    return decision.answering(_partitions_response(call, results, _throttle(quota)))


def refuse_partition_creation(call: Call, error: ApiError) -> Any:
    """CreatePartitions refused as a whole."""
    return _partitions_response(call, ((topic.name, error) for topic in call.body.topics))


def _partitions_response(
    call: Call, results: Iterable[tuple[str, ApiError]], throttle: dt.timedelta = NO_THROTTLE
) -> Any:
    rows = tuple({"name": name, **error_fields(error)} for name, error in results)
    return call.respond(results=rows, throttle_time=throttle)


def _quota(call: Call, image: MetadataImage, context: Context) -> MutationQuota:
    """The quota for the changes of this client."""
    settings = context.settings
    return context.mutations.quota_of(
        image,
        call.principal.name,
        call.client_id,
        strict=call.version >= STRICT_SINCE[call.key],
        burst_seconds=settings.controller_quota_window_num * settings.controller_quota_window_size_seconds,
        now_ms=context.now_ms,
    )


def _throttle(quota: MutationQuota) -> dt.timedelta:
    return dt.timedelta(milliseconds=quota.throttle_ms)


def _creation_errors(call: Call, topics: Iterable[Any]) -> Iterator[tuple[str, ApiError]]:
    counts = Counter(topic.name for topic in topics)
    everything = allows_cluster(undenied(call.access), AclOperation.CREATE)
    for name, count in counts.items():
        if count > 1:
            yield name, DUPLICATE
        elif name == METADATA_TOPIC:
            yield (
                name,
                ApiError(ErrorCode.invalid_request, PROHIBITED),
            )
        elif not everything and not _allowed(call, AclOperation.CREATE, name):
            yield name, ApiError(FORBIDDEN.code, "Authorization failed.")


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((row.partition_index, tuple(row.broker_ids)) for row in topic.assignments),
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


class _EncodedConfigs:
    """kio's form of effective configs, made once for all topics that share them."""

    def __init__(self, call: Call) -> None:
        self._type = part_type(response_type(call.key, call.version), "topics", "configs")
        self._made: dict[int, tuple[Any, ...]] = {}

    def of(self, configs: tuple[EffectiveConfig, ...]) -> tuple[Any, ...]:
        """The encoded configs of one topic. The key of the cache is the identity of ``configs``, which outlives this
        object."""
        if self._type is None:
            return ()
        if id(configs) not in self._made:
            self._made[id(configs)] = tuple(build(self._type, **_config_fields(config)) for config in configs)
        return self._made[id(configs)]


def _creation_result(result: TopicResult, encoded: _EncodedConfigs) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": result.name, **error_fields(result.error)}
    if result.error.is_failure:
        return fields
    fields["topic_id"] = uuid_out(result.topic_id)
    if result.configs is None:
        return {**fields, "topic_config_error_code": ErrorCode.topic_authorization_failed.value}
    return {
        **fields,
        "num_partitions": result.partitions,
        "replication_factor": result.replication_factor,
        "configs": encoded.of(result.configs),
    }


def _config_fields(config: EffectiveConfig) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": False,
        "config_source": int(config.source),
        "is_sensitive": False,
    }


def _allowed(call: Call, operation: AclOperation, topic: str) -> bool:
    return call.access.allows(operation, ResourceType.TOPIC, topic)


def _asked_to_delete(body: Any) -> Iterator[tuple[str | None, Uuid]]:
    if hasattr(body, "topics"):
        for topic in body.topics:
            yield topic.name, uuid_in(topic.topic_id)
    else:
        for name in body.topic_names:
            yield name, ZERO_UUID


class _Deletion:
    """Sort the topics of a DeleteTopics request into those that may be deleted (id -> name) and those that are
    refused."""

    def __init__(self, call: Call, image: MetadataImage) -> None:
        self._image = image
        self._everything = allows_cluster(undenied(call.access), AclOperation.DELETE)
        self._call = call
        self.granted: dict[Uuid, str] = {}
        self.refused: list[tuple[str | None, Uuid, ApiError]] = []
        names: Counter[str] = Counter()
        ids: Counter[Uuid] = Counter()
        for name, topic_id in _asked_to_delete(call.body):
            if (name is None) == (topic_id == ZERO_UUID):
                said = NEITHER if name is None else BOTH
                self._refuse(name, topic_id, ErrorCode.invalid_request, said)
            elif name is None:
                ids[topic_id] += 1
            else:
                names[name] += 1
        for topic_id, count in ids.items():
            self._by_id(topic_id, count)
        for name, count in names.items():
            self._by_name(name, count, ids)

    def _refuse(self, name: str | None, topic_id: Uuid, code: ErrorCode, message: str | None) -> None:
        self.refused.append((name, topic_id, ApiError(code, message)))

    def _may(self, operation: AclOperation, name: str) -> bool:
        return self._everything or _allowed(self._call, operation, name)

    def _by_id(self, topic_id: Uuid, count: int) -> None:
        topic = self._image.topics.by_id.get(topic_id)
        if count > 1:
            self._refuse(None, topic_id, ErrorCode.invalid_request, "Duplicate topic id.")
        elif topic is None:
            self._refuse(None, topic_id, ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
        elif not self._may(AclOperation.DELETE, topic.name):
            visible = topic.name if self._may(AclOperation.DESCRIBE, topic.name) else None
            self._refuse(visible, topic_id, FORBIDDEN.code, FORBIDDEN.message)
        else:
            self.granted[topic_id] = topic.name

    def _by_name(self, name: str, count: int, ids: Counter[Uuid]) -> None:
        topic_id = self._image.topics.ids.get(name)
        if count > 1:
            self._refuse(name, ZERO_UUID, ErrorCode.invalid_request, DUPLICATE.message)
        elif not self._may(AclOperation.DESCRIBE, name):
            self._refuse(name, ZERO_UUID, FORBIDDEN.code, FORBIDDEN.message)
        elif topic_id is None:
            self._refuse(name, ZERO_UUID, ErrorCode.unknown_topic_or_partition, UNKNOWN)
        elif not self._may(AclOperation.DELETE, name):
            self._refuse(name, ZERO_UUID, FORBIDDEN.code, FORBIDDEN.message)
        elif topic_id in ids:
            self.granted.pop(topic_id, None)
            self._refuse(name, topic_id, ErrorCode.invalid_request, NAMED_BY_ID)
        else:
            self.granted[topic_id] = name


def _deletion_result(name: str | None, topic_id: Uuid, error: ApiError) -> dict[str, Any]:
    return {"name": name, "topic_id": uuid_out(topic_id), **error_fields(error)}
