"""CreateTopics and DeleteTopics. Pure.

`migrator.apis.topics` calls it. Each topic is decided separately: a refused topic has no records, and all records of
one request fit into one batch, so a topic exists with all its partitions or not at all. A deleted topic's configs are
deleted by records before it, or a restarting broker would apply them to a later topic of that name. Source: Kafka's
``ReplicationControlManager`` and ``Topic``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.assignments import (
    EXCESSIVE,
    NO_ACTIVE_BROKER,
    NewPartitions,
    check_assignment,
    no_active_broker,
)
from migrator.controller.config_checks import check_topic_config
from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError, check_size, decided
from migrator.controller.effective import EffectiveConfig, TopicDefaults, effective_topic_configs
from migrator.controller.index import metric_name
from migrator.controller.mutation_quotas import UNLIMITED, MutationQuota
from migrator.controller.placement import Assignment, place
from migrator.controller.topic_names import name_fault
from migrator.controller.way_back import check_config
from migrator.image.model import ConfigResource, MetadataImage
from migrator.records.metadata import (
    ConfigRecord,
    ConfigResourceType,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from migrator.records.uuid import ZERO_UUID, Uuid, random_uuid
from migrator.values import value

USE_DEFAULT: Final = -1


@value
class NewTopic:
    """``partitions`` and ``replication_factor`` are -1 for the default, and with ``assignments``, which have the
    brokers of each partition."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, Assignment], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@value
class CreateTopicsRequest:
    """``describable``: names of the topics whose configuration the requester may see."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    describable: frozenset[str] = frozenset()


@value
class TopicResult:
    """``configs`` is None when the requester may not see them."""

    name: str
    error: ApiError = NO_ERROR
    topic_id: Uuid = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[EffectiveConfig, ...] | None = None


def create_topics(
    image: MetadataImage, request: CreateTopicsRequest, context: Context, quota: MutationQuota = UNLIMITED
) -> Decision[tuple[TopicResult, ...]]:
    """Create topics. Each is decided separately, and a refused one has no records. A request that only validates takes
    as much of the quota as a real one.

    :raises RefusedError: POLICY_VIOLATION when the request needs too many records.
    """
    creation = _Creation(image, request, context, quota)
    results = []
    for topic in request.topics:
        try:
            results.append(creation.create(topic))
        except RefusedError as refusal:
            if refusal.error.code is ErrorCode.policy_violation:
                raise
            results.append(TopicResult(topic.name, refusal.error))
    return decided(tuple(results), [] if request.validate_only else creation.records)


def delete_topics(
    image: MetadataImage, topic_ids: Sequence[Uuid], _: Context, quota: MutationQuota = UNLIMITED
) -> Decision[tuple[tuple[Uuid, ApiError], ...]]:
    """Delete topics by id; the answer has an error, or none, for each.

    Each config is first deleted by a separate record. Kafka's brokers forget the configs of a removed topic only if
    they knew them before they began to replay (``ConfigurationsDelta``); a restarting broker would otherwise apply them
    to a later topic of the same name.
    """
    results: list[tuple[Uuid, ApiError]] = []
    records: list[MetadataRecord] = []
    for topic_id in topic_ids:
        topic = image.topics.by_id.get(topic_id)
        if topic is None:
            results.append((topic_id, ApiError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")))
            continue
        try:
            quota.charge(len(topic.partitions))
        except RefusedError as refusal:
            results.append((topic_id, refusal.error))
            continue
        results.append((topic_id, NO_ERROR))
        resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
        keys = sorted(image.configs.get(resource, ()))
        records += [ConfigRecord(resource.resource_type, resource.name, key, None) for key in keys]
        records.append(RemoveTopicRecord(topic_id))
    return decided(tuple(results), [*records])


class _Creation:
    """The state of one CreateTopics request."""

    def __init__(
        self, image: MetadataImage, request: CreateTopicsRequest, context: Context, quota: MutationQuota
    ) -> None:
        self._image = image
        self._request = request
        self._context = context
        self._quota = quota
        self._defaults = TopicDefaults(image, context)
        self._partitions = NewPartitions(image)
        self._effective: dict[tuple[tuple[str, str], ...], tuple[EffectiveConfig, ...]] = {}
        self.records: list[MetadataRecord] = []

    def create(self, topic: NewTopic) -> TopicResult:
        """Decide on one topic, and keep its records.

        :raises RefusedError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_CONFIG, INVALID_REQUEST,
            INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, THROTTLING_QUOTA_EXCEEDED.
        """
        self._check_name(topic.name)
        configs = self._check_configs(topic)
        assignments = self._assign(topic)
        self._quota.charge(len(assignments))
        topic_id = random_uuid(self._context.random)
        self.records.append(TopicRecord(topic.name, topic_id))
        self.records.extend(
            ConfigRecord(ConfigResourceType.TOPIC, topic.name, key, text) for key, text in configs.items()
        )
        self.records.extend(
            self._partitions.record(topic_id, number, replicas) for number, replicas in enumerate(assignments)
        )
        if topic.name not in self._request.describable:
            return TopicResult(topic.name, topic_id=topic_id)
        effective = self._effective_configs(configs)
        return TopicResult(topic.name, NO_ERROR, topic_id, len(assignments), len(assignments[0]), effective)

    def _effective_configs(self, configs: Mapping[str, str]) -> tuple[EffectiveConfig, ...]:
        """The effective configs of a topic, cached for topics of the request with equal configs."""
        key = tuple(sorted(configs.items()))
        if key not in self._effective:
            self._effective[key] = tuple(effective_topic_configs(configs, self._defaults))
        return self._effective[key]

    def _check_name(self, name: str) -> None:
        fault = name_fault(name)
        if fault is not None:
            raise RefusedError(ErrorCode.invalid_topic_exception, fault)
        if name in self._image.topics.ids:
            raise RefusedError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        similar = self._context.index.similar_names.get(metric_name(name) or "")
        if similar:
            raise RefusedError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{name}' collides with existing topic: {min(similar)}",
            )

    def _check_configs(self, topic: NewTopic) -> Mapping[str, str]:
        configs = {key: text for key, text in topic.configs if text is not None}
        if missing := [key for key, text in topic.configs if text is None]:
            raise RefusedError(
                ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(missing)}"
            )
        if configs:
            check_topic_config({}, configs, self._defaults)
            resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
            check_config(self._image, self._context, resource, configs)
        return configs

    def _assign(self, topic: NewTopic) -> list[Assignment]:
        """The replicas of each partition. At least one of them is active."""
        if topic.assignments:
            return self._manual(topic)
        if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
            raise RefusedError(
                ErrorCode.invalid_replication_factor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.partitions < USE_DEFAULT or topic.partitions == 0:
            raise RefusedError(
                ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
            )
        settings = self._context.settings
        count = settings.num_partitions if topic.partitions == USE_DEFAULT else topic.partitions
        factor = topic.replication_factor
        if factor == USE_DEFAULT:
            factor = settings.default_replication_factor
        check_size(len(self.records) + 1 + len(topic.configs) + count, EXCESSIVE)
        unable = f"Unable to replicate the partition {factor} time(s): "
        try:
            found = place(self._image, count, factor, self._context.random)
        except RefusedError as refusal:
            raise RefusedError(refusal.error.code, f"{unable}{refusal}") from refusal
        if not all(map(self._partitions.isr, found)):
            raise RefusedError(ErrorCode.invalid_replication_factor, f"{unable}{NO_ACTIVE_BROKER}")
        return found

    def _manual(self, topic: NewTopic) -> list[Assignment]:
        for number, what in ((topic.replication_factor, "replication factor"), (topic.partitions, "numPartitions")):
            if number != USE_DEFAULT:
                raise RefusedError(
                    ErrorCode.invalid_request,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        found: dict[int, Assignment] = {}
        factor = None
        for number, replicas in topic.assignments:
            if number in found:
                raise RefusedError(
                    ErrorCode.invalid_replica_assignment,
                    f"Found multiple manual partition assignments for partition {number}",
                )
            check_assignment(self._image, replicas, factor)
            factor = len(replicas)
            if not self._partitions.isr(replicas):
                raise RefusedError(ErrorCode.invalid_replica_assignment, no_active_broker(number))
            found[number] = replicas
        if sorted(found) != list(range(len(found))):
            raise RefusedError(
                ErrorCode.invalid_replica_assignment, "partitions should be a consecutive 0-based integer sequence"
            )
        return [found[number] for number in range(len(found))]
