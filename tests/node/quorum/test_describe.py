"""A question to the leader in DescribeQuorum: who gets an answer, and what Kafka sees of it (ADR 59)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map
from kio.schema.describe_quorum.v2 import request as v2_request
from kio.schema.describe_quorum.v2 import response as v2_response

from migrator.apis.authorization import Access, Authorizer, Unlimited
from migrator.config.load import settings_from
from migrator.controller.acl_index import AclIndex
from migrator.image.model import Acl
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.describe import QuorumDescriber
from migrator.raft.states import Role
from migrator.records.acl_codes import AclOperation, AclPermission, ResourceType
from migrator.records.uuid import Uuid
from migrator.wire.decode import decode_entity
from migrator.wire.encode import encode_entity
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.schemas import DESCRIBE_QUORUM, build
from tests.apis.support.asking import call, read
from tests.node.quorum.test_addresses import CONFIGURED

TOPICS = ({"topic_name": METADATA_TOPIC, "partitions": ({"partition_index": 0},)},)


async def says(question: str) -> bytes:
    return f"answer to {question}".encode()


def leader() -> Any:
    """A quorum that this node leads, without followers."""
    status = SimpleNamespace(leader_id=1, epoch=7, high_watermark=9, voters=(), observers=())
    return SimpleNamespace(role=Role.LEADER, status=lambda: status)


def with_right_to(operation: AclOperation) -> Access:
    acl = Acl(ResourceType.CLUSTER, "kafka-cluster", 3, "User:alice", "*", operation, AclPermission.ALLOW)
    return Authorizer(AclIndex.of(Map({Uuid(b"1" * 16): acl})), (), allow_if_no_acl=False).access_of(
        "User:alice", "1.2.3.4"
    )


async def described(access: Access, question: str, version: int = 2) -> Any:
    addresses = Addresses(settings_from(CONFIGURED, "test")[0], Uuid(b"d" * 16), ())
    asked = call(DESCRIBE_QUORUM, version, topics=TOPICS, asks_leader=question, access=access)
    return read(asked, await QuorumDescriber(leader(), addresses, says)(asked))


@pytest.mark.parametrize(
    ("access", "question", "answer"),
    [
        (Unlimited(), "status", b"answer to status"),
        (with_right_to(AclOperation.CLUSTER_ACTION), "status", b"answer to status"),
        (with_right_to(AclOperation.DESCRIBE), "status", b""),
        (Unlimited(), "", b""),
    ],
)
async def test_who_gets_an_answer(access: Access, question: str, answer: bytes) -> None:
    found = await described(access, question)
    assert found.leader_says == answer
    assert found.topics[0].partitions[0].leader_epoch == 7
    assert not hasattr(await described(access, question, version=1), "leader_says")


async def test_without_an_answer_the_bytes_are_kafkas_and_with_one_kafka_reads_the_rest() -> None:
    for question, answered in (("", False), ("status", True)):
        ours = await described(Unlimited(), question)
        sent = b"".join(encode_entity(ours))
        kafkas, end = decode_entity(v2_response.DescribeQuorumResponse, sent)
        assert (kafkas.topics, kafkas.nodes, end) == (ours.topics, ours.nodes, len(sent))
        assert (b"".join(encode_entity(kafkas)) != sent) is answered
    plain = build(v2_request.DescribeQuorumRequest, topics=TOPICS)
    assert b"".join(encode_entity(plain)) == b"".join(encode_entity(call(DESCRIBE_QUORUM, 2, topics=TOPICS).body))
