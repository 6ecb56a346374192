"""Follows the metadata log for a broker in KRaft mode, which so learns its partitions.

Source: ``BrokerMetadataPublisher``. A light broker reads the log as a client does; no controller counts it as a
replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from migrator.drill.light.metadata_cache import CachedPartition, MetadataCache
from migrator.drill.light.replicas import HostedReplicas, LightReplica
from migrator.image.model import MetadataImage
from migrator.wire.observer import Observer
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport
from migrator.wire.remote_image import RemoteImage
from migrator.wire.security import ListenerSecurity

NODE_ID = -1
"""We are no replica."""
PATIENCE_SECONDS = 2.0


class LogFollower:
    """
    :param controllers: host and port of each listener.
    :param security: the security of the connections.
    """

    def __init__(self, controllers: Sequence[tuple[str, int]], security: ListenerSecurity) -> None:
        asked = {-2 - number: ListenerEndpoint("", host, port) for number, (host, port) in enumerate(controllers)}
        known = dict(asked)

        def told(node_id: int, _epoch: int, host: str, port: int) -> None:
            known[node_id] = ListenerEndpoint("", host, port)

        self._transport = KafkaRaftTransport(NODE_ID, known.get, told=told, security=security)
        self._observer = Observer(self._transport, tuple(asked), None, patience_seconds=PATIENCE_SECONDS)
        self._image = RemoteImage()

    async def advance(self) -> MetadataImage:
        """Read everything that is committed.

        :raises NoAnswerError: there is no leader, or no controller answers.
        """
        return await self._image.advance(self._observer)

    async def close(self) -> None:
        """End connections."""
        await self._transport.close()


def take_over(image: MetadataImage, broker_id: int, cache: MetadataCache, replicas: HostedReplicas) -> None:
    """Bring a broker's cache and replicas to the committed image."""
    registered = image.cluster.brokers
    serving = {broker for broker, each in registered.items() if not each.fenced and not each.in_controlled_shutdown}
    cache.topics = {}
    hosted = {}
    for topic in image.topics.by_id.values():
        topic_id = UUID(bytes=topic.topic_id)
        cache.topics[topic.name] = known = {}
        for number, it in topic.partitions.items():
            offline = tuple(replica for replica in it.replicas if replica not in serving)
            known[number] = CachedPartition(
                it.leader, it.leader_epoch, tuple(it.isr), it.partition_epoch, tuple(it.replicas), offline
            )
            if broker_id in it.replicas:
                replicas.logs[topic.name, number] = topic_id
                hosted[topic.name, number] = LightReplica(
                    topic_id, it.leader, it.leader_epoch, it.partition_epoch, tuple(it.isr), tuple(it.replicas)
                )
    replicas.hosted = hosted
