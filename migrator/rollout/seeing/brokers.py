"""Asks brokers about themselves and about partitions, over Kafka's own protocol.

The observer uses one `BrokerEyes`. A broker that does not answer, or hides a setting, is a fact with a reason, and
never an error. The partitions of a large cluster are read from the bytes of the response without decoding all of it. It
changes nothing.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from migrator.config.keys import CONTROLLERS, FLAG, IBP, PROTOCOLS, ROLES
from migrator.config.settings import Settings
from migrator.errors import MigratorError, PeerError
from migrator.image.model import MetadataImage
from migrator.records.metadata import Endpoint
from migrator.rollout.gates.placements import EXAMPLES_MAX, Placements
from migrator.rollout.plan.modes import SESSION_TIMEOUT
from migrator.rollout.ports import PartitionsSeen, Some
from migrator.seeing.quorum import CLIENT_ID
from migrator.values import value
from migrator.wire.broker_settings import TOPIC, BrokerConfigs, Refused, describe_broker
from migrator.wire.client import KafkaConnection
from migrator.wire.encode import encode_entity
from migrator.wire.listener_settings import broker_security
from migrator.wire.schemas import (
    FETCH,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    VersionRange,
    build,
    request_type,
)

ASK_SECONDS = 4.0
ASKED_AT_ONCE = 32
"""Brokers asked at the same time; the time limit of each begins with its turn."""
MAX_RESPONSE_BYTES = 1 << 29
METADATA_VERSION = 7
MIN_ISR = "min.insync.replicas"
DIGITS_MAX = 10
ASKED_KEYS = (FLAG, ROLES, MIN_ISR, IBP, CONTROLLERS, SESSION_TIMEOUT)
"""Settings in force that a broker is asked for; none is a secret."""
RELEASES: Mapping[tuple[int, int, int], str] = {
    (9, 13, 8): "3.4",
    (9, 15, 8): "3.5",
    (9, 15, 9): "3.6",
    (10, 16, 9): "3.7",
    (11, 16, 9): "3.8",
    (11, 17, 9): "3.9",
}
"""The release by the newest versions of Produce, Fetch and OffsetFetch that a broker serves; the same in both modes."""
INT16, INT32 = struct.Struct(">h"), struct.Struct(">i")
PARTITION = struct.Struct(">iiii")
"""Index, leader, leader epoch, number of replicas."""


@value
class SettingsAnswer:
    """``settings``: None where the broker does not show them (``hidden`` says why), or delays its answer. ``file`` and
    ``dynamic_map``: as in `BrokerSeen`."""

    settings: Mapping[str, str] | None
    release: str
    file: Mapping[str, str | None] | None = None
    hidden: str = ""
    dynamic_map: str = ""


class PartitionSeen(NamedTuple):
    """The state of one partition; ``leader`` is below 0 without one."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@value
class PartitionList:
    """All partitions as one broker knows them. ``frame``: its Metadata response, not decoded, which may have 100 MiB.
    ``reassigning``: partitions under reassignment. ``topics``: those whose ``min.insync.replicas`` matters."""

    frame: bytes | bytearray
    offset: int
    placed: bool
    reassigning: Some
    topics: tuple[str, ...]

    def seen(self, minima: Mapping[str, int], min_isr: int) -> PartitionsSeen:
        """Count the partitions.

        :param minima: ``min.insync.replicas`` of topics that have one of their own.
        :param min_isr: of all other topics.
        """
        found = Placements(placed=self.placed)
        for each in partitions_in(self.frame, self.offset, placed=self.placed):
            found.add(*each, minima.get(each.topic, min_isr))
        return replace(found.seen(self.reassigning), topics=_topics_at(self.frame, self.offset)[0])


class BrokerEyes:
    """Asks brokers.

    :param settings: name the brokers' listener, and how to log in.
    :param placed: whether the places of healthy partitions' replicas are needed, too.
    :param watched: keys of property files that a broker is asked for; none is a secret, or its value is not shown.
    :raises OperatorError: the settings cannot be used.
    """

    def __init__(self, settings: Settings, *, placed: bool = False, watched: Sequence[str] = ()) -> None:
        self.placed = placed
        self._watched = frozenset(watched)
        self._keys = tuple(dict.fromkeys((*ASKED_KEYS, PROTOCOLS, *watched)))
        self._listener = settings.broker_rpc_listener
        self._security = broker_security(settings)
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(self, broker_id: int, endpoints: Sequence[Endpoint]) -> SettingsAnswer | str:
        """A broker's answer about itself, or the reason without one."""
        try:
            async with self._turns, asyncio.timeout(ASK_SECONDS):
                connection = await self._open(endpoints)
                try:
                    found = await describe_broker(connection, broker_id, self._keys)
                    return self._answer(found, _release(connection.apis))
                finally:
                    await connection.close()
        except (MigratorError, TimeoutError) as error:
            return f"broker {broker_id} does not answer: {str(error) or f'not within {ASK_SECONDS:g} s'}"

    def _answer(self, found: BrokerConfigs | Refused | None, release: str) -> SettingsAnswer:
        if not isinstance(found, BrokerConfigs):
            return SettingsAnswer(None, release, hidden="it holds its answer back" if found is None else found.error)
        in_force = {key: text for key, text in found.in_force.items() if key in ASKED_KEYS}
        in_file = {key: text for key, text in found.in_file.items() if key in self._watched}
        return SettingsAnswer(in_force, release, in_file, dynamic_map=found.dynamic.get(PROTOCOLS, ""))

    async def partitions(self, endpoints: Sequence[Endpoint]) -> PartitionList | str:
        """All partitions as one broker knows them, or why it does not tell. The caller bounds the time.

        Reassignments are asked first: a broker that cannot tell them refuses at once, before it has sent the large
        answer.
        """
        try:
            async with asyncio.timeout(ASK_SECONDS):
                connection = await self._open(endpoints)
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    reassigning = await _reassigning(connection)
                return await _listed(connection, reassigning, placed=self.placed)
            finally:
                await connection.close()
        except (MigratorError, TimeoutError) as error:
            return f"no broker says how partitions are: {str(error) or f'not within {ASK_SECONDS:g} s'}"

    async def _open(self, endpoints: Sequence[Endpoint]) -> KafkaConnection:
        at = next((end for end in endpoints if end.name.upper() == self._listener), None)
        if at is None:
            raise PeerError(f"it has no listener {self._listener}")
        return await KafkaConnection.open(at.host, at.port, CLIENT_ID, self._security, MAX_RESPONSE_BYTES)


async def _listed(connection: KafkaConnection, reassigning: Some, *, placed: bool) -> PartitionList:
    request = build(request_type(METADATA, METADATA_VERSION), topics=None, allow_auto_topic_creation=False)
    frame, offset = await connection.request_encoded(METADATA, METADATA_VERSION, encode_entity(request))
    topics = await asyncio.to_thread(
        lambda: sorted({each.topic for each in partitions_in(frame, offset, placed=placed)})
    )
    return PartitionList(frame, offset, placed, reassigning, tuple(topics))


def partitions_in(frame: bytes | bytearray, offset: int, *, placed: bool) -> Iterator[PartitionSeen]:
    """The partitions in a Metadata response without a leader or with replicas out of sync; all, where ``placed``.

    Read by hand: the generic decoder takes about ten times as long, and a cluster may have millions of partitions.

    :raises PeerError: the response is malformed.
    """
    try:
        yield from _partitions_in(frame, offset, placed=placed)
    except (struct.error, UnicodeDecodeError) as error:
        raise PeerError(f"the list of partitions is malformed: {error}") from error


def _partitions_in(frame: bytes | bytearray, offset: int, *, placed: bool) -> Iterator[PartitionSeen]:
    topics, at = _topics_at(frame, offset)
    for _ in range(topics):
        begin = at + 2
        at = _behind_text(frame, begin)
        name, (count,), at = frame[begin + 2 : at], INT32.unpack_from(frame, at + 1), at + 5
        for _ in range(count):
            number, leader, _, replicas = PARTITION.unpack_from(frame, at + 2)
            first = at + 2 + PARTITION.size
            at = first + 4 * max(replicas, 0)
            (in_sync,) = INT32.unpack_from(frame, at)
            second = at + 4
            at = second + 4 * max(in_sync, 0)
            at += 4 + 4 * max(INT32.unpack_from(frame, at)[0], 0)
            if placed or leader < 0 or in_sync < replicas:
                ids = _ids(frame, first, replicas), _ids(frame, second, in_sync)
                yield PartitionSeen(name.decode(), number, leader, *ids)
    if at > len(frame):
        raise struct.error("it ends too early")


def _topics_at(frame: bytes | bytearray, offset: int) -> tuple[int, int]:
    """How many topics there are, and where the first one begins."""
    brokers, at = INT32.unpack_from(frame, offset + 4)[0], offset + 8  # behind the throttle time
    for _ in range(brokers):
        at = _behind_text(frame, _behind_text(frame, at + 4) + 4)  # id, host, port, rack
    at = _behind_text(frame, at) + 4  # cluster id, controller
    return INT32.unpack_from(frame, at)[0], at + 4


def _ids(frame: bytes | bytearray, at: int, count: int) -> tuple[int, ...]:
    if at + 4 * count > len(frame):  # before memory is allocated for them
        raise struct.error("it ends too early")
    return struct.unpack_from(f">{max(count, 0)}i", frame, at)


def _behind_text(frame: bytes | bytearray, at: int) -> int:
    (length,) = INT16.unpack_from(frame, at)
    return int(at + 2 + max(length, 0))


async def _reassigning(connection: KafkaConnection) -> Some:
    """Partitions under reassignment. A broker that is not the controller and does not forward refuses, so the
    controller is asked first."""
    request = build(
        request_type(LIST_PARTITION_REASSIGNMENTS, 0), timeout=dt.timedelta(seconds=ASK_SECONDS), topics=None
    )
    answer = await connection.request(request)
    if answer.error_code is not ErrorCode.none:
        raise PeerError(f"reassignments are unknown: {answer.error_code.name}")
    names = (f"{topic.name}-{each.partition_index}" for topic in answer.topics for each in topic.partitions)
    return Some(sum(len(topic.partitions) for topic in answer.topics), tuple(islice(names, EXAMPLES_MAX)))


def of_image(image: MetadataImage, min_isr: int, *, placed: bool = False) -> PartitionsSeen:
    """The partitions as the quorum has committed them, for the time when the quorum is the controller."""
    minima = {
        resource.name: least
        for resource, keys in image.configs.items()
        if resource.resource_type == TOPIC and (least := own_min_isr(keys))
    }
    found, moving = Placements(placed=placed), Some()
    for topic in image.topics.by_id.values():
        least = minima.get(topic.name, min_isr)
        for number, it in topic.partitions.items():
            if it.adding_replicas or it.removing_replicas:
                moving = Some(moving.count + 1, (*moving.names, f"{topic.name}-{number}")[:EXAMPLES_MAX])
            if placed or it.leader < 0 or len(it.isr) < len(it.replicas):
                found.add(topic.name, number, it.leader, it.replicas, it.isr, least)
    return found.seen(moving)


def own_min_isr(keys: Mapping[str, str]) -> int:
    """A topic's own ``min.insync.replicas``; 0 without one, and for a value that a broker ignores, such as one that a
    person has written into ZooKeeper."""
    text = keys.get(MIN_ISR, "").strip()
    return int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else 0


def _release(apis: Mapping[int, VersionRange]) -> str:
    produce, fetch, offsets = (apis[key].max if key in apis else -1 for key in (PRODUCE, FETCH, OFFSET_FETCH))
    return RELEASES.get((produce, fetch, offsets), "")
