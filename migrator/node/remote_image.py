"""The committed metadata of a running quorum, read as a client reads it: without joining, without a trace.

Works with our controllers and with stock ones: Fetch and FetchSnapshot with replica id -1. A leader that was elected an
instant ago does not know yet how far the log is committed, and what it has may be older than what its predecessor
committed. It tells a high watermark only once the first record of its own epoch is committed (Kafka's ``LeaderState``),
so an answer counts from there on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from migrator.errors import MigratorError
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.image.replay import replay, replay_snapshot
from migrator.raft.messages import (
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from migrator.records.batch import Batch, iter_batches
from migrator.rpc.transport import RaftTransport, TransportError

NOBODY = -1
MAX_BYTES = 8 * 1024 * 1024
REQUEST_SECONDS = 5.0
REDIRECTS_MAX = 5
"""How often one question follows from node to node before it rests."""
PATIENCE_SECONDS = 10.0
"""How long one look waits for a leader, and for the leader to have committed something in its epoch: both come within
an election or two, unless a majority is away."""
REST_SECONDS = 0.1


class NoAnswerError(MigratorError):
    """Nobody can say what is committed now; the message says why."""


class RemoteImage:
    """One look at a quorum.

    :param transport: reaches the voters, by id.
    :param cluster_id: None reads whichever cluster's it is.
    :param patience_seconds: see `PATIENCE_SECONDS`.
    """

    def __init__(
        self,
        transport: RaftTransport,
        voters: Iterable[int],
        cluster_id: str | None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._transport = transport
        self._voters = tuple(voters)
        self._cluster_id = cluster_id
        self._patience_seconds = patience_seconds
        self._deadline = 0.0
        self._leader = NOBODY
        self._epoch = 0
        self._loader = ImageLoader()

    async def read(self) -> tuple[MetadataImage, int]:
        """The published image at the leader's high watermark, and the leader's id.

        :raises NoAnswerError: no voter answers, none leads, or the one that leads cannot commit anything.
        """
        self._deadline = asyncio.get_running_loop().time() + self._patience_seconds
        offset, epoch = 0, 0
        while True:
            response = await self._fetch(offset, epoch)
            if response.snapshot_id is not None:
                self._loader = await self._snapshot(response.snapshot_id)
                offset, epoch = response.snapshot_id.offset, response.snapshot_id.epoch
                continue
            if response.diverging is not None:  # another leader, without what the one before had not committed
                self._loader = ImageLoader()
                offset, epoch = 0, 0
                continue
            if response.high_watermark < 0:
                await self._rest(f"controller {self._leader} leads, and has not committed anything in its epoch")
                continue
            read_before = offset
            for batch in iter_batches(response.records, partial_tail=True):
                if batch.header.next_offset > response.high_watermark:  # not committed yet, and nobody's business
                    break
                offset, epoch = batch.header.next_offset, batch.header.leader_epoch
                self._append(batch)
                await asyncio.sleep(0)
            if response.high_watermark <= offset:
                return self._loader.published, self._leader
            if offset == read_before:
                await self._rest(f"controller {self._leader} leads, and does not send what it has committed")

    async def _rest(self, why: str) -> None:
        """Before the same question is asked again.

        :raises NoAnswerError: it was asked for long enough.
        """
        if asyncio.get_running_loop().time() >= self._deadline:
            raise NoAnswerError(f"{why} (asked for {self._patience_seconds:g} s)")
        await asyncio.sleep(REST_SECONDS)

    def _append(self, batch: Batch) -> None:
        replay(self._loader, batch)
        if not batch.header.is_control:
            self._loader.commit(batch.header.next_offset)  # or it keeps what it would need to go back, for a while

    async def _fetch(self, offset: int, epoch: int) -> FetchResponse:
        """From the leader, which is found on the way; an election is waited for."""
        while True:
            answered = False
            for _ in range(REDIRECTS_MAX):
                for voter in (self._leader,) if self._leader != NOBODY else self._voters:
                    response = await self._try_fetch(voter, offset, epoch)
                    if response is None:
                        continue
                    answered = True
                    if response.error is ErrorCode.none and response.top_error is ErrorCode.none:
                        self._leader = voter
                        return response
                    if response.leader_id != NOBODY:
                        self._leader, self._epoch = response.leader_id, response.leader_epoch
                        break
                else:
                    self._leader = NOBODY
            if not answered:
                raise NoAnswerError("no other voter answers")
            await self._rest("no voter knows a leader that answers")

    async def _try_fetch(self, voter: int, offset: int, epoch: int) -> FetchResponse | None:
        request = FetchRequest(
            cluster_id=self._cluster_id,
            replica_id=NOBODY,
            leader_epoch=self._epoch,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            max_wait_ms=0,
            max_bytes=MAX_BYTES,
        )
        try:
            response = await self._transport.send(voter, request, REQUEST_SECONDS)
        except TransportError:
            return None
        return response if isinstance(response, FetchResponse) else None

    async def _snapshot(self, snapshot_id: EpochOffset) -> ImageLoader:
        data = bytearray()
        while True:
            request = FetchSnapshotRequest(
                self._cluster_id, NOBODY, self._epoch, snapshot_id, position=len(data), max_bytes=MAX_BYTES
            )
            try:
                response = await self._transport.send(self._leader, request, REQUEST_SECONDS)
            except TransportError as error:
                raise NoAnswerError(f"the leader went away: {error}") from error
            if not isinstance(response, FetchSnapshotResponse) or response.error is not ErrorCode.none:
                raise NoAnswerError("the leader does not give its snapshot")
            data += response.data
            if len(data) >= response.size:
                break
        for image in replay_snapshot(snapshot_id.offset, snapshot_id.epoch, iter_batches(data)):
            if image is not None:
                return ImageLoader(image)
            await asyncio.sleep(0)
        raise NoAnswerError("the leader's snapshot is empty")
