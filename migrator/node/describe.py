"""DescribeQuorum (API 55, KIP-595, KIP-836), answered by the leader."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.apis.call import Call
from migrator.node.quorum import Quorum, monotonic_ms
from migrator.node.snapshotter import wall_ms
from migrator.raft.progress import ReplicaStatus
from migrator.raft.states import Role
from migrator.wire.raft_codec import METADATA_TOPIC, Endpoint


class QuorumDescriber:
    """Turns the quorum's own view into the response."""

    def __init__(self, quorum: Quorum, endpoints: Mapping[int, Endpoint]) -> None:
        self._quorum = quorum
        self._endpoints = endpoints

    def __call__(self, call: Call) -> Any:
        """kio's response of the request's version."""
        topics = tuple(
            {"topic_name": topic.topic_name, "partitions": tuple(map(self._partition(topic), topic.partitions))}
            for topic in call.body.topics
        )
        nodes = tuple(
            {"node_id": node, "listeners": ({"name": at.listener, "host": at.host, "port": at.port},)}
            for node, at in self._endpoints.items()
        )
        return call.respond(error_code=ErrorCode.none, topics=topics, nodes=nodes)

    def _partition(self, topic: Any) -> Any:
        def describe(partition: Any) -> dict[str, Any]:
            index: int = partition.partition_index
            if topic.topic_name != METADATA_TOPIC or index != 0:
                return _failed(index, ErrorCode.unknown_topic_or_partition)
            if self._quorum.role is not Role.LEADER:
                return _failed(index, ErrorCode.not_leader_or_follower)
            status = self._quorum.status()
            return {
                "partition_index": index,
                "error_code": ErrorCode.none,
                "leader_id": status.leader_id,
                "leader_epoch": status.epoch,
                "high_watermark": status.high_watermark,
                "current_voters": _replicas(status.voters),
                "observers": _replicas(status.observers),
            }

        return describe


def _failed(index: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "leader_id": -1,
        "leader_epoch": 0,
        "high_watermark": -1,
        "current_voters": (),
        "observers": (),
    }


def _replicas(rows: Sequence[ReplicaStatus]) -> tuple[dict[str, Any], ...]:
    since_boot = wall_ms() - monotonic_ms()
    return tuple(
        {
            "replica_id": row.replica_id,
            "replica_directory_id": uuid.UUID(bytes=row.directory_id) if any(row.directory_id) else None,
            "log_end_offset": row.end_offset,
            "last_fetch_timestamp": row.last_fetch_ms + since_boot if row.last_fetch_ms >= 0 else -1,
            "last_caught_up_timestamp": row.last_caught_up_ms + since_boot if row.last_caught_up_ms >= 0 else -1,
        }
        for row in rows
    )
