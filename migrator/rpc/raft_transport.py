"""Sends the consensus core's messages over gRPC, to other controllers of this program.

`migrator.node.quorum.transports` makes one `GrpcRaftTransport`. It has one connection and one request in flight for
each peer. The peer's certificate must belong to that voter. A failure is a `TransportError`; after an
`UnreachableError` the caller may use Kafka's protocol. An address that was silent is left alone for some seconds, so
that requests do not wait for it again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio

from migrator.clock import wall_time
from migrator.errors import OperatorError, PeerError
from migrator.raft.events import Failure
from migrator.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, RaftRequest, RaftResponse
from migrator.raft.transport import (
    ForeignClusterError,
    PeerTimeoutError,
    TransportError,
    UnreachableError,
    WrongVoterError,
)
from migrator.rpc.channel import CLUSTER_KEY
from migrator.rpc.codec import REQUESTS, from_proto, to_proto
from migrator.rpc.quorum_service import (
    ImageDigest,
    NodeAddress,
    address_from_proto,
    address_to_proto,
    with_leader_endpoint,
)
from migrator.rpc.stubs import quorum_pb2, quorum_pb2_grpc
from migrator.rpc.tls import Connect, Stamp, TlsFiles, WrongNameError, WrongPeerError, connect
from migrator.values import value
from migrator.wire.frames import nobody_listens
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import Told, ignore

log = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
SILENT_AFTER_SECONDS = 0.5
"""An address that has not answered for this long is not tried for a while: each request would wait that long before it
takes the other transport, and requests of the quorum end after two seconds."""
LEFT_ALONE_SECONDS = 10.0
"""The time for which an address that does not answer is not tried again."""

LINKS_MAX = 100
"""Beyond, the one that was used least recently is closed."""
REMEMBERED_REASONS = 20
"""Why one peer did not answer; a refusal has another text for each call."""

Call = Callable[..., Any]

_METHODS = {request: request.__name__.removesuffix("Request") for request in REQUESTS}


@value
class PeerAddress:
    """A voter: its ``host:port``, and the principals that its certificate may have."""

    address: str
    principals: frozenset[str]


class _Link:
    """The connection to one peer, who has proved to be that peer; one request at a time."""

    def __init__(self, peer: int, at: PeerAddress, tls: TlsFiles, connect: Connect) -> None:
        self._peer = peer
        self.at = at
        self._tls = tls
        self._connect = connect
        self._stamp: Stamp | None = None
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None
        self._until = datetime.max.replace(tzinfo=UTC)
        self._not_before = 0.0
        self.lock = asyncio.Lock()

    async def stub(self, seconds: float) -> Any:
        """Connects if there is no connection, if our certificate was replaced, or if one of both certificates has
        expired.

        :param seconds: until the request is of no use; some are left for another way to the peer.
        :raises UnreachableError: no server with a certificate of our CA answers at the address.
        :raises WrongVoterError: the server there has the certificate of another node.
        """
        if wall_time() > self._until:
            await self.drop()
        stamp = self._tls.stamp()
        if self._channel is not None and (stamp == self._stamp or not self._is_usable(stamp)):
            return self._stub
        await self.drop()
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before:
            raise UnreachableError(f"node {self._peer}: {self.at.address} did not answer a moment ago")
        patience = min(CONNECT_SECONDS, seconds / 2)
        try:
            async with asyncio.timeout(patience):
                connection = await self._connect(self.at.address, self._tls, self.at.principals)
        except TimeoutError as error:
            if patience >= SILENT_AFTER_SECONDS:
                self._not_before = loop.time() + LEFT_ALONE_SECONDS
            raise UnreachableError(f"node {self._peer}: {self.at.address} does not answer") from error
        except WrongNameError as error:
            raise WrongVoterError(f"node {self._peer}: {error}") from error
        except OSError as error:
            how = Failure.REFUSED if nobody_listens(error) else Failure.NO_ANSWER
            raise UnreachableError(f"node {self._peer}: {error}", how=how) from error
        except (WrongPeerError, OperatorError) as error:
            raise UnreachableError(f"node {self._peer}: {error}") from error
        self._channel, self._until = connection.channel, connection.until
        self._stamp = stamp
        self._stub = quorum_pb2_grpc.QuorumStub(self._channel)  # type: ignore[no-untyped-call]
        return self._stub

    @property
    def is_connected(self) -> bool:
        """Whether a connection has proved, at least once, to come from that peer."""
        return self._channel is not None

    def _is_usable(self, stamp: Stamp | None) -> bool:
        """Whether the changed files may take the place of those that the connection was made with."""
        try:
            self._tls.renewed()
        except OperatorError as error:
            log.warning("The gRPC connection to node %d stays as it was: %s", self._peer, error)
            self._stamp = stamp
            return False
        return True

    async def drop(self) -> None:
        """Hang up; the peer may come back with another certificate, and the next call looks."""
        channel, self._channel = self._channel, None
        self._until = datetime.max.replace(tzinfo=UTC)
        if channel is not None:
            await channel.close()


class GrpcRaftTransport:
    """A `RaftTransport`: one channel and one request in flight per peer.

    :param cluster_id: ours; a peer of another cluster is refused.
    :param find: where a peer is now.
    :param told: called with the leader endpoints that peers name.
    :param own_endpoint: our controller listener, if voters must learn it when we lead.
    """

    def __init__(
        self,
        cluster_id: str,
        find: Callable[[int], PeerAddress | None],
        tls: TlsFiles,
        *,
        told: Told = ignore,
        own_endpoint: Callable[[], ListenerEndpoint | None] = lambda: None,
        connect: Connect = connect,
    ) -> None:
        self._metadata = ((CLUSTER_KEY, cluster_id),)
        self._find = find
        self._tls = tls
        self._tell_leader = told
        self._own_endpoint = own_endpoint
        self._connect = connect
        self._links: dict[int, _Link] = {}
        """The least recently used first."""
        self._deadlines: dict[asyncio.Timeout, None] = {}
        """The deadlines of the calls in progress, in the order in which they began."""
        self._closed = False
        self._said: dict[int, set[str]] = {}

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """See `RaftTransport`."""
        proto = to_proto(request)
        if isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            with_leader_endpoint(proto, self._own_endpoint())
        response = await self._call(peer, _METHODS[type(request)], proto, timeout)
        try:
            answer: RaftResponse = from_proto(response)
        except PeerError as error:
            raise TransportError(f"node {peer}: {error}") from error
        if response.HasField("leader_endpoint"):
            at = response.leader_endpoint
            self._tell_leader(answer.leader_id, answer.leader_epoch, at.host, at.port)
        return answer

    async def advertise(self, peer: int, own: NodeAddress, timeout: float) -> None:
        """Tell a peer where we are.

        :raises TransportError: no answer.
        """
        request = quorum_pb2.AdvertiseBrokerRequest(
            node_id=own.node_id, host=own.host, port=own.port, boot_ms=own.boot_ms, leader_epoch=own.leader_epoch
        )
        await self._call(peer, "AdvertiseBroker", request, timeout)

    async def discover(self, peer: int, known: Sequence[NodeAddress], timeout: float) -> tuple[NodeAddress, ...]:
        """Exchange known addresses with a peer.

        :raises TransportError: no answer.
        """
        request = quorum_pb2.DiscoverBrokersRequest(known=[address_to_proto(address) for address in known])
        answer = await self._call(peer, "DiscoverBrokers", request, timeout)
        return tuple(address_from_proto(address) for address in answer.known)

    async def image_digest(self, peer: int, offset: int, *, replay: bool, timeout: float) -> ImageDigest:
        """The digest of a peer's metadata at an offset.

        :raises TransportError: no answer; a controller of an earlier release, or of Kafka, knows no such call.
        """
        request = quorum_pb2.ImageDigestRequest(offset=offset, replay=replay)
        answer = await self._call(peer, "ImageDigest", request, timeout)
        return ImageDigest(answer.offset, int.from_bytes(answer.digest, "big"))

    async def close(self) -> None:
        """See `RaftTransport`."""
        self._closed = True
        for deadline in self._deadlines:
            deadline.reschedule(0)
        await asyncio.gather(*(link.drop() for link in self._links.values()))

    async def _call(self, peer: int, method: str, request: Any, timeout: float) -> Any:
        if self._closed:
            raise TransportError("the transport is closed")
        link = await self._link(peer)
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                self._deadlines[deadline] = None
                async with link.lock:
                    return await self._ask(peer, link, method, request, deadline)
        except TimeoutError as error:
            if self._closed:
                raise TransportError("the transport is closed") from None
            raise PeerTimeoutError(f"node {peer} did not answer within {timeout} s") from error
        except (UnreachableError, WrongVoterError) as error:
            self._tell(peer, str(error))
            raise
        finally:
            self._deadlines.pop(deadline, None)

    async def _link(self, peer: int) -> _Link:
        """The connection to a peer at its present address; one to an earlier address is dropped.

        :raises UnreachableError: its address is unknown.
        """
        at, link = self._find(peer), self._links.pop(peer, None)
        if at is not None and link is not None and link.at == at:
            self._links[peer] = link
            return link
        if at is not None:
            found = self._links[peer] = _Link(peer, at, self._tls, self._connect)
        if link is not None:
            await link.drop()
        if at is None:
            raise UnreachableError(f"node {peer} has no known address")
        if len(self._links) > LINKS_MAX:
            await self._links.pop(next(iter(self._links))).drop()
        return found

    async def _ask(self, peer: int, link: _Link, method: str, request: Any, deadline: asyncio.Timeout) -> Any:
        was_connected = link.is_connected
        try:
            return await self._ask_once(peer, link, method, request, deadline)
        except UnreachableError as error:
            if not was_connected:
                raise
            is_lost = error.how is Failure.CONNECTION_LOST
        # The connection was lost: the peer is away or has a new certificate, or another node is at its address now.
        try:
            return await self._ask_once(peer, link, method, request, deadline)
        except UnreachableError as error:
            error.how = Failure.CONNECTION_LOST if is_lost else error.how
            raise

    async def _ask_once(self, peer: int, link: _Link, method: str, request: Any, deadline: asyncio.Timeout) -> Any:
        try:
            stub = await link.stub(_left(deadline))
            call: Call = getattr(stub, method)
            answer = await call(request, timeout=max(_left(deadline), 0.001), metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            refusal = _translate(peer, error)
            if isinstance(refusal, UnreachableError):
                await link.drop()
            elif error.code() is grpc.StatusCode.PERMISSION_DENIED:
                self._tell(peer, str(refusal))
            raise refusal from error
        except asyncio.CancelledError:
            # gRPC cancels all calls of a closed channel, although no code here has cancelled them.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise TransportError("the transport is closed") from None
        except grpc.aio.UsageError as error:
            raise TransportError("the transport is closed") from error
        self._said.pop(peer, None)
        return answer

    def _tell(self, peer: int, why: str) -> None:
        """Log each reason once: an unreachable peer is asked again and again."""
        said = self._said.setdefault(peer, set())
        if why not in said:
            if len(said) >= REMEMBERED_REASONS:
                said.clear()
            said.add(why)
            log.warning("No gRPC with %s", why)


def _left(deadline: asyncio.Timeout) -> float:
    return (deadline.when() or 0.0) - asyncio.get_running_loop().time()


def _translate(peer: int, error: grpc.aio.AioRpcError) -> TransportError:
    text = f"node {peer}: {error.details() or error.code().name}"
    if error.code() is grpc.StatusCode.UNAVAILABLE:  # the peer that is called has proved its identity before
        return UnreachableError(text, how=Failure.CONNECTION_LOST)
    kinds = {
        grpc.StatusCode.DEADLINE_EXCEEDED: PeerTimeoutError,
        grpc.StatusCode.FAILED_PRECONDITION: ForeignClusterError,
    }
    return kinds.get(error.code(), TransportError)(text)
