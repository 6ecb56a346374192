"""Consensus over gRPC with our own nodes, and over the Kafka protocol with stock voters in the same quorum.

`transports` makes it with ``migrator.grpc.voters``. A request that one transport could not deliver goes over the other
at once, because a restart may have changed the voter's program.
"""

from __future__ import annotations

import asyncio
import logging

from migrator.raft.events import Failure
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.transport import RaftTransport, UnreachableError
from migrator.rpc.raft_transport import GrpcRaftTransport
from migrator.wire.raft_transport import KafkaRaftTransport

log = logging.getLogger(__name__)


class EitherTransport:
    """A `RaftTransport`: gRPC, unless the peer does not answer there. Any restart of a voter may change its program.

    A request that one of the two could not deliver is sent by the other at once.
    """

    def __init__(self, grpc: GrpcRaftTransport, kafka: KafkaRaftTransport) -> None:
        self.grpc = grpc
        self._kafka = kafka
        self._said: set[int] = set()

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """See `RaftTransport`."""
        deadline = asyncio.get_running_loop().time() + timeout
        first: RaftTransport = self.grpc
        second: RaftTransport = self._kafka
        if self._is_stock(peer):
            first, second = second, first
        try:
            return await first.send(peer, request, timeout)
        except UnreachableError as error:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise
            failed = error
        try:
            response = await second.send(peer, request, left)
        except UnreachableError as error:
            if failed.how is not Failure.NO_ANSWER and error.how is not Failure.CONNECTION_LOST:
                raise failed from None  # this error tells more of the peer's process
            raise
        if second is self._kafka and peer not in self._said:
            self._said.add(peer)
            log.info(
                "Controller %d does not answer over gRPC. It answers over the Kafka protocol, which is used instead",
                peer,
            )
        return response

    def _is_stock(self, peer: int) -> bool:
        """Whether there is a connection over the Kafka protocol, and the peer is not this program."""
        client = self._kafka.client(peer)
        connection = None if client is None else client.connection
        return connection is not None and connection.alive and not connection.features.is_ours

    async def close(self) -> None:
        """See `RaftTransport`."""
        await asyncio.gather(self.grpc.close(), self._kafka.close())
