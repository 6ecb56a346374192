"""LeaderAndIsr, UpdateMetadata and StopReplica in short form, for tests of light brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from migrator.wire.schemas import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, build, request_type

CONTROLLER = 3001
FULL, INCREMENTAL = 2, 1


def topic_id(number: int) -> UUID:
    return UUID(int=(number << 64) + 1)


def state(index: int, leader: int, *, epoch: int = 0, replicas: Sequence[int] = (1, 2, 3)) -> dict[str, Any]:
    """A partition for UpdateMetadata and LeaderAndIsr alike; ISR as the replicas."""
    return {
        "partition_index": index,
        "controller_epoch": 1,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": tuple(replicas),
        "partition_epoch": epoch,
        "zk_version": epoch,
        "replicas": tuple(replicas),
        "offline_replicas": (),
        "adding_replicas": (),
        "removing_replicas": (),
        "is_new": False,
        "leader_recovery_state": 0,
    }


Topics = Mapping[tuple[str, UUID | None], Sequence[dict[str, Any]]]


def update_metadata(topics: Topics, *, kind: int = 0, epoch: int = 1, broker_epoch: int = -1) -> Any:
    return build(
        request_type(UPDATE_METADATA, 8),
        controller_id=CONTROLLER,
        is_k_raft_controller=True,
        type_=kind,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=_states(topics),
        live_brokers=[
            {"id_": 1, "endpoints": [{"port": 1, "host": "h", "listener": "L", "security_protocol": 0}], "rack": None}
        ],
    )


def leader_and_isr(topics: Topics, *, kind: int = INCREMENTAL, epoch: int = 1, broker_epoch: int = -1) -> Any:
    return build(
        request_type(LEADER_AND_ISR, 7),
        controller_id=CONTROLLER,
        is_k_raft_controller=True,
        type_=kind,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=_states(topics),
        live_leaders=[],
    )


def stop_replica(topic: str, index: int, *, leader_epoch: int, delete: bool, epoch: int = 1) -> Any:
    partition = {"partition_index": index, "leader_epoch": leader_epoch, "delete_partition": delete}
    return build(
        request_type(STOP_REPLICA, 4),
        controller_id=CONTROLLER,
        is_k_raft_controller=True,
        controller_epoch=epoch,
        broker_epoch=-1,
        topic_states=[{"topic_name": topic, "partition_states": [partition]}],
    )


def _states(topics: Topics) -> list[dict[str, Any]]:
    return [
        {"topic_name": name, "topic_id": id_, "partition_states": list(partitions)}
        for (name, id_), partitions in topics.items()
    ]
