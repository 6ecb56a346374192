"""The quorum's gRPC service: requests of other controllers of this program to the consensus core.

The server calls `QuorumService`; consensus messages go to the core's runner, everything else to a `QuorumView`. A call
for another cluster is refused. The doorkeeper has already checked that a voter calls. An `InvariantViolation` stops the
process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio

from migrator.errors import InvariantViolation, PeerError
from migrator.image.digest import HASH_BYTES
from migrator.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest
from migrator.raft.transport import RaftHandler
from migrator.rpc.channel import CLUSTER_KEY, metadata_value
from migrator.rpc.codec import from_proto, to_proto
from migrator.rpc.stubs import quorum_pb2, quorum_pb2_grpc
from migrator.values import value
from migrator.wire.raft_codec import ListenerEndpoint


@value
class NodeAddress:
    """The address of a node's gRPC server since its boot at ``boot_ms``, as it said when it knew ``leader_epoch``."""

    node_id: int
    host: str
    port: int
    boot_ms: int
    leader_epoch: int = 0


@value
class ImageDigest:
    """The digest of a node's metadata at the end ``offset`` (exclusive); -1: the node has not reached it. ``digest``:
    see `migrator.image.digest`."""

    offset: int
    digest: int = 0


class QuorumView(Protocol):
    """The port of the service for everything except consensus messages."""

    def advertised(self, address: NodeAddress) -> None:
        """A peer says where it is itself (KIP-642)."""

    def discover(self, known: Sequence[NodeAddress]) -> Sequence[NodeAddress]:
        """Exchange addresses with a peer (KIP-642)."""

    def image_digest(self, offset: int, *, replay: bool) -> ImageDigest:
        """The digest of this node's metadata at an offset that a peer names. The peer asks again until this node has
        reached the offset.

        :param replay: compare the image with a replay of the own log, too.
        """

    def leader_endpoint(self, leader_id: int) -> ListenerEndpoint | None:
        """The address of a leader, if peers must learn it."""

    def told(self, leader_id: int, epoch: int, host: str, port: int) -> None:
        """The leader of an epoch says where it is."""


class QuorumService(quorum_pb2_grpc.QuorumServicer):
    """Serves `migrator.quorum.v1.Quorum`.

    :param handler: the core's runner.
    :param on_violation: called with an `InvariantViolation` inside the handler, so that the process can stop.
    """

    def __init__(
        self,
        cluster_id: str,
        handler: RaftHandler,
        view: QuorumView,
        on_violation: Callable[[InvariantViolation], None] | None = None,
    ) -> None:
        self._cluster_id = cluster_id
        self._handler = handler
        self._view = view
        self._on_violation = on_violation

    def register(self, server: grpc.aio.Server) -> None:
        quorum_pb2_grpc.add_QuorumServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Vote(self, request: Any, context: Any) -> Any:  # noqa: N802 (names of quorum.proto)
        return await self._consensus(request, context)

    async def BeginQuorumEpoch(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._consensus(request, context)

    async def EndQuorumEpoch(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._consensus(request, context)

    async def Fetch(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._consensus(request, context)

    async def FetchSnapshot(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._consensus(request, context)

    async def AdvertiseBroker(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._check_cluster(context)
        self._view.advertised(address_from_proto(request))
        return quorum_pb2.AdvertiseBrokerResponse()

    async def DiscoverBrokers(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._check_cluster(context)
        known = self._view.discover([address_from_proto(address) for address in request.known])
        return quorum_pb2.DiscoverBrokersResponse(known=[address_to_proto(address) for address in known])

    async def ImageDigest(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._check_cluster(context)
        found = self._view.image_digest(request.offset, replay=request.replay)
        digest = found.digest.to_bytes(HASH_BYTES, "big")
        return quorum_pb2.ImageDigestResponse(offset=found.offset, digest=digest)

    async def _consensus(self, proto: Any, context: Any) -> Any:
        await self._check_cluster(context)
        try:
            request = from_proto(proto)
        except PeerError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest) and proto.HasField("leader_endpoint"):
            at = proto.leader_endpoint
            self._view.told(request.leader_id, request.leader_epoch, at.host, at.port)
        try:
            response = await self._handler(request)
            return with_leader_endpoint(to_proto(response), self._view.leader_endpoint(response.leader_id))
        except InvariantViolation as violation:
            if self._on_violation is not None:
                self._on_violation(violation)
            raise

    async def _check_cluster(self, context: Any) -> None:
        theirs = metadata_value(context.invocation_metadata(), CLUSTER_KEY)
        if theirs != self._cluster_id:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this node belongs to another cluster")


def with_leader_endpoint(proto: Any, at: ListenerEndpoint | None) -> Any:
    """The message, which names a leader, with the leader's endpoint in it."""
    if at is not None:
        proto.leader_endpoint.host, proto.leader_endpoint.port = at.host, at.port
    return proto


def address_to_proto(address: NodeAddress) -> Any:
    """`NodeAddress` for the wire."""
    return quorum_pb2.NodeAddress(
        node_id=address.node_id,
        host=address.host,
        port=address.port,
        boot_ms=address.boot_ms,
        leader_epoch=address.leader_epoch,
    )


def address_from_proto(proto: Any) -> NodeAddress:
    """`NodeAddress` from the wire, also from an ``AdvertiseBrokerRequest``."""
    return NodeAddress(proto.node_id, proto.host, proto.port, proto.boot_ms, proto.leader_epoch)
