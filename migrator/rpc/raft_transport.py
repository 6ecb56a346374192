"""The consensus core's messages over gRPC, to our own nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from migrator.errors import PeerError
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.rpc.channel import CLUSTER_KEY, TlsFiles, open_channel
from migrator.rpc.codec import REQUESTS, from_proto, to_proto
from migrator.rpc.quorum_service import (
    NodeAddress,
    QuorumDescription,
    ReplicaProgress,
    address_from_proto,
    address_to_proto,
)
from migrator.rpc.stubs import quorum_pb2, quorum_pb2_grpc
from migrator.rpc.transport import ForeignClusterError, PeerTimeoutError, TransportError, UnreachableError

Call = Callable[..., Any]

_METHODS = {request: request.__name__.removesuffix("Request") for request in REQUESTS}


class GrpcRaftTransport:
    """A `RaftTransport`: one channel and one request in flight per peer.

    :param cluster_id: ours; a peer of another cluster is refused.
    :param peers: node id -> ``host:port``.
    """

    def __init__(self, cluster_id: str, peers: Mapping[int, str], tls: TlsFiles | None = None) -> None:
        self._metadata = ((CLUSTER_KEY, cluster_id),)
        self._channels = {peer: open_channel(address, tls) for peer, address in peers.items()}
        self._stubs = {
            peer: quorum_pb2_grpc.QuorumStub(channel)  # type: ignore[no-untyped-call]
            for peer, channel in self._channels.items()
        }
        self._locks = {peer: asyncio.Lock() for peer in peers}

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """See `RaftTransport`."""
        response = await self._call(peer, _METHODS[type(request)], to_proto(request), timeout)
        try:
            answer: RaftResponse = from_proto(response)
        except PeerError as error:
            raise TransportError(f"node {peer}: {error}") from error
        return answer

    async def describe(self, peer: int, timeout: float) -> QuorumDescription:
        """The quorum as a peer sees it.

        :raises TransportError: no answer.
        """
        answer = await self._call(peer, "DescribeQuorum", quorum_pb2.DescribeQuorumRequest(), timeout)
        return QuorumDescription(
            answer.leader_id,
            answer.leader_epoch,
            answer.high_watermark,
            tuple(_replica(replica) for replica in answer.voters),
            tuple(_replica(replica) for replica in answer.observers),
        )

    async def discover(self, peer: int, known: Sequence[NodeAddress], timeout: float) -> tuple[NodeAddress, ...]:
        """Tell a peer what we know of addresses, learn what it knows.

        :raises TransportError: no answer.
        """
        request = quorum_pb2.DiscoverBrokersRequest(known=[address_to_proto(address) for address in known])
        answer = await self._call(peer, "DiscoverBrokers", request, timeout)
        return tuple(address_from_proto(address) for address in answer.known)

    async def close(self) -> None:
        """See `RaftTransport`."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def _call(self, peer: int, method: str, request: Any, timeout: float) -> Any:
        if peer not in self._stubs:
            raise UnreachableError(f"node {peer} has no known address")
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline), self._locks[peer]:
                left = deadline - asyncio.get_running_loop().time()
                call: Call = getattr(self._stubs[peer], method)
                return await call(request, timeout=max(left, 0.001), metadata=self._metadata)
        except TimeoutError as error:
            raise PeerTimeoutError(f"node {peer} did not answer within {timeout} s") from error
        except grpc.aio.AioRpcError as error:
            raise _translate(peer, error) from error
        except asyncio.CancelledError:
            # gRPC cancels the calls of a channel that is closed, which nobody has cancelled here.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise TransportError("the transport is closed") from None
        except grpc.aio.UsageError as error:
            raise TransportError("the transport is closed") from error


def _translate(peer: int, error: grpc.aio.AioRpcError) -> TransportError:
    text = f"node {peer}: {error.details() or error.code().name}"
    kinds = {
        grpc.StatusCode.UNAVAILABLE: UnreachableError,
        grpc.StatusCode.DEADLINE_EXCEEDED: PeerTimeoutError,
        grpc.StatusCode.FAILED_PRECONDITION: ForeignClusterError,
    }
    return kinds.get(error.code(), TransportError)(text)


def _replica(proto: Any) -> ReplicaProgress:
    return ReplicaProgress(proto.node_id, proto.log_end_offset, proto.last_fetch_ms, proto.last_caught_up_ms)
