"""The interface between the runner of the consensus core and a transport. gRPC and the Kafka protocol both implement
it.

A transport carries the values of `migrator.raft.messages`, with one request in flight per peer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from migrator.errors import MigratorError
from migrator.raft.events import Failure
from migrator.raft.messages import RaftRequest, RaftResponse


class TransportError(MigratorError):
    """No usable answer came: the peer is unreachable or too slow, or its answer cannot be read. The request may have
    arrived.

    :param how: the kind of failure, which shows whether the peer's process lives.
    """

    def __init__(self, message: str, *, how: Failure = Failure.NO_ANSWER) -> None:
        super().__init__(message)
        self.how = how


class UnreachableError(TransportError):
    """No connection to the peer; the request was not sent."""


class WrongVoterError(TransportError):
    """Another node answered at the peer's address, and proved its identity; the other transport does not reach the peer
    either."""


class PeerTimeoutError(TransportError):
    """The peer did not answer in time."""


class ForeignClusterError(TransportError):
    """The peer belongs to another cluster."""


class RaftTransport(Protocol):
    """Sends requests to peers by node id."""

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """The peer's response, of the type that answers this request.

        :param timeout: seconds for the whole call, including connecting and waiting for the request before it.
        :raises TransportError: no usable answer came.
        """

    async def close(self) -> None:
        """Drop every connection. Requests that wait fail with `TransportError`."""


RaftHandler = Callable[[RaftRequest], Awaitable[RaftResponse]]
"""Answers a peer's request; may wait as long as a Fetch asks to be parked. Both transports' servers call it."""
