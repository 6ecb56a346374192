"""Asking brokers how they know partitions."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.errors import PeerError
from migrator.preflight.lost_states import Partition, Reported
from migrator.wire.client import KafkaConnection
from migrator.wire.schemas import METADATA, build, request_type

VERSION_WITH_EPOCHS = 7
"""Of Metadata: the first that names leader epochs; every broker from 2.1 has it."""


async def ask_partitions(connection: KafkaConnection, topics: Iterable[str]) -> dict[Partition, Reported]:
    """What one broker has in its metadata cache of the partitions of some topics; those that it does not know are left
    out.

    :raises MigratorError: the broker does not answer, or has no such request.
    """
    names = sorted(set(topics))
    if not names:
        return {}
    if VERSION_WITH_EPOCHS not in connection.apis.get(METADATA, ()):
        raise PeerError("it does not answer Metadata requests with leader epochs")
    request = build(
        request_type(METADATA, VERSION_WITH_EPOCHS),
        topics=tuple({"name": name} for name in names),
        allow_auto_topic_creation=False,
    )
    answer = await connection.request(request)
    return {
        (topic.name, it.partition_index): Reported(it.leader_id, it.leader_epoch, tuple(it.isr_nodes))
        for topic in answer.topics
        for it in topic.partitions
    }
