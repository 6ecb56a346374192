"""Fetches the metadata log of a running quorum, as an observer does: Fetch and FetchSnapshot, nothing is written.

What is fetched lands in a directory of Kafka's own format, a snapshot and one segment, up to a committed offset.
We name no replica id, so that no controller counts us. Source: KIP-595, KIP-630, ``KafkaRaftClient``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode
from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_delay, wait_random_exponential

from migrator.config.endpoints import parse_host_port
from migrator.config.load import load_settings
from migrator.errors import MigratorError, OperatorError, PeerError
from migrator.log.errors import storage_errors
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.segment import segment_name
from migrator.log.snapshots import SUFFIX, snapshot_name
from migrator.raft.messages import EpochOffset, FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from migrator.records.batch import iter_headers
from migrator.records.errors import CorruptRecordsError
from migrator.rpc.transport import TransportError
from migrator.values import value
from migrator.wire.client import KafkaClient
from migrator.wire.raft_codec import RAFT_APIS, decode_raft_response, encode_raft_request
from migrator.wire.security import PLAINTEXT, ListenerSecurity

T = TypeVar("T")

NO_REPLICA = -1
CLIENT_ID = "migrator-verify"
REQUEST_SECONDS = 15.0
LEADER_SECONDS = 30.0
"""How long to look for a leader, each time that there is none."""
TOTAL_SECONDS = 600.0
PART_BYTES = 8 * 1024 * 1024
MAX_WAIT_MS = 500
POLL_SECONDS = 0.1

Address = tuple[str, int]


@value
class Reached:
    """How far a fetching came: the next offset, the epoch before it, and the offset that the segment begins with."""

    offset: int
    epoch: int
    segment: int


BEGIN = Reached(0, 0, 0)


class _NoLeaderError(MigratorError):
    """The one that we asked does not lead, or leads another epoch by now."""


@value
class Observed:
    """A running quorum: addresses of some of its controllers, and how to log in there."""

    addresses: Sequence[Address]
    security: ListenerSecurity = PLAINTEXT

    def end_offset(self) -> int:
        """The offset behind the last committed record.

        :raises OperatorError: no leader answers.
        """
        return self._run(lambda observer: observer.end_offset())

    def fetch(self, directory: Path, until: int | None = None, start: Reached = BEGIN) -> Reached:
        """Fetch into a metadata directory, on from where an earlier fetch into it came to.

        :param until: the last offset that is needed; None for what is committed now.
        :raises OperatorError: no leader answers, or it does not hold that.
        """
        return self._run(lambda observer: observer.fetch(directory, until, start))

    def _run(self, work: Callable[[_Observer], Awaitable[T]]) -> T:
        async def run() -> T:
            observer = _Observer(self)
            try:
                async with asyncio.timeout(TOTAL_SECONDS):
                    return await work(observer)
            finally:
                await observer.close()

        try:
            return asyncio.run(run())
        except TimeoutError as error:
            raise self._error(f"the log was not fetched within {TOTAL_SECONDS:g} s") from error
        except RetryError as error:
            raise self._error(f"no leader answered: {error.last_attempt.exception()}") from error
        except (PeerError, TransportError, CorruptRecordsError) as error:
            raise self._error(f"the log could not be fetched: {error}") from error

    def _error(self, what: str) -> OperatorError:
        where = ",".join(f"{host}:{port}" for host, port in self.addresses)
        remedy = "Name the controllers' listeners, all of them if need be, and with -c a property file for TLS and SASL"
        return OperatorError(what, where=where, remedy=remedy)


def observed(controllers: str, config: str | None) -> Observed:
    """From ``host:port[,host:port...]`` and a controller's property file, whose voters are asked as well.

    :raises OperatorError: either is not in order.
    """
    try:
        addresses = [parse_host_port(one) for one in controllers.split(",")]
    except ValueError as error:
        raise OperatorError(str(error), where=controllers, remedy="Write HOST:PORT[,HOST:PORT]") from error
    if config is None:
        return Observed(addresses)
    from migrator.node.transports import controller_security  # noqa: PLC0415 - needs gRPC, which Spark's workers may lack

    settings, _ = load_settings(Path(config))
    voters = [(voter.host, voter.port) for voter in settings.voters]
    return Observed(list(dict.fromkeys([*addresses, *voters])), controller_security(settings))


class _Observer:
    """One fetching: knows who leads, and in which epoch."""

    def __init__(self, quorum: Observed) -> None:
        self._quorum = quorum
        self._clients: dict[Address, KafkaClient] = {}
        self._candidates = list(quorum.addresses)
        self._epoch = 0

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def end_offset(self) -> int:
        """The high watermark, which a new leader does not know before it has committed something in its own epoch.

        :raises PeerError: it has not in time.
        """
        deadline = time.monotonic() + LEADER_SECONDS
        while True:
            response = await self._fetch(0, 0, 1)
            if response.high_watermark > 0:
                return response.high_watermark
            if time.monotonic() > deadline:
                raise PeerError(f"the leader committed nothing in epoch {self._epoch} for {LEADER_SECONDS:g} s")
            await asyncio.sleep(POLL_SECONDS)  # a leader that has records, but knows no high watermark, answers at once

    async def fetch(self, directory: Path, until: int | None, start: Reached) -> Reached:
        """See `Observed.fetch`."""
        folder = directory / DIRECTORY_NAME
        with storage_errors("cannot write", folder):
            folder.mkdir(parents=True, exist_ok=True)
        end = await self.end_offset() if until is None else until + 1
        offset, epoch, segment = start.offset, start.epoch, start.segment
        response = await self._fetch(offset, epoch)
        if response.snapshot_id is not None and start == BEGIN:
            await self._fetch_snapshot(folder, response.snapshot_id)
            offset, epoch = response.snapshot_id.offset, response.snapshot_id.epoch
            segment = offset
            response = await self._fetch(offset, epoch)
        with storage_errors("cannot write", folder), (folder / segment_name(segment)).open("ab") as file:
            while True:
                if response.snapshot_id is not None or response.diverging is not None:
                    raise PeerError(f"the leader does not hold offset {offset} any more: try again")
                offset, epoch = _append(file.write, response, offset, epoch)
                if offset >= end:
                    return Reached(offset, epoch, segment)
                response = await self._fetch(offset, epoch)

    async def _fetch_snapshot(self, folder: Path, snapshot_id: EpochOffset) -> None:
        position, size = 0, 1
        with (
            storage_errors("cannot write", folder),
            (folder / f"{snapshot_name(snapshot_id)}{SUFFIX}").open("wb") as file,
        ):
            while position < size:
                request = FetchSnapshotRequest(None, NO_REPLICA, self._epoch, snapshot_id, position, PART_BYTES)
                response = await self._ask(request)
                if not isinstance(response, FetchSnapshotResponse) or not response.data:
                    raise PeerError(f"the snapshot ends at byte {position} of {size}")
                file.write(response.data)
                position, size = position + len(response.data), response.size

    async def _fetch(self, offset: int, epoch: int, max_bytes: int = PART_BYTES) -> FetchResponse:
        request = FetchRequest(None, NO_REPLICA, self._epoch, offset, epoch, MAX_WAIT_MS, max_bytes)
        response = await self._ask(request)
        if not isinstance(response, FetchResponse):
            raise PeerError("the answer to a fetch is something else")
        return response

    async def _ask(self, request: FetchRequest | FetchSnapshotRequest) -> FetchResponse | FetchSnapshotResponse:
        """The leader's answer; looks for the leader where need be."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((_NoLeaderError, TransportError)),
            stop=stop_after_delay(LEADER_SECONDS),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
        )
        async for attempt in retrying:
            with attempt:
                response: FetchResponse | FetchSnapshotResponse = await self._ask_once(request)
                return response
        raise AssertionError("unreachable")

    async def _ask_once(self, request: FetchRequest | FetchSnapshotRequest) -> Any:
        request = replace(request, leader_epoch=self._epoch)
        address = self._candidates[0]
        try:
            body = await self._send(address, request)
        except TransportError:
            self._candidates.append(self._candidates.pop(0))
            raise
        response = decode_raft_response(body)
        error = response.top_error if response.top_error != ErrorCode.none else response.error
        if error == ErrorCode.none:
            return response
        self._epoch = max(self._epoch, response.leader_epoch)
        if error not in _MOVED:
            raise PeerError(f"{address[0]}:{address[1]} answered {error.name}")
        if error == ErrorCode.not_leader_or_follower:
            self._candidates.append(self._candidates.pop(0))
            for node in getattr(body, "node_endpoints", ()):
                if node.node_id == response.leader_id:
                    self._candidates.insert(0, (node.host, node.port))
        raise _NoLeaderError(f"{address[0]}:{address[1]} answered {error.name}")

    async def _send(self, address: Address, request: Any) -> Any:
        client = self._clients.get(address)
        if client is None:
            client = KafkaClient(*address, CLIENT_ID, security=self._quorum.security)
            self._clients[address] = client
        api_key, ours = RAFT_APIS[type(request)]
        version = await client.highest_version(api_key, ours, REQUEST_SECONDS)
        return await client.request(encode_raft_request(request, version), REQUEST_SECONDS)


_MOVED = frozenset(
    {ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch}
)  # fmt: skip


def _append(write: Callable[[bytes], object], response: FetchResponse, offset: int, epoch: int) -> tuple[int, int]:
    """Writes the whole batches of a response that are committed; gives the next offset and the epoch before it."""
    position = 0
    records = memoryview(response.records)
    for header in iter_headers(records, partial_tail=True):
        if header.next_offset > response.high_watermark:
            break
        if header.base_offset != offset:
            raise PeerError(f"a batch of offset {header.base_offset} came instead of {offset}")
        position += header.size
        offset, epoch = header.next_offset, header.leader_epoch
    write(bytes(records[:position]))
    return offset, epoch
