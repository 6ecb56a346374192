"""What the consensus core's runner needs of a transport; gRPC and the Kafka protocol both give it.

A transport carries the values of `migrator.raft.messages`, one request in flight per peer, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from migrator.errors import MigratorError
from migrator.raft.events import Failure
from migrator.raft.messages import RaftRequest, RaftResponse


class TransportError(MigratorError):
    """No answer: the peer is away, too slow, or what it sent was no answer. The request may have been received.

    :param how: what it tells of the peer's process.
    """

    def __init__(self, message: str, *, how: Failure = Failure.NO_ANSWER) -> None:
        super().__init__(message)
        self.how = how


class UnreachableError(TransportError):
    """No connection to the peer; the request was not sent."""


class WrongVoterError(TransportError):
    """Somebody else proved to be where the peer should be; no other road leads to the peer either."""


class PeerTimeoutError(TransportError):
    """The peer did not answer in time."""


class ForeignClusterError(TransportError):
    """The peer belongs to another cluster."""


class RaftTransport(Protocol):
    """Sends requests to peers by node id."""

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """The peer's answer, which has the type that belongs to the request's.

        :param timeout: seconds for everything, connecting and waiting for the request before included.
        :raises TransportError: there is none.
        """

    async def close(self) -> None:
        """Drop every connection; requests that wait fail with `TransportError`."""


RaftHandler = Callable[[RaftRequest], Awaitable[RaftResponse]]
"""Answers a peer's request; may wait as long as a Fetch asks to be parked. Both transports' servers call it."""
