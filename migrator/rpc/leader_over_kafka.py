"""The leader's status and that of the migration, over the Kafka listener: for controllers without gRPC (ADR 59).

The question and the answer are tagged fields of DescribeQuorum (`migrator.wire.leader_question`). The caller logs in as
a controller does, and needs ClusterAction of the cluster; to any other caller the leader answers as Kafka's does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from google.protobuf.message import DecodeError
from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.errors import OperatorError, PeerError
from migrator.log.errors import StorageError
from migrator.log.meta_properties import read_meta_properties
from migrator.observe.status import Gate, Goal, Status
from migrator.raft.transport import TransportError
from migrator.rpc.operator_codec import from_proto, to_proto
from migrator.rpc.operator_service import StatusSource
from migrator.rpc.stubs import operator_pb2 as pb
from migrator.wire import leader_question
from migrator.wire.client import KafkaClient
from migrator.wire.listener_settings import controller_security, voter_endpoints
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.schemas import DESCRIBE_QUORUM, build, request_type

STATUS = "status"
ASK_SECONDS = 3.0
CLIENT_ID = "migrator"
T = TypeVar("T")
Read = Callable[[bytes], tuple[str, T]]
"""Reads an answer: the id of the cluster, and the content."""


def answering(source: StatusSource) -> Callable[[str], Awaitable[bytes]]:
    """The leader's part: the answer to a question; empty when the question is unknown, or nothing can be said."""

    async def answer(question: str) -> bytes:
        if question == STATUS:
            status: bytes = to_proto(pb.Status, source.status()).SerializeToString()
            return status
        goal = next((goal for goal in Goal if question == _about(goal)), None)
        if goal is None:
            return b""
        try:
            gates = await source.gates(goal)
        except OperatorError:
            return b""
        told = pb.GatesResponse(
            gates=[to_proto(pb.Gate, gate) for gate in gates], cluster_id=source.status().cluster_id
        )
        said: bytes = told.SerializeToString()
        return said

    return answer


def _about(goal: Goal) -> str:
    return f"gates {goal}"


async def leaders_status(settings: Settings, cluster_id: str = "") -> Status | None:
    """The status as the leader has it; None when no controller of this program answers as the leader.

    :param settings: of a controller: whom to ask, and how to log in.
    :param cluster_id: whose leader is meant; by default the cluster of the controller's metadata directory, and where
        there is none, any. At an address of long ago may be another cluster's controller.
    :raises OperatorError: the settings of the login cannot be used.
    """
    return await _ask(settings, STATUS, _status, cluster_id)


async def leaders_gates(settings: Settings, goal: Goal) -> tuple[Gate, ...] | None:
    """Like `leaders_status`: the gates before a goal."""
    return await _ask(settings, _about(goal), _gates)


def _status(said: bytes) -> tuple[str, Status]:
    status = from_proto(Status, pb.Status.FromString(said))
    return status.cluster_id, status


def _gates(said: bytes) -> tuple[str, tuple[Gate, ...]]:
    told = pb.GatesResponse.FromString(said)
    return told.cluster_id, tuple(from_proto(Gate, gate) for gate in told.gates)


def _own_cluster(settings: Settings) -> str:
    """The cluster of the metadata directory; "" where the command runs next to another cluster's directory, or may not
    read it."""
    with suppress(StorageError):
        found = read_meta_properties(settings.metadata_directory)
        return "" if found is None else found.cluster_id
    return ""


async def _ask(settings: Settings, question: str, read: Read[T], cluster_id: str = "") -> T | None:
    """Ask all controllers. A deposed leader may still answer, so of those that can be read, the answer with the highest
    epoch counts."""
    named = [(at.host, at.port) for at in voter_endpoints(settings).values()]
    peers = dict.fromkeys((*named, *settings.bootstrap_servers))
    security = controller_security(settings)
    found = await asyncio.gather(
        *(_ask_one(KafkaClient(*at, CLIENT_ID, security=security), question, read) for at in peers)
    )
    ours = cluster_id or _own_cluster(settings)
    said = [(epoch, each) for epoch, cluster, each in filter(None, found) if not ours or cluster == ours]
    return max(said, key=lambda each: each[0])[1] if said else None


async def _ask_one(client: KafkaClient, question: str, read: Read[T]) -> tuple[int, str, T] | None:
    """One controller's epoch, cluster and answer; None when it does not lead, or gives none that can be read."""
    partition = {"topic_name": METADATA_TOPIC, "partitions": ({"partition_index": 0},)}
    request = build(request_type(DESCRIBE_QUORUM, leader_question.VERSION), topics=(partition,), asks_leader=question)
    try:
        answer: Any = await client.request(request, ASK_SECONDS)
    except (TransportError, PeerError):
        return None
    finally:
        await client.close()
    if answer.error_code is not ErrorCode.none or not answer.leader_says:
        return None
    try:
        ((told,),) = (topic.partitions for topic in answer.topics)
        return told.leader_epoch, *read(answer.leader_says)
    except (DecodeError, ValueError):  # an answer of another release, or not of a controller
        return None
