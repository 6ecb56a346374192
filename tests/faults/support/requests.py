"""Changes that a client asks the controllers for."""

from __future__ import annotations

import datetime as dt
from typing import Any

from migrator.drill.controller_channel import ControllerChannel
from migrator.wire.schemas import build, request_type

CREATE_TOPICS, ALLOCATE_PRODUCER_IDS = (19, 7), (67, 0)
REQUEST_SECONDS = 20.0


async def create_topic(channel: ControllerChannel, name: str, partitions: int = 2, replicas: int = 2) -> Any:
    """The error code of a topic's creation."""
    topic = {"name": name, "num_partitions": partitions, "replication_factor": replicas, "configs": []}
    request = build(request_type(*CREATE_TOPICS), topics=[topic], timeout=dt.timedelta(seconds=REQUEST_SECONDS))
    answer = await channel.request(request, timeout_seconds=REQUEST_SECONDS)
    return answer.topics[0].error_code


async def allocate_producer_ids(channel: ControllerChannel, broker_id: int, broker_epoch: int) -> Any:
    """The whole answer for a broker's next block."""
    request = build(request_type(*ALLOCATE_PRODUCER_IDS), broker_id=broker_id, broker_epoch=broker_epoch)
    return await channel.request(request, timeout_seconds=REQUEST_SECONDS)
