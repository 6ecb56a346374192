"""Reads the committed log of a running quorum as a client, without joining it.

It works with controllers of this program and with stock ones: it sends Fetch and FetchSnapshot with replica id -1,
which no controller counts as a replica. A new leader does not know yet which records are committed, and names a high
watermark only after the first record of its own epoch is committed (Kafka's ``LeaderState``). So an answer counts only
with a high watermark. Source: KIP-595, KIP-630, ``KafkaRaftClient``.
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
"""The number of nodes that one request follows to the leader before it pauses."""
REST_SECONDS = 0.1
FIRST_PART_BYTES = 64 * 1024
"""The bytes of a snapshot's first part: it arrives in time on a line of 0.1 Mbit/s."""
PART_GROWTH = 4
"""A part that took at most a fifth of the allowed time is followed by one that is this many times larger."""
SNAPSHOT_BYTES_MAX = 4 * 1024**3
"""The largest snapshot that is read. A partition takes about 130 bytes, so this is ten times the size for which Kafka's
quorums are made."""
UNKNOWN_SIZE = -1
SNAPSHOT_MOVED = (ErrorCode.snapshot_not_found, ErrorCode.position_out_of_range)


class NoAnswerError(MigratorError):
    """No controller can tell now which records are committed. The message has the reason."""


class SnapshotGoneError(NoAnswerError):
    """The leader no longer has that snapshot, or has changed: begin again with the snapshot that the leader names
    now."""


class Observer:
    """Finds the leader of a quorum and reads from it.

    :param transport: reaches the controllers, by id.
    :param peers: the controllers to ask for the leader, in this order.
    :param cluster_id: the expected cluster; None accepts any.
    :param patience_seconds: how long each call waits for a leader that has committed a record of its epoch. That takes
        one or two elections, unless a majority is unreachable.
    :param fetch_seconds: how long an answer with a part of the log may take; ``request_seconds`` by default. A stock
        leader sends 8 MiB of log even when fewer bytes are requested.
    :param gives_up: whether a call fails at once when no controller answers; otherwise it waits for that, too.
    :ivar leader: the controller that answered last; `NOBODY` before the first answer.
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
        """The offset after the last committed record.

        :raises NoAnswerError: as `fetch`.
        """
        return (await self.fetch(0, 0, max_bytes=1)).high_watermark

    async def fetch(self, offset: int, epoch: int, max_bytes: int = MAX_BYTES) -> FetchResponse:
        """The leader's answer, which has a high watermark. Records above it are not committed.

        :param epoch: that of the record before ``offset``.
        :raises NoAnswerError: no controller answers, none leads, or the leader cannot commit a record.
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
        """One leader's snapshot, part by part. The snapshot of another controller with the same id may have other
        bytes.

        Parts are small at first, and become larger while they arrive quickly: a slow line gets smaller parts, not more
        time.

        :param position: where to begin, when the leader that answered last has sent the bytes before it.
        :param size: that of the snapshot, as the leader said then.
        :raises SnapshotGoneError: the leader no longer has that snapshot, or has changed.
        :raises NoAnswerError: as in `fetch`, or the answer is not a part of that snapshot.
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
                part_bytes = FIRST_PART_BYTES  # the connection may have become slower
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
        """Pause before the same request is sent again.

        :raises NoAnswerError: the deadline is over.
        """
        if asyncio.get_running_loop().time() >= deadline:
            raise NoAnswerError(f"{why} (asked for {self._patience_seconds:g} s)")
        await asyncio.sleep(REST_SECONDS)

    async def _ask(
        self, request: FetchRequest | FetchSnapshotRequest, deadline: float
    ) -> FetchResponse | FetchSnapshotResponse:
        """Send a request to the leader. Finds the leader first, and waits for an election if there is none."""
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
                    if error in SNAPSHOT_MOVED:
                        raise SnapshotGoneError(self._last_error)
                    if response.leader_id != NOBODY and response.leader_id not in silent:
                        self.leader, self._epoch = response.leader_id, response.leader_epoch
                        break
                else:
                    if self.leader == NOBODY:  # all controllers were asked, and none knows a leader yet
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
    """Whether this is the next part of the snapshot. The size of a snapshot never changes."""
    told = part.size if size == UNKNOWN_SIZE else size
    is_next = part.position == position and position + len(part.data) <= told
    return is_next and part.size == told and told <= SNAPSHOT_BYTES_MAX
