"""The requests of `messages` as bytes, in slices.

Hundreds of thousands of partitions share a few replica lists, so each list is encoded once. The rest of a partition is
two `struct` calls and a join. A test compares the bytes with kio's writers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator, Sized
from itertools import islice
from typing import Generic, TypeVar

from migrator.image.model import BrokerRegistration, PartitionRegistration
from migrator.turns import Turn
from migrator.wire.encode import unsigned_varint
from migrator.wire.legacy.messages import (
    LeaderAndIsr,
    SendingController,
    StoppedTopic,
    StopReplica,
    TopicPartitions,
    UpdateMetadata,
    UpdateType,
)

MAX_BLOCKS = 65_536

_HEADER = struct.Struct(">i?iq")
_INT32 = struct.Struct(">i").pack
_INT16 = struct.Struct(">h").pack
_STATE = struct.Struct(">iiii").pack
_STOPPED = struct.Struct(">ii??").pack
_NO_TAGS = b"\0"
_NULL = b"\0"

K = TypeVar("K", bound=Hashable)
_Block = Callable[[int, PartitionRegistration], bytes]


class _Blocks(dict[K, bytes], Generic[K]):
    """A cache of encoded parts with a bounded size. A full cache is emptied."""

    def __init__(self, make: Callable[[K], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> bytes:
        if len(self) >= MAX_BLOCKS:
            self.clear()
        block = self[key] = self._make(key)
        return block


_Assignment = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]


class RequestEncoder:
    """Encodes requests, without their headers, for one term of one controller."""

    def __init__(self, controller: SendingController) -> None:
        self._controller = controller
        self._arrays = _Blocks(_int32_array)
        self._assignments: _Blocks[_Assignment] = _Blocks(self._assignment)

    def header(self, broker_epoch: int) -> bytes:
        """The first fields of all three requests. Only these differ between brokers in an UpdateMetadata."""
        controller = self._controller
        return _HEADER.pack(controller.controller_id, True, controller.controller_epoch, broker_epoch)

    def update_metadata_body(self, request: UpdateMetadata) -> Iterator[bytes]:
        """The rest of an UpdateMetadata, which is the same for all brokers."""
        registered = frozenset(broker.broker_id for broker in request.brokers)
        yield from _topics(request.topics, self._update_metadata_block(registered))
        yield b"".join([_length(request.brokers), *map(_live_broker, request.brokers)])
        yield _NO_TAGS if request.type is UpdateType.UNKNOWN else bytes((1, 0, 1, request.type))

    def leader_and_isr(self, request: LeaderAndIsr, broker_epoch: int) -> Iterator[bytes]:
        yield self.header(broker_epoch) + bytes((request.type,))
        yield from _topics(request.topics, self._leader_and_isr_block())
        leaders = [
            _INT32(leader.broker_id) + _string(leader.host) + _INT32(leader.port) + _NO_TAGS
            for leader in request.live_leaders
        ]
        yield b"".join([_length(leaders), *leaders, _NO_TAGS])

    def stop_replica(self, request: StopReplica, broker_epoch: int) -> Iterator[bytes]:
        parts, turn = [self.header(broker_epoch), _length(request.topics)], Turn()
        for topic in request.topics:
            parts.append(_stopped_topic(topic))
            if turn.is_over(1 + len(topic.partitions)):
                yield b"".join(parts)
                parts = []
        yield b"".join([*parts, _NO_TAGS])

    def _update_metadata_block(self, registered: frozenset[int]) -> _Block:
        kraft_epoch, arrays = self._controller.kraft_epoch, self._arrays

        def placed(replicas: tuple[int, ...]) -> bytes:
            offline = tuple(replica for replica in replicas if replica not in registered)
            return arrays[replicas] + arrays[offline] + _NO_TAGS

        places = _Blocks(placed)

        def block(number: int, state: PartitionRegistration) -> bytes:
            return (
                _STATE(number, kraft_epoch, state.leader, state.leader_epoch)
                + arrays[state.isr]
                + _INT32(state.partition_epoch)
                + places[state.replicas]
            )

        return block

    def _leader_and_isr_block(self) -> _Block:
        kraft_epoch, arrays, assignments = self._controller.kraft_epoch, self._arrays, self._assignments

        def block(number: int, state: PartitionRegistration) -> bytes:
            return (
                _STATE(number, kraft_epoch, state.leader, state.leader_epoch)
                + arrays[state.isr]
                + _INT32(state.partition_epoch)
                + assignments[state.replicas, state.adding_replicas, state.removing_replicas, state.recovering]
            )

        return block

    def _assignment(self, key: _Assignment) -> bytes:
        replicas, adding, removing, recovering = key
        arrays = self._arrays
        is_new = 1  # a broker without the log creates it; stock controllers in migration send the same
        return arrays[replicas] + arrays[adding] + arrays[removing] + bytes((is_new, recovering)) + _NO_TAGS


def _topics(topics: tuple[TopicPartitions, ...], block: _Block) -> Iterator[bytes]:
    """The encoded topics, in slices that each take one turn of the event loop."""
    parts, turn = [_length(topics)], Turn()
    for topic in topics:
        parts.append(_string(topic.topic.name) + topic.topic.topic_id + unsigned_varint(len(topic) + 1))
        states = iter(topic.states())
        while part := list(islice(states, turn.records_left)):
            parts.extend([block(number, state) for number, state in part])
            if turn.is_over(len(part)):
                yield b"".join(parts)
                parts = []
        parts.append(_NO_TAGS)
        if turn.is_over():
            yield b"".join(parts)
            parts = []
    yield b"".join(parts)


def _stopped_topic(topic: StoppedTopic) -> bytes:
    partitions = [
        _STOPPED(stopped.number, stopped.leader_epoch, stopped.delete, False)  # the last byte: no tagged fields
        for stopped in topic.partitions
    ]
    return b"".join([_string(topic.name), _length(partitions), *partitions, _NO_TAGS])


def _live_broker(broker: BrokerRegistration) -> bytes:
    endpoints = [
        _INT32(end.port) + _string(end.host) + _string(end.name) + _INT16(end.security_protocol) + _NO_TAGS
        for end in broker.listeners
    ]
    rack = _NULL if broker.rack is None else _string(broker.rack)
    return b"".join([_INT32(broker.broker_id), _length(endpoints), *endpoints, rack, _NO_TAGS])


def _string(text: str) -> bytes:
    raw = text.encode()
    return unsigned_varint(len(raw) + 1) + raw


def _length(items: Sized) -> bytes:
    return unsigned_varint(len(items) + 1)


def _int32_array(values: tuple[int, ...]) -> bytes:
    return unsigned_varint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)
