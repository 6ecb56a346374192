"""Fetches the metadata log of a running quorum as an observer, with Fetch and FetchSnapshot. The quorum is not changed.

The fetched log is written to a directory in Kafka's format, a snapshot and one segment, up to a committed offset. The
requests have no replica id, so no controller counts us. Source: KIP-595, KIP-630, ``KafkaRaftClient``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from migrator.config.endpoints import parse_host_port
from migrator.config.load import load_settings
from migrator.errors import OperatorError, PeerError
from migrator.log.errors import storage_errors
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.segment import segment_name
from migrator.log.snapshots import SUFFIX, snapshot_name
from migrator.raft.messages import EpochOffset, FetchResponse
from migrator.records.batch import iter_headers
from migrator.records.errors import CorruptRecordsError
from migrator.values import value
from migrator.wire.listener_settings import controller_security
from migrator.wire.observer import NoAnswerError, Observer
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport
from migrator.wire.security import PLAINTEXT, ListenerSecurity

T = TypeVar("T")

REQUEST_SECONDS = 15.0
LEADER_SECONDS = 30.0
"""How many seconds to look for a leader, each time that there is none."""
TOTAL_SECONDS = 600.0

NODE_ID = -1
"""The replica id of a client that is no node."""
KNOWN_MAX = 100
"""The most controllers that are remembered, however many peers name."""
FIRST_UNKNOWN = -2
"""Controllers that are known only by address get this id and lower ones."""
_ADDRESSES = re.compile(r"[^/\s,]+:\d+(,[^/\s,]+:\d+)*")

Address = tuple[str, int]


def is_address(metadata: str) -> bool:
    """Whether ``metadata`` names running controllers, and not a directory."""
    return _ADDRESSES.fullmatch(metadata) is not None and not Path(metadata).exists()


@value
class Reached:
    """How far fetching has come: the next offset, the epoch before it, and the first offset of the segment."""

    offset: int
    epoch: int
    segment: int


BEGIN = Reached(0, 0, 0)


@value
class Observed:
    """A running quorum: some of its controllers, how to log in there, and how long to look for a leader.

    ``peers``: by node id, or by an id from `FIRST_UNKNOWN` on downwards.
    """

    peers: Mapping[int, Address]
    security: ListenerSecurity = PLAINTEXT
    patience_seconds: float = LEADER_SECONDS

    def end_offset(self) -> int:
        """The offset after the last committed record.

        :raises OperatorError: no leader answers.
        """
        return self._run(lambda observer: observer.end_offset())

    def fetch(self, directory: Path, until: int | None = None, start: Reached = BEGIN) -> Reached:
        """Fetch into a metadata directory, from where an earlier fetch into it ended.

        :param until: the last offset that is needed; None for everything that is committed now.
        :raises OperatorError: no leader answers, or its log does not have that offset.
        """
        return self._run(lambda observer: _fetch(observer, directory, until, start))

    def _run(self, work: Callable[[Observer], Awaitable[T]]) -> T:
        async def run() -> T:
            endpoints = {peer: ListenerEndpoint("", host, port) for peer, (host, port) in self.peers.items()}
            known = dict(endpoints)

            def told(node_id: int, _epoch: int, host: str, port: int) -> None:
                if len(known) < KNOWN_MAX:
                    known.setdefault(node_id, ListenerEndpoint("", host, port))

            transport = KafkaRaftTransport(NODE_ID, known.get, told=told, security=self.security)
            observer = Observer(
                transport, endpoints, None, patience_seconds=self.patience_seconds, request_seconds=REQUEST_SECONDS
            )
            try:
                async with asyncio.timeout(TOTAL_SECONDS):
                    return await work(observer)
            finally:
                await transport.close()

        try:
            return asyncio.run(run())
        except TimeoutError as error:
            raise self._error(f"the log was not fetched within {TOTAL_SECONDS:g} s") from error
        except NoAnswerError as error:
            raise self._error(f"no leader answered: {error}") from error
        except (PeerError, CorruptRecordsError) as error:
            raise self._error(f"the log could not be fetched: {error}") from error

    def _error(self, what: str) -> OperatorError:
        where = ",".join(f"{host}:{port}" for host, port in self.peers.values())
        remedy = "Give the listeners of all controllers with --metadata, and with -c a property file for TLS and SASL"
        return OperatorError(what, where=where, remedy=remedy)


def by_address(addresses: Iterable[Address]) -> dict[int, Address]:
    """The peers at some addresses, whose node ids are unknown."""
    return {FIRST_UNKNOWN - number: address for number, address in enumerate(dict.fromkeys(addresses))}


def observed(controllers: str, config: str | None) -> Observed:
    """The quorum of ``host:port[,host:port...]`` and of a controller's property file, whose controllers are asked, too.

    :raises OperatorError: an address or the file is not valid.
    """
    try:
        addresses = [parse_host_port(one) for one in controllers.split(",")]
    except ValueError as error:
        raise OperatorError(str(error), where=controllers, remedy="Write HOST:PORT[,HOST:PORT]") from error
    if config is None:
        return Observed(by_address(addresses))
    settings, _ = load_settings(Path(config))
    voters = {voter.voter_id: (voter.host, voter.port) for voter in settings.voters}
    more = (*addresses, *settings.bootstrap_servers)
    others = by_address(address for address in more if address not in voters.values())
    return Observed({**others, **voters}, controller_security(settings))


async def _fetch(observer: Observer, directory: Path, until: int | None, start: Reached) -> Reached:
    """Fetch the observed log into files."""
    folder = directory / DIRECTORY_NAME
    with storage_errors("cannot write", folder):
        folder.mkdir(parents=True, exist_ok=True)
    end = await observer.end_offset() if until is None else until + 1
    offset, epoch, segment = start.offset, start.epoch, start.segment
    response = await observer.fetch(offset, epoch)
    if response.snapshot_id is not None and start == BEGIN:
        await _fetch_snapshot(observer, folder, response.snapshot_id)
        offset, epoch = response.snapshot_id.offset, response.snapshot_id.epoch
        segment = offset
        response = await observer.fetch(offset, epoch)
    with storage_errors("cannot write", folder), (folder / segment_name(segment)).open("ab") as file:
        while True:
            if response.snapshot_id is not None or response.diverging is not None:
                raise PeerError(f"the leader does not hold offset {offset} any more: try again")
            offset, epoch = _append(file.write, response, offset, epoch)
            if offset >= end:
                return Reached(offset, epoch, segment)
            response = await observer.fetch(offset, epoch)


async def _fetch_snapshot(observer: Observer, folder: Path, snapshot_id: EpochOffset) -> None:
    path = folder / f"{snapshot_name(snapshot_id)}{SUFFIX}"
    with storage_errors("cannot write", folder), path.open("wb") as file:
        async for part in observer.snapshot(snapshot_id):
            file.write(part.data)


def _append(write: Callable[[bytes], object], response: FetchResponse, offset: int, epoch: int) -> tuple[int, int]:
    """Write the whole committed batches of a response; return the next offset and the epoch before it."""
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
