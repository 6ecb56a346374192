"""Ids, epochs and names of an attacked node that get a message past the first check."""

from __future__ import annotations

import uuid
from typing import Any, Final

from migrator.apis.fields import uuid_out
from migrator.node.core import NodeCore
from migrator.raft.config import EPOCH_LIMIT, OFFSET_LIMIT
from migrator.records.uuid import METADATA_TOPIC_ID
from tests.hostile.values import Hints
from tests.node.support.cluster import CLUSTER_ID

METADATA_TOPIC: Final = uuid.UUID(bytes=METADATA_TOPIC_ID)
INCARNATIONS: Final = {broker: uuid.UUID(int=1_000 + broker) for broker in (1, 2, 3)}
DIRECTORIES: Final = {broker: uuid.UUID(int=2_000 + broker) for broker in (1, 2, 3)}
CONFIGS: Final = (
    "retention.ms",
    "cleanup.policy",
    "min.insync.replicas",
    "follower.replication.throttled.replicas",
    "log.cleaner.threads",
    "interval.ms",
    "match",
    "metrics",
)
_PARTITIONS: Final = (0, 0, 0, 1, 5)
_FIXED: Final[Hints] = {
    "cluster_id": (CLUSTER_ID,),
    "type_": ("User",),
    "principal_type": ("User",),
    "owner_principal_type": ("User",),
    "principal": ("User:alice", "User:*"),
    "resource_name": ("topic-0", "1", "", "kafka-cluster", "alice"),
    "resource_type": (0, 2, 4, 8, 16, 32),
    "resource_type_filter": (1, 2, 3),
    "pattern_type_filter": (1, 2, 3, 4),
    "resource_pattern_type": (3, 4),
    "operation": (1, 2, 3, 7),
    "permission_type": (1, 2, 3),
    "host": ("*", "localhost", "::1"),
    "port": (9092,),
    "security_protocol": (0, 0, 1, 2, 3),
    "listeners": (),
    "feature": ("metadata.version", "kraft.version"),
    "min_supported_version": (0, 1),
    "max_supported_version": (1, 21),
    "max_version_level": (14, 21, 22),
    "upgrade_type": (1, 2, 3),
    "entity_type": ("user", "client-id", "ip"),
    "entity_name": ("alice", "127.0.0.1"),
    "key": ("producer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"),
    "mechanism": (1, 2, "PLAIN", "SCRAM-SHA-256"),
    "iterations": (4096, 16384),
    "config_operation": (0, 1, 2, 3),
    "configuration_keys": CONFIGS,
    "value": ("1", "compact", "1:2", "*", "client_id=a.*", "client_id=" + "(" * 2_000),
    "replication_factor": (-1, 1, 2),
    "num_partitions": (-1, 1, 3),
    "count": (2, 3, 10_001),
    "election_type": (0, 1),
    "endpoint_type": (1, 2),
    "broker_ids": (1, 2, 3),
    "replicas": (1, 2, 3),
    "new_isr": (1, 2, 3),
    "max_wait": (0, 1, 500),
    "max_wait_ms": (0, 1, 500),
    "max_bytes": (0, 1, 1024, 8 << 20),
    "timeout": (1_000,),
}


def hints_of(core: NodeCore) -> Hints:
    """By field name, of requests and answers alike."""
    image, epoch, log = core.metadata.image, core.quorum.epoch, core.storage.log
    end = log.end_offset()
    brokers = image.cluster.brokers
    names = tuple(sorted(image.topics.ids)[:5]) or ("topic-0",)
    topics: tuple[Any, ...] = tuple(uuid_out(topic) for topic in list(image.topics.by_id)[:5])
    epochs = (epoch, epoch, epoch, epoch + 1, epoch - 1, EPOCH_LIMIT - 2, EPOCH_LIMIT)
    offsets = (end, end, end - 1, 0, core.quorum.high_watermark, OFFSET_LIMIT)
    fields: dict[str, Any] = dict(_FIXED)
    fields |= dict.fromkeys(("broker_id", "node_id"), tuple(brokers) or (1,))
    fields |= dict.fromkeys(
        ("voter_id", "candidate_id", "leader_id", "replica_id", "preferred_successors"), (1, 2, 3, -1)
    )
    fields |= dict.fromkeys(("broker_epoch",), tuple(broker.epoch for broker in brokers.values()) or (0,))
    fields |= dict.fromkeys(("candidate_epoch", "leader_epoch", "current_leader_epoch", "epoch"), epochs)
    fields |= dict.fromkeys(("last_offset_epoch", "last_fetched_epoch", "last_epoch"), (log.last_epoch(), 0, epoch))
    fields |= dict.fromkeys(
        ("last_offset", "fetch_offset", "end_offset", "offset", "high_watermark", "current_metadata_offset"), offsets
    )
    fields |= dict.fromkeys(("topic_name", "topic", "name", "topic_names"), ("__cluster_metadata", *names, *CONFIGS))
    fields |= dict.fromkeys(("topic_id",), (METADATA_TOPIC, *topics))
    fields |= dict.fromkeys(("partition_index", "partition", "index", "partitions"), _PARTITIONS)
    fields |= dict.fromkeys(("partition_epoch",), (0, 1, 2))
    fields |= dict.fromkeys(("incarnation_id",), tuple(INCARNATIONS.values()))
    fields |= dict.fromkeys(("log_dirs", "offline_log_dirs", "id_"), tuple(DIRECTORIES.values()))
    return fields
