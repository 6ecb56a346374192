"""Asks a running quorum for its committed log as a client does: without joining, without a trace.

Works with our controllers and with stock ones: Fetch and FetchSnapshot with replica id -1, so that no controller counts
us. A new leader does not know yet how far the log is committed, and its log may end before what its predecessor
committed. A leader tells a high watermark only once the first record of its own epoch is committed (Kafka's
``LeaderState``), so an answer counts from there on. Source: KIP-595, KIP-630, ``KafkaRaftClient``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from kio.schema.errors import ErrorCode

from migrator.errors import MigratorError
from migrator.raft.messages import EpochOffset, FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from migrator.raft.transport import RaftTransport, TransportError

NOBODY = -1
MAX_BYTES = 8 * 1024 * 1024
REQUEST_SECONDS = 5.0
REDIRECTS_MAX = 5
"""How often one question follows from node to node before it rests."""
REST_SECONDS = 0.1
FIRST_PART_BYTES = 64 * 1024
"""Of a snapshot: comes in time on any line of 0.1 Mbit/s."""
PART_GROWTH = 4
"""A part that came in a fifth of the time may be followed by one that is so many times larger."""
SNAPSHOT_BYTES_MAX = 4 * 1024**3
"""A partition takes about 130 bytes, so this is ten times what Kafka's quorums are made for."""
UNKNOWN_SIZE = -1
GONE = (ErrorCode.snapshot_not_found, ErrorCode.position_out_of_range)


class NoAnswerError(MigratorError):
    """Nobody can say what is committed now; the message says why."""


class SnapshotGoneError(NoAnswerError):
    """The leader does not hold that snapshot any more, or another one leads: begin with what the leader names now."""


class Observer:
    """One look at a quorum: finds the leader and follows it.

    :param transport: reaches the controllers, by id.
    :param peers: whom to ask for the leader, in this order.
    :param cluster_id: None reads whichever cluster's it is.
    :param patience_seconds: how long each question waits for a leader that has committed something in its epoch: both
        come within an election or two, unless a majority is away.
    :param fetch_seconds: how long an answer with a part of the log may take; ``request_seconds``, unless it is said. A
        stock leader sends 8 MiB of log, however little is asked for.
    :param gives_up: at once when nobody answers at all; else that is waited for, too.
    :ivar leader: who answered last; `NOBODY` before.
    """

    def __init__(
        self,
        transport: RaftTransport,
        peers: Iterable[int],
        cluster_id: str | None,
        *,
        patience_seconds: float,
        gives_up: bool = False,
        request_seconds: float = REQUEST_SECONDS,
        fetch_seconds: float | None = None,
    ) -> None:
        self._transport = transport
        self._peers = tuple(peers)
        self._cluster_id = cluster_id
        self._patience_seconds = patience_seconds
        self._gives_up = gives_up
        self._request_seconds = request_seconds
        self._fetch_seconds = request_seconds if fetch_seconds is None else fetch_seconds
        self._epoch = 0
        self._last_error = ""
        self.leader = NOBODY

    async def end_offset(self) -> int:
        """The offset behind the last committed record.

        :raises NoAnswerError: as `fetch`.
        """
        return (await self.fetch(0, 0, max_bytes=1)).high_watermark

    async def fetch(self, offset: int, epoch: int, max_bytes: int = MAX_BYTES) -> FetchResponse:
        """The leader's answer, which bears a high watermark; what lies above that is not committed.

        :param epoch: of the record before ``offset``.
        :raises NoAnswerError: no controller answers, none leads, or the one that leads cannot commit anything.
        """
        deadline = self.deadline()
        request = FetchRequest(
            cluster_id=self._cluster_id,
            replica_id=NOBODY,
            leader_epoch=self._epoch,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            max_wait_ms=0,
            max_bytes=max_bytes,
        )
        while True:
            response = await self._ask(request, deadline)
            if not isinstance(response, FetchResponse):
                raise NoAnswerError(f"controller {self.leader} answered a Fetch request with a message of another type")
            if response.high_watermark > 0:
                return response
            await self.rest(f"controller {self.leader} leads, but has not committed anything in its epoch", deadline)

    async def snapshot(
        self, snapshot_id: EpochOffset, position: int = 0, size: int = UNKNOWN_SIZE
    ) -> AsyncIterator[FetchSnapshotResponse]:
        """One leader's snapshot, part by part: that of another controller has the same id, but maybe other bytes.

        Parts are small at first, and become larger while they come quickly: a slow line gets smaller parts, not more
        time.

        :param position: where to begin, if the leader that answered last has sent what is before it.
        :param size: of the snapshot, as it was told then.
        :raises SnapshotGoneError: the leader does not hold that snapshot (any more), or another one leads.
        :raises NoAnswerError: as `fetch`, or what comes is not that snapshot.
        """
        leader, part_bytes, now = self.leader, FIRST_PART_BYTES, asyncio.get_running_loop().time
        while size == UNKNOWN_SIZE or position < size:
            request = FetchSnapshotRequest(self._cluster_id, NOBODY, self._epoch, snapshot_id, position, part_bytes)
            asked_at = now()
            try:
                response = await self._ask(request, self.deadline())
            except SnapshotGoneError:
                raise
            except NoAnswerError:
                if part_bytes == FIRST_PART_BYTES:
                    raise
                part_bytes = FIRST_PART_BYTES  # maybe the line is slower than it was
                continue
            if leader not in (NOBODY, self.leader):
                raise SnapshotGoneError(f"controller {self.leader} leads now, not controller {leader}")
            leader = self.leader
            if not isinstance(response, FetchSnapshotResponse) or not response.data:
                raise NoAnswerError(f"the snapshot of controller {leader} ends at byte {position} of {size}")
            if not _continues(response, position, size):
                raise SnapshotGoneError(
                    f"controller {leader} sends bytes {response.position} to {response.position + len(response.data)} "
                    f"of a snapshot of {response.size}, where byte {position} of {size} is next"
                )
            if now() - asked_at < self._request_seconds / (PART_GROWTH + 1):
                part_bytes = min(part_bytes * PART_GROWTH, MAX_BYTES)
            position, size = position + len(response.data), response.size
            yield response

    def deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._patience_seconds

    async def rest(self, why: str, deadline: float) -> None:
        """Before the same question is asked again.

        :raises NoAnswerError: it was asked for long enough.
        """
        if asyncio.get_running_loop().time() >= deadline:
            raise NoAnswerError(f"{why} (asked for {self._patience_seconds:g} s)")
        await asyncio.sleep(REST_SECONDS)

    async def _ask(
        self, request: FetchRequest | FetchSnapshotRequest, deadline: float
    ) -> FetchResponse | FetchSnapshotResponse:
        """From the leader, which is found on the way; an election is waited for."""
        while True:
            silent: set[int] = set()
            answered = False
            for _ in range(REDIRECTS_MAX):
                for peer in (self.leader,) if self.leader != NOBODY else self._peers:
                    response = await self._try(peer, request)
                    if response is None:
                        silent.add(peer)
                        continue
                    answered = True
                    error = response.error if response.top_error is ErrorCode.none else response.top_error
                    if error is ErrorCode.none:
                        self.leader = peer
                        return response
                    self._last_error = f"controller {peer} answered {error.name}"
                    if error in GONE:
                        raise SnapshotGoneError(self._last_error)
                    if response.leader_id != NOBODY and response.leader_id not in silent:
                        self.leader, self._epoch = response.leader_id, response.leader_epoch
                        break
                else:
                    if self.leader == NOBODY:  # all were asked, and none knows more: it takes time until one does
                        break
                    self.leader = NOBODY
            if not answered and self._gives_up:
                raise NoAnswerError("no other voter answers")
            await self.rest(f"no controller names a leader that answers; last error: {self._last_error}", deadline)

    async def _try(
        self, peer: int, request: FetchRequest | FetchSnapshotRequest
    ) -> FetchResponse | FetchSnapshotResponse | None:
        seconds = self._fetch_seconds if isinstance(request, FetchRequest) else self._request_seconds
        try:
            response = await self._transport.send(peer, replace(request, leader_epoch=self._epoch), seconds)
        except TransportError as error:
            self._last_error = str(error)
            return None
        return response if isinstance(response, FetchResponse | FetchSnapshotResponse) else None


def _continues(part: FetchSnapshotResponse, position: int, size: int) -> bool:
    """Whether this is what is next of a snapshot, whose size never changes."""
    told = part.size if size == UNKNOWN_SIZE else size
    is_next = part.position == position and position + len(part.data) <= told
    return is_next and part.size == told and told <= SNAPSHOT_BYTES_MAX
