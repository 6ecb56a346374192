"""What the leader says of itself and of the migration, over the Kafka listener: for controllers without gRPC (ADR 59).

The question and the answer are tagged fields of DescribeQuorum (`migrator.wire.leader_question`). The caller logs in as
a controller does, and needs ClusterAction of the cluster; to any other caller the leader answers as Kafka's does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError
from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.errors import OperatorError, PeerError
from migrator.observe.status import Gate, Goal, Status
from migrator.raft.transport import TransportError
from migrator.rpc.operator_codec import gate_from_proto, gate_to_proto, status_from_proto, status_to_proto
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


def answering(source: StatusSource) -> Callable[[str], Awaitable[bytes]]:
    """The leader's part: the answer to a question; empty when the question is unknown, or nothing can be said."""

    async def answer(question: str) -> bytes:
        if question == STATUS:
            status: bytes = status_to_proto(source.status()).SerializeToString()
            return status
        goal = next((goal for goal in Goal if question == _about(goal)), None)
        if goal is None:
            return b""
        try:
            gates = await source.gates(goal)
        except OperatorError:
            return b""
        said: bytes = pb.GatesResponse(gates=[gate_to_proto(gate) for gate in gates]).SerializeToString()
        return said

    return answer


def _about(goal: Goal) -> str:
    return f"gates {goal}"


async def leaders_status(settings: Settings, cluster_id: str = "") -> Status | None:
    """The status as the leader has it; None when no controller of this program answers as the leader.

    :param settings: of a controller: whom to ask, and how to log in.
    :param cluster_id: whose leader is meant; "" unknown. At an address of long ago may be another cluster's controller.
    :raises OperatorError: the settings of the login cannot be used.
    """

    def read(said: bytes) -> Status | None:
        status = status_from_proto(pb.Status.FromString(said))
        return None if cluster_id and status.cluster_id != cluster_id else status

    return await _ask(settings, STATUS, read)


async def leaders_gates(settings: Settings, goal: Goal) -> tuple[Gate, ...] | None:
    """As `leaders_status`: the gates before a goal."""
    return await _ask(
        settings, _about(goal), lambda said: tuple(map(gate_from_proto, pb.GatesResponse.FromString(said).gates))
    )


async def _ask(settings: Settings, question: str, read: Callable[[bytes], T | None]) -> T | None:
    """Ask all controllers. A deposed leader may still answer, so of those that can be read, the answer with the highest
    epoch counts."""
    named = [(at.host, at.port) for at in voter_endpoints(settings).values()]
    peers = dict.fromkeys((*named, *settings.bootstrap_servers))
    security = controller_security(settings)
    found = await asyncio.gather(
        *(_ask_one(KafkaClient(*at, CLIENT_ID, security=security), question, read) for at in peers)
    )
    said = [each for each in found if each is not None]
    return max(said, key=lambda each: each[0])[1] if said else None


async def _ask_one(client: KafkaClient, question: str, read: Callable[[bytes], T | None]) -> tuple[int, T] | None:
    """One controller's epoch and answer; None when it does not lead, or gives none that can be read."""
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
        said = read(answer.leader_says)
    except (DecodeError, ValueError):  # of another release, or of no controller
        return None
    return None if said is None else (told.leader_epoch, said)
