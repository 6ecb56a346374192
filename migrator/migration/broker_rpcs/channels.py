"""One ordered channel to each broker in ZooKeeper mode: bounded, with retries, and without requests that a newer full
state replaces.

A broker gets its requests strictly one after the other. A request that is not answered is sent again, after 100 ms as
stock controllers do and then less often, for as long as the broker is registered with the same epoch: it may have taken
effect, and every request can be repeated. An UpdateMetadata that goes to several brokers is encoded once.

A fault of one broker (its answers, its registration) concerns only its own channel; `BrokerChannels.troubles` names it.
After an unexpected error the channel backs off, asks for the full state, and begins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.image.model import BrokerRegistration
from migrator.migration.broker_rpcs.receipts import Receipt
from migrator.migration.broker_rpcs.requests import Addressed
from migrator.raft.transport import TransportError
from migrator.records.metadata import Endpoint
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.turns import Turn, give_back, in_turns
from migrator.values import value
from migrator.wire.decode import decode_body
from migrator.wire.legacy.encode import RequestEncoder
from migrator.wire.legacy.messages import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsr,
    LegacyRequest,
    StopReplica,
    UpdateMetadata,
)
from migrator.wire.schemas import response_type

log = logging.getLogger(__name__)

CHANNEL = TaskKind("broker-channel", OnError.RESTART)
CLOSING = TaskKind("broker-channel-closing", OnError.DROP)

RETRY_SECONDS = 0.1
RETRY_MAX_SECONDS = 2.0
LARGE_RETRY_MAX_SECONDS = 60.0
LARGE_BYTES = 50 * 2**20
"""Brokers close the connection at a request above ``socket.request.max.bytes``, 100 MiB by default. A failing request
of half that size or more may be too large: the message says so, and the request is sent again less often."""
REQUEST_SECONDS = 30.0
DECODE_INLINE_BYTES = 64 * 1024
"""A LeaderAndIsr's answer names every partition; a bigger one is decoded in a thread."""
MAX_QUEUED = 2_000
"""The most requests that wait for one broker. A broker that falls further behind gets the full state instead."""

LEADERS = (LeaderAndIsr,)
"""The requests that the closing full state replaces. It names every partition in LeaderAndIsr, but only topics in
UpdateMetadata, so the UpdateMetadata that wait must still arrive."""
EVERYTHING = (LeaderAndIsr, UpdateMetadata)
"""The requests that a new full state for one broker replaces. StopReplica is not among them: a broker moves logs aside
that a full state leaves out, and deletes only logs that a StopReplica names."""


@value
class Answered:
    """A broker's answer. ``partition_errors``: for each error, the (topic name or id, partition) pairs that the broker
    refused."""

    broker_id: int
    request: str
    error: ErrorCode
    partition_errors: Mapping[ErrorCode, int]

    @property
    def refusal(self) -> str:
        """The broker's refusals, in words; empty when it accepted everything."""
        if self.error is ErrorCode.none and not self.partition_errors:
            return ""
        partitions = "".join(f", {error.name} for {count} partitions" for error, count in self.partition_errors.items())
        return f"it answers a {self.request} with {self.error.name}{partitions}"


class Peer(Protocol):
    """The part of a `migrator.wire.client.KafkaClient` that a channel uses."""

    async def request_encoded(self, api_key: int, version: int, body: Any, timeout: float) -> tuple[bytearray, int]: ...
    async def close(self) -> None: ...


Connect = Callable[[int, Endpoint], Peer]
"""Broker id and endpoint -> a client that connects when it is first used."""


class _Body:
    """The part of an UpdateMetadata that is the same for every broker; it is encoded for the first broker that needs
    it."""

    def __init__(self) -> None:
        self.chunks: list[bytes] | None = None


class _Encoding:
    """Encodes one request after the other. If all channels encoded at once, one turn of the event loop would encode a
    request for each broker."""

    def __init__(self, encoder: RequestEncoder) -> None:
        self._encoder = encoder
        self._turn = asyncio.Lock()

    async def encoded(
        self, request: LegacyRequest, body: _Body | None, epoch: int
    ) -> tuple[tuple[int, int], list[bytes]]:
        """API, version and encoded request. If the channel closes meanwhile, the next channel encodes the body."""
        encoder = self._encoder
        async with self._turn:
            match request:
                case UpdateMetadata():
                    body = body or _Body()
                    if body.chunks is None:
                        body.chunks = await _in_slices(encoder.update_metadata_body(request))
                    return UPDATE_METADATA, [encoder.header(epoch), *body.chunks]
                case LeaderAndIsr():
                    return LEADER_AND_ISR, await _in_slices(encoder.leader_and_isr(request, epoch))
                case StopReplica():
                    return STOP_REPLICA, await _in_slices(encoder.stop_replica(request, epoch))


@dataclass(slots=True)
class _Queued:
    request: LegacyRequest
    body: _Body | None = None
    receipt: Receipt | None = None


class BrokerChannels:
    """All channels of one claim. Belongs to one event loop; `close` ends every task.

    :param encoder: encodes requests with this claim's and this leader's epochs.
    :param connect: makes clients.
    :param listener: name of the listener between brokers.
    :param on_answer: is called with every answer that is not a plain success.
    :param on_overflow: is called to plan the full state for a broker whose queue was discarded.
    :param on_failure: is called with an error that must stop the process.
    """

    def __init__(
        self,
        encoder: RequestEncoder,
        connect: Connect,
        listener: str,
        *,
        on_answer: Callable[[Answered], None],
        on_overflow: Callable[[int], None],
        on_failure: OnFailure | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._supervisor = Supervisor(on_failure)
        self._encoding = _Encoding(encoder)
        self._connect = connect
        self._listener = listener
        self._on_answer = on_answer
        self._on_overflow = on_overflow
        self._retry_seconds = retry_seconds
        self._channels: dict[int, _Channel] = {}
        self._leaving: set[_Channel] = set()
        self._unreachable: dict[int, str] = {}

    @property
    def queued(self) -> dict[int, int]:
        """How many requests wait, by broker."""
        return {broker_id: len(channel.queue) for broker_id, channel in self._channels.items()}

    @property
    def troubles(self) -> dict[int, str]:
        """The faults of brokers that cannot be reached, or that refused a request, by id. Metrics read it on
        another thread."""
        return self._unreachable | {
            broker_id: channel.trouble for broker_id, channel in list(self._channels.items()) if channel.trouble
        }

    def registered(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """Take the brokers that are registered now. Requests for a broker that is gone, or has registered anew, are
        dropped."""
        for broker_id, channel in list(self._channels.items()):
            registration = brokers.get(broker_id)
            if registration is None or self._place(registration) != channel.place:
                channel.close()
                del self._channels[broker_id]
                self._leaving.add(channel)
                self._supervisor.spawn(CLOSING, self._left(channel))
        self._unreachable = {}
        for broker_id, registration in brokers.items():
            place = self._place(registration)
            if not registration.is_migrating_zk_broker:
                continue
            if place is None:
                self._unreachable[broker_id] = f"it has registered no listener {self._listener}"
            elif broker_id not in self._channels:
                self._channels[broker_id] = self._open(broker_id, place)

    def send(
        self,
        plan: Iterable[Addressed],
        *,
        replaces: tuple[type[LegacyRequest], ...] = (),
        receipt: Receipt | None = None,
    ) -> None:
        """Queue the requests of a plan, each broker's in order.

        :param replaces: the types of requests that are dropped where they still wait: `LEADERS` or `EVERYTHING`.
        :param receipt: counts the answers.
        """
        bodies: dict[int, _Body] = {}
        for addressed in plan:
            channel = self._channels.get(addressed.broker_id)
            if channel is None or channel.place.broker_epoch != addressed.broker_epoch:
                continue
            channel.drop(replaces)
            for request in addressed.requests:
                body = None
                if isinstance(request, UpdateMetadata):
                    body = bodies.setdefault(id(request), _Body())
                if receipt is not None:
                    receipt.expect()
                channel.put(_Queued(request, body, receipt))
        if receipt is not None:
            receipt.complete()

    async def close(self) -> None:
        """Stop sending; a request that is under way may still arrive."""
        channels = [*self._channels.values(), *self._leaving]
        self._channels.clear()
        for channel in channels:
            channel.close()
        for channel in channels:
            await channel.closed()
        await self._supervisor.close()

    async def _left(self, channel: _Channel) -> None:
        await channel.closed()
        self._leaving.discard(channel)

    def _place(self, registration: BrokerRegistration) -> _Destination | None:
        found = (end for end in registration.listeners if end.name == self._listener)
        endpoint = next(found, None)
        return None if endpoint is None else _Destination(registration.broker_id, registration.epoch, endpoint)

    def _open(self, broker_id: int, place: _Destination) -> _Channel:
        return _Channel(
            place,
            self._connect(broker_id, place.endpoint),
            self._encoding,
            self._on_answer,
            self._everything,
            self._retry_seconds,
            self._supervisor,
        )

    def _everything(self, broker_id: int, why: str) -> None:
        log.warning("Broker %d gets the full state instead of its waiting requests: %s", broker_id, why)
        self._on_overflow(broker_id)


@value
class _Destination:
    broker_id: int
    broker_epoch: int
    endpoint: Endpoint


class _Channel:
    """The queue of one broker, and the task that empties it."""

    def __init__(
        self,
        place: _Destination,
        peer: Peer,
        encoding: _Encoding,
        on_answer: Callable[[Answered], None],
        on_overflow: Callable[[int, str], None],
        retry_seconds: float,
        supervisor: Supervisor,
    ) -> None:
        self.place = place
        self.queue: deque[_Queued] = deque()
        self.trouble = ""
        """Why the broker cannot be reached, or what it refused; empty when all is well."""
        self._peer = peer
        self._encoding = encoding
        self._on_answer = on_answer
        self._on_overflow = on_overflow
        self._retry_seconds = retry_seconds
        self._current: _Queued | None = None
        self._filled = asyncio.Event()
        self._starved = False
        """Whether requests were discarded, so that only the full state helps."""
        name = f"The channel to broker {place.broker_id}"
        self._task = supervisor.keep(CHANNEL, self._run, name, self._begin_anew)

    def put(self, queued: _Queued) -> None:
        """Add a request behind the others."""
        if self._starved:
            return
        if len(self.queue) >= MAX_QUEUED:
            self.queue.clear()
            self._starved = True
            self._on_overflow(self.place.broker_id, f"{MAX_QUEUED} requests waited")
            return
        self.queue.append(queued)
        self._filled.set()

    def drop(self, sorts: tuple[type[LegacyRequest], ...]) -> None:
        """Drop the waiting requests of these types. With `EVERYTHING`, a broker that had missed something begins
        anew."""
        if sorts:
            self._starved = self._starved and sorts != EVERYTHING
            self.queue = deque(queued for queued in self.queue if not isinstance(queued.request, sorts))

    def close(self) -> None:
        """Stop; `closed` waits for it."""
        self._task.cancel()

    async def closed(self) -> None:
        """Wait until the task has ended, and close the connection."""
        await asyncio.gather(self._task, return_exceptions=True)
        await self._peer.close()

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            while self.queue:
                self._current = self.queue.popleft()
                await self._deliver(self._current)
            self._filled.clear()

    def _begin_anew(self, error: Exception) -> None:
        """How the broker would take the remaining requests is unknown now, so it gets the full state, from the image of
        that moment. Deletions stay in the queue: no full state replaces them."""
        self.trouble = f"its request cannot be encoded: {type(error).__name__}: {error}"
        if self._current is not None:
            self.queue.appendleft(self._current)
        self.drop(EVERYTHING)
        self._starved = True
        self._on_overflow(self.place.broker_id, self.trouble)

    async def _deliver(self, queued: _Queued) -> None:
        """Send the request until it is answered: no other request overtakes it."""
        request, epoch = queued.request, self.place.broker_epoch
        (api_key, version), chunks = await self._encoding.encoded(request, queued.body, epoch)
        size = sum(map(len, chunks))
        pause, longest = self._retry_seconds, RETRY_MAX_SECONDS if size < LARGE_BYTES else LARGE_RETRY_MAX_SECONDS
        while True:
            try:
                frame, offset = await self._peer.request_encoded(api_key, version, chunks, REQUEST_SECONDS)
                answered = await self._read(queued.request, response_type(api_key, version), frame, offset)
            except (TransportError, PeerError) as error:
                log.debug("Broker %d: %s; the request is sent again", self.place.broker_id, error)
                self.trouble = f"it does not answer: {error}"
                if size >= LARGE_BYTES:
                    self.trouble += (
                        f"; the {type(queued.request).__name__} has {size} bytes: if the broker's "
                        "socket.request.max.bytes is smaller, raise it and restart the broker"
                    )
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
                continue
            self.trouble = answered.refusal
            if self.trouble:
                self._on_answer(answered)
            elif queued.receipt is not None:
                queued.receipt.answered()
            await forget(chunks)
            return

    async def _read(self, request: LegacyRequest, answer_type: Any, frame: bytearray, offset: int) -> Answered:
        """
        :raises PeerError: the frame does not decode as the answer.
        """

        def read() -> Answered:
            answer = decode_body(answer_type, frame, offset)
            refused = Counter(error for error in _partition_errors(answer) if error is not ErrorCode.none)
            return Answered(self.place.broker_id, type(request).__name__, ErrorCode(answer.error_code), dict(refused))

        return read() if len(frame) <= DECODE_INLINE_BYTES else await asyncio.to_thread(read)


async def _in_slices(parts: Iterable[bytes]) -> list[bytes]:
    """Collect an encoder's parts, and give the event loop a turn between any two."""
    return [part async for part in in_turns(parts)]


async def forget(chunks: list[bytes]) -> None:
    """Free a request that was sent, in turns: 100 MB at once took 100 ms of processor time."""
    turn = Turn()
    while chunks:
        if turn.is_over(size=len(chunks.pop())):
            await give_back()


def _partition_errors(answer: Any) -> Iterable[ErrorCode]:
    """The errors by partition: LeaderAndIsr has them by topic, StopReplica in a list, UpdateMetadata has none."""
    for partition in getattr(answer, "partition_errors", ()):
        yield ErrorCode(partition.error_code)
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partition_errors:
            yield ErrorCode(partition.error_code)
