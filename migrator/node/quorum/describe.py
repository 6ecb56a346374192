"""DescribeQuorum (API 55, KIP-595, KIP-836), answered by the leader."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.apis.call import Call
from migrator.clock import monotonic_ms, wall_ms
from migrator.node.quorum.runner import QuorumRunner
from migrator.raft.progress import ReplicaStatus
from migrator.raft.states import Role
from migrator.wire.raft_codec import METADATA_TOPIC, ListenerEndpoint


class QuorumDescriber:
    """Turns the quorum's own view into the response."""

    def __init__(self, quorum: QuorumRunner, endpoints: Mapping[int, ListenerEndpoint]) -> None:
        self._quorum = quorum
        self._endpoints = endpoints

    def __call__(self, call: Call) -> Any:
        """kio's response of the request's version."""
        if not _is_about_metadata(call.body.topics):
            unknown = ErrorCode.unknown_topic_or_partition
            return call.respond(topics=_failed(call.body.topics, unknown, "Only the metadata partition is described."))
        if self._quorum.role is not Role.LEADER:
            return call.respond(topics=_failed(call.body.topics, ErrorCode.not_leader_or_follower, None))
        nodes = tuple(
            {"node_id": node, "listeners": ({"name": at.listener, "host": at.host, "port": at.port},)}
            for node, at in self._endpoints.items()
        )
        status = self._quorum.status()
        partition = {
            "partition_index": 0,
            "leader_id": status.leader_id,
            "leader_epoch": status.epoch,
            "high_watermark": status.high_watermark,
            "current_voters": _replicas(status.voters, with_directories=False),
            "observers": _replicas(status.observers, with_directories=True),
        }
        return call.respond(topics=({"topic_name": METADATA_TOPIC, "partitions": (partition,)},), nodes=nodes)


def _is_about_metadata(topics: Sequence[Any]) -> bool:
    """Whether a request names the metadata partition and nothing else; any other is refused as a whole."""
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


def _replicas(rows: Sequence[ReplicaStatus], *, with_directories: bool) -> tuple[dict[str, Any], ...]:
    """Voters have no directories at kraft.version 0, observers do."""
    since_boot = wall_ms() - monotonic_ms()
    return tuple(
        {
            "replica_id": row.replica_id,
            "replica_directory_id": uuid.UUID(bytes=row.directory_id)
            if with_directories and any(row.directory_id)
            else None,
            "log_end_offset": row.end_offset,
            "last_fetch_timestamp": row.last_fetch_ms + since_boot if row.last_fetch_ms >= 0 else -1,
            "last_caught_up_timestamp": row.last_caught_up_ms + since_boot if row.last_caught_up_ms >= 0 else -1,
        }
        for row in rows
    )
