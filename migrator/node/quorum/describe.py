"""DescribeQuorum (API 55, KIP-595, KIP-836), answered by the leader.

The endpoint calls it after the check of the caller's rights. The rows come from `migrator.raft.progress` at the moment
of the call. The answer has Kafka's form; the leader's answers to this program's own questions are in a field that other
callers do not get (ADR 59).
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.apis.authorization import allows_cluster
from migrator.apis.call import Call
from migrator.clock import monotonic_ms, wall_ms
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.runner import QuorumRunner
from migrator.raft.progress import ReplicaStatus
from migrator.raft.states import Role
from migrator.records.acl_codes import AclOperation
from migrator.records.uuid import Uuid
from migrator.wire.raft_codec import METADATA_TOPIC


class QuorumDescriber:
    """Turns the quorum's own view into the response.

    :param says: answers a question to the leader (ADR 59), for callers that may do what controllers do.
    """

    def __init__(
        self, quorum: QuorumRunner, addresses: Addresses, says: Callable[[str], Awaitable[bytes]] | None = None
    ) -> None:
        self._quorum = quorum
        self._addresses = addresses
        self._says = says

    async def __call__(self, call: Call) -> Any:
        """Answer DescribeQuorum with kio's response in the version of the request."""
        if not _is_about_metadata(call.body.topics):
            unknown = ErrorCode.unknown_topic_or_partition
            return call.respond(
                topics=_failed(call.body.topics, unknown, "This server does not host this topic-partition.")
            )
        if self._quorum.role is not Role.LEADER:
            return call.respond(topics=_failed(call.body.topics, ErrorCode.not_leader_or_follower, None))
        addresses, status = self._addresses, self._quorum.status()
        nodes = tuple(
            {
                "node_id": node,
                "listeners": tuple(
                    {"name": at.listener, "host": at.host, "port": at.port} for at in addresses.endpoints_of(node)
                ),
            }
            for node in sorted(addresses.voter_ids)
        )
        partition = {
            "partition_index": 0,
            "leader_id": status.leader_id,
            "leader_epoch": status.epoch,
            "high_watermark": status.high_watermark,
            "current_voters": _replicas(status.voters, addresses.directory_of),
            "observers": _replicas(status.observers),
        }
        says = await self._answer(call)
        topics = ({"topic_name": METADATA_TOPIC, "partitions": (partition,)},)
        return call.respond(topics=topics, nodes=nodes, leader_says=says)

    async def _answer(self, call: Call) -> bytes:
        """The answer to the question in a request; empty for none, and for a caller without the right to it."""
        question = getattr(call.body, "asks_leader", "")
        if not question or self._says is None or not allows_cluster(call.access, AclOperation.CLUSTER_ACTION):
            return b""
        return await self._says(question)


def _is_about_metadata(topics: Sequence[Any]) -> bool:
    """Whether a request names only the metadata partition; any other request is refused as a whole."""
    named = [(topic.topic_name, partition.partition_index) for topic in topics for partition in topic.partitions]
    return len(topics) == 1 and named == [(METADATA_TOPIC, 0)]


def _failed(topics: Sequence[Any], code: ErrorCode, message: str | None) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "topic_name": topic.topic_name,
            "partitions": tuple(
                {"partition_index": partition.partition_index, "error_code": code, "error_message": message}
                for partition in topic.partitions
            ),
        }
        for topic in topics
    )


def _replicas(
    rows: Sequence[ReplicaStatus], directory_of: Callable[[int], Uuid] | None = None
) -> tuple[dict[str, Any], ...]:
    """The rows of replicas. A voter's directory is from the log, with none at kraft.version 0; an observer's is from
    its fetches."""
    since_boot = wall_ms() - monotonic_ms()

    def directory(row: ReplicaStatus) -> uuid.UUID | None:
        raw = row.directory_id if directory_of is None else directory_of(row.replica_id)
        return uuid.UUID(bytes=raw) if any(raw) else None

    return tuple(
        {
            "replica_id": row.replica_id,
            "replica_directory_id": directory(row),
            "log_end_offset": row.end_offset,
            "last_fetch_timestamp": row.last_fetch_ms + since_boot if row.last_fetch_ms >= 0 else -1,
            "last_caught_up_timestamp": row.last_caught_up_ms + since_boot if row.last_caught_up_ms >= 0 else -1,
        }
        for row in rows
    )
