"""Shared by the seats of controllers: the way of a message in, and the rules for its answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.wire.raft_codec import RAFT_APIS
from migrator.wire.schemas import (
    BEGIN_QUORUM_EPOCH,
    DESCRIBE_QUORUM,
    END_QUORUM_EPOCH,
    VOTE,
    build,
    part_type,
    request_type,
)
from tests.hostile.doors import Knock
from tests.hostile.hints import METADATA_TOPIC
from tests.hostile.node import NODE_ID, AbortedError, GrpcContext, Node
from tests.hostile.values import Hostile
from tests.node.support.cluster import CLUSTER_ID

RAFT_KEYS: Final = frozenset(key for key, _ in RAFT_APIS.values())
FATAL_TO_STOCK: Final = frozenset({ErrorCode.cluster_authorization_failed, ErrorCode.invalid_request})
"""In an answer to consensus they end a stock peer."""


async def describes_its_quorum(node: Node) -> None:
    """The next honest request is answered, whatever went before."""
    topics = ({"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]},)
    answer = await node.ask(DESCRIBE_QUORUM, 1, build(request_type(DESCRIBE_QUORUM, 1), topics=topics))
    (partition,) = answer.topics[0].partitions
    known = {ErrorCode.none, ErrorCode.not_leader_or_follower}
    assert {answer.error_code, partition.error_code} <= known, answer


def check_harmless(knock: Knock, message: Any, answer: Any) -> None:
    """Errors of the partition that end a stock peer are for messages that no stock peer sends."""
    if knock.key in RAFT_KEYS:
        found = FATAL_TO_STOCK & set(_errors(answer))
        assert ErrorCode.cluster_authorization_failed not in found, answer
        if found and answer.error_code is ErrorCode.none:
            assert _is_invalid(knock, message), (message, answer)


def _is_invalid(knock: Knock, message: Any) -> bool:
    """What stock itself answers with INVALID_REQUEST (``KafkaRaftClient.handleVoteRequest`` and its like), or who
    says to be the attacked node."""
    (partition,) = message.topics[0].partitions
    if knock.key == VOTE:
        numbers = (partition.last_offset, partition.last_offset_epoch, partition.candidate_id)
        has = partition.candidate_epoch if getattr(partition, "pre_vote", False) else partition.candidate_epoch - 1
        is_late = partition.last_offset_epoch > has
        return bool(min(numbers) < 0 or is_late or partition.candidate_id == NODE_ID)
    if knock.key in (BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH):
        return bool(partition.leader_id < 0 or partition.leader_id == NODE_ID)
    return True


def _errors(answer: Any) -> Iterator[ErrorCode]:
    if isinstance(answer, ErrorCode):
        yield answer
    elif isinstance(answer, tuple | list):
        for each in answer:
            yield from _errors(each)
    elif is_dataclass(answer):
        for each in fields(answer):
            yield from _errors(getattr(answer, each.name))


def about_the_log(message: Any, hostile: Hostile) -> Any:
    """The same message, about the one partition that anybody answers for."""
    entity_type: Any = type(message)
    field = "responses" if hasattr(message, "responses") else "topics"
    if not hasattr(message, field):
        return message
    topic_type = part_type(entity_type, field)
    topic = hostile.entity(topic_type)
    partition = hostile.entity(part_type(topic_type, "partitions"))
    names = {"topic_name": "__cluster_metadata", "topic": "__cluster_metadata", "name": "__cluster_metadata"}
    known = {each.name for each in fields(topic_type)}
    index = {each.name: 0 for each in fields(type(partition)) if each.name in ("partition_index", "partition", "index")}
    changes: dict[str, Any] = {name: text for name, text in names.items() if name in known}
    if "topic_id" in known:
        changes["topic_id"] = METADATA_TOPIC
    topic = replace(topic, **changes, partitions=(replace(partition, **index),))
    rest: dict[str, Any] = {field: (topic,)}
    if hasattr(message, "cluster_id"):
        rest["cluster_id"] = CLUSTER_ID
    if hasattr(message, "error_code"):
        rest["error_code"] = ErrorCode.none
    return replace(message, **rest)


def to_quorum(node: Node) -> Any:
    async def knock(random: Random, hostile: Hostile, knock: Knock) -> None:
        message = hostile.proto(knock.schema)
        if random.random() < 0.8 and "cluster_id" in {field.name for field in message.DESCRIPTOR.fields}:
            message.cluster_id = CLUSTER_ID
        with contextlib.suppress(AbortedError):
            answer = await getattr(node.quorum_service, knock.name)(through_bytes(message), GrpcContext())
            answer.SerializeToString()

    return knock


def through_bytes(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())
