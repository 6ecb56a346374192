"""Asks each broker directly, and compares the answers of two of them.

Tests use it to show that brokers in different modes agree. An answer that may differ between brokers is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.drill.kafka.cluster import until
from migrator.errors import OperatorError
from migrator.raft.transport import TransportError
from migrator.records.metadata import ConfigResourceType
from migrator.values import value
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import build, request_type
from tests.interop.support.cluster import KafkaCluster

LIST_OFFSETS, METADATA, DESCRIBE_ACLS, DESCRIBE_CONFIGS, DESCRIBE_CLIENT_QUOTAS = 2, 3, 29, 32, 48
LATEST_OFFSET = -1
ANY = 1
ANSWER_SECONDS = 10.0
CONFIG = "config of"

Partition = tuple[str, int]


@value
class Answers:
    """``told``: everything that must be the same whoever is asked, by what it is about. ``leaders``: by Metadata.
    ``offsets``: what ListOffsets said of each partition."""

    told: Mapping[str, object]
    leaders: Mapping[Partition, int]
    offsets: Mapping[Partition, ErrorCode]

    def about(self, *parts: str) -> dict[str, object]:
        """The answers about things with all of these words in their names."""
        return {key: told for key, told in self.told.items() if all(part in key for part in parts)}


Seen = Callable[[Answers], object]
"""Whether a broker has heard of a change, by what it answers."""


def ask(cluster: KafkaCluster) -> dict[int, Answers]:
    """Every broker that answers, by its id."""

    async def gathered() -> list[Answers | None]:
        return await asyncio.gather(*map(_ask, cluster.bootstrap.split(",")))

    return {
        broker: answers
        for broker, answers in zip(cluster.brokers, asyncio.run(gathered()), strict=True)
        if answers is not None
    }


def disagreements(answers: Mapping[int, Answers]) -> list[str]:
    """In words; none when all brokers tell the same, and offsets come from the leader and from nobody else."""
    found = []
    for key in sorted({key for each in answers.values() for key in each.told}):
        told = {broker: each.told.get(key) for broker, each in answers.items()}
        if len(set(map(repr, told.values()))) > 1:
            found.append(f"{key}: {told}")
    for broker, each in answers.items():
        for partition, leader in each.leaders.items():
            due = ErrorCode.none if leader == broker else ErrorCode.not_leader_or_follower
            if each.offsets[partition] is not due:
                found.append(f"{partition} is led by {leader}, broker {broker}: {each.offsets[partition].name}")
    return found


def agree(cluster: KafkaCluster, what: str, seen: Seen, *, of_one_release: bool = True) -> None:
    """Wait until every broker has seen it and all tell the same; releases differ in the configs that they know.

    :raises AssertionError: with what they did not agree about.
    """
    found: list[str] = []

    def settled() -> bool:
        answers = ask(cluster)
        found[:] = [f"broker {broker} has not seen it" for broker, each in answers.items() if not seen(each)]
        found.extend(each for each in disagreements(answers) if of_one_release or not each.startswith(CONFIG))
        return not found and answers.keys() == cluster.brokers.keys()

    try:
        until(what, settled)
    except OperatorError as error:
        raise AssertionError("\n".join([f"not agreed about: {what}", *found])) from error


async def _ask(address: str) -> Answers | None:
    host, _, port = address.rpartition(":")
    client = KafkaClient(host, int(port), "auditor")
    try:
        return await _answers(client)
    except TransportError:
        return None
    finally:
        await client.close()


async def _request(client: KafkaClient, api_key: int, version: int, **fields: Any) -> Any:
    return await client.request(build(request_type(api_key, version), **fields), ANSWER_SECONDS)


async def _answers(client: KafkaClient) -> Answers:
    metadata = await _request(client, METADATA, 12, topics=None, allow_auto_topic_creation=False)
    told: dict[str, object] = {"brokers": sorted((each.node_id, each.port, each.rack) for each in metadata.brokers)}
    leaders: dict[Partition, int] = {}
    for topic in metadata.topics:
        told[f"topic {topic.name}"] = (topic.topic_id, topic.error_code, topic.is_internal)
        for part in topic.partitions:
            leaders[topic.name, part.partition_index] = part.leader_id
            told[f"partition {topic.name}-{part.partition_index}"] = (
                *(part.error_code, part.leader_id, part.leader_epoch, part.replica_nodes),
                *(sorted(part.isr_nodes), sorted(part.offline_replicas)),
            )
    told |= {key: text async for key, text in _configs(client, [topic.name for topic in metadata.topics])}
    told |= await _quotas_and_acls(client)
    return Answers(told, leaders, await _offsets(client, leaders))


async def _configs(client: KafkaClient, topics: list[str]) -> Any:
    resources = [{"resource_type": ConfigResourceType.TOPIC, "resource_name": name} for name in topics]
    resources.append({"resource_type": ConfigResourceType.BROKER, "resource_name": ""})
    answer = await _request(client, DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=True)
    for result in answer.results:
        name = f"{CONFIG} {result.resource_name or 'all brokers'}"
        yield name, result.error_code
        for config in result.configs:
            synonyms = tuple((each.name, each.value, each.source) for each in config.synonyms)
            yield f"{name} {config.name}", (config.value, config.config_source, config.read_only, synonyms)


async def _quotas_and_acls(client: KafkaClient) -> dict[str, object]:
    quotas = await _request(client, DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
    names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    codes = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), ANY)
    acls = await _request(client, DESCRIBE_ACLS, 3, **names, **codes)
    return {
        "quotas": sorted([*unordered(each.entity), *unordered(each.values)] for each in quotas.entries or ()),
        "acls": sorted([repr(each.resource_name), *unordered(each.acls)] for each in acls.resources),
    }


def unordered(items: Iterable[object]) -> list[str]:
    """Brokers answer out of hash maps."""
    return sorted(map(repr, items))


async def _offsets(client: KafkaClient, partitions: Mapping[Partition, int]) -> dict[Partition, ErrorCode]:
    asked: dict[str, list[dict[str, object]]] = {}
    for name, index in partitions:
        asked.setdefault(name, []).append({"partition_index": index, "timestamp": LATEST_OFFSET})
    topics = [{"name": name, "partitions": parts} for name, parts in asked.items()]
    answer = await _request(client, LIST_OFFSETS, 7, replica_id=-1, topics=topics)
    return {(topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions}
