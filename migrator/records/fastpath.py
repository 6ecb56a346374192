"""Hand-written readers and writers of the four record types that make up a copy, which has millions of them.

They do the same as the generic codec (a property test compares them), without a call per field. Rare cases use the
generic codec: unusual lengths, tagged fields of partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Any

from migrator.records import metadata as m
from migrator.records.primitives import (
    Reader,
    Writer,
    decode_ids,
    decode_uuids,
    encode_ids,
    encode_uuids,
    encode_uvarint,
    read_ids,
    read_string,
    remembered,
    write_string,
    write_uuid,
)
from migrator.records.schema import compiled
from migrator.records.specs import SPECS
from migrator.records.uuid import Uuid

_LAYOUT = {spec.record_type: spec.struct for spec in SPECS}
_ID_AND_TOPIC = Struct(">i16s")
_EPOCHS = Struct(">iii")
_INT32 = Struct(">i")
_TAG_LEADER = b"\x01\x04"
_TAG_RECOVERY = b"\x05\x01"
_DIRECTORIES_SINCE = 1
_TWO_EMPTY = b"\x01\x01"
_ONE_BYTE_LENGTHS = range(1, 0x80)


def _topic_writer(head: bytes, _version: int) -> Writer:
    def write(record: m.TopicRecord) -> bytes:
        return b"".join((head, write_string(record.name), write_uuid(record.topic_id), b"\0"))

    return write


def _topic_reader(_version: int) -> Reader:
    generic = compiled(_LAYOUT[m.TopicRecord], 0).read

    def read(buffer: bytes, start: int) -> tuple[m.TopicRecord, int]:
        name, position = read_string(buffer, start)
        end = position + 16
        if buffer[end] != 0:
            return generic(buffer, start)
        return m.TopicRecord(name, Uuid(buffer[position:end])), end + 1

    return read


def _config_writer(head: bytes, _version: int) -> Writer:
    int8 = Struct(">b").pack

    def write(record: m.ConfigRecord) -> bytes:
        content = b"\0" if record.value is None else write_string(record.value)
        name = write_string(record.resource_name)
        return b"".join((head, int8(record.resource_type), name, write_string(record.name), content, b"\0"))

    return write


def _config_reader(_version: int) -> Reader:
    generic = compiled(_LAYOUT[m.ConfigRecord], 0).read

    def read(buffer: bytes, start: int) -> tuple[m.ConfigRecord, int]:
        resource_type = buffer[start]
        resource, position = read_string(buffer, start + 1)
        name, position = read_string(buffer, position)
        if buffer[position] == 0:
            content, position = None, position + 1
        else:
            content, position = read_string(buffer, position)
        if buffer[position] != 0 or resource_type > 127:
            return generic(buffer, start)
        return m.ConfigRecord(resource_type, resource, name, content), position + 1

    return read


def _partition_writer(head: bytes, version: int) -> Writer:
    generic = compiled(_LAYOUT[m.PartitionRecord], version).write
    pack_start, pack_epochs = _ID_AND_TOPIC.pack, _EPOCHS.pack

    def write(record: m.PartitionRecord) -> bytes:
        usual = (
            record.leader_recovery_state == 0
            and record.eligible_leader_replicas is None
            and record.last_known_elr is None
            and (version >= _DIRECTORIES_SINCE or not record.directories)
            and len(record.topic_id) == 16
        )
        if not usual:
            return head + generic(record)
        return b"".join(
            (
                head,
                pack_start(record.partition_id, record.topic_id),
                encode_ids(record.replicas),
                encode_ids(record.isr),
                encode_ids(record.removing_replicas),
                encode_ids(record.adding_replicas),
                pack_epochs(record.leader, record.leader_epoch, record.partition_epoch),
                encode_uuids(record.directories) if version >= _DIRECTORIES_SINCE else b"",
                b"\0",
            )
        )

    return write


def _short_ids(buffer: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Like `read_ids`, but without its checks when the length is a single byte: an incomplete list moves the position
    past the end of the buffer, and the caller checks that."""
    length = buffer[position]
    if length not in _ONE_BYTE_LENGTHS:
        return read_ids(buffer, position)
    end = position + 4 * length - 3
    return decode_ids(buffer[position + 1 : end]), end


def _usual_partition(replicas: int, isr: int, version: int) -> Struct:
    """A partition without a reassignment, by the bytes that give the lengths of its lists."""
    directories = f"B{16 * replicas - 16}s" if version >= _DIRECTORIES_SINCE else "0s0s"
    return Struct(f">i16sx{4 * replicas - 4}sx{4 * isr - 4}s2siii{directories}B")


def _partition_reader(version: int) -> Reader:
    generic = compiled(_LAYOUT[m.PartitionRecord], version).read
    build, layouts = m.PartitionRecord, dict[int, tuple[Callable[..., tuple[Any, ...]], int]]()

    def read(buffer: bytes, start: int) -> tuple[m.PartitionRecord, int]:
        count = buffer[start + 20]
        isr_count = buffer[start + 17 + 4 * count]
        layout = layouts.get(count << 8 | isr_count)
        if layout is None:
            if not (count in _ONE_BYTE_LENGTHS and isr_count in _ONE_BYTE_LENGTHS):
                return generic(buffer, start)
            usual = _usual_partition(count, isr_count, version)
            layout = layouts[count << 8 | isr_count] = usual.unpack_from, usual.size
        unpack_from, size = layout
        try:
            (
                partition_id, topic_id, replicas, isr, no_others, leader, leader_epoch, partition_epoch,
                directory_count, directories, tags,
            ) = unpack_from(buffer, start)  # fmt: skip
        except struct_error:  # the record is shorter, and the last one
            return generic(buffer, start)
        if no_others != _TWO_EMPTY or tags or directory_count not in (count, b""):
            return generic(buffer, start)
        ids = decode_ids(replicas)
        record = build(
            partition_id,
            topic_id,
            ids,
            ids if isr == replicas else decode_ids(isr),
            (),
            (),
            leader,
            0,
            leader_epoch,
            partition_epoch,
            decode_uuids(directories) if directories else (),
        )
        return record, start + size

    return read


def _tagged(tag: int, content: bytes) -> bytes:
    return encode_uvarint(tag) + encode_uvarint(len(content)) + content


@remembered
def _tagged_ids(tag_and_ids: tuple[int, tuple[int, ...]]) -> bytes:
    tag, ids = tag_and_ids
    return _tagged(tag, encode_ids(ids))


def _partition_change_writer(head: bytes, version: int) -> Writer:
    generic = compiled(_LAYOUT[m.PartitionChangeRecord], version).write
    pack_start, int32 = _ID_AND_TOPIC.pack, _INT32.pack

    def write(record: m.PartitionChangeRecord) -> bytes:
        if (
            record.eligible_leader_replicas is not None
            or record.last_known_elr is not None
            or (record.directories is not None and version < _DIRECTORIES_SINCE)
            or len(record.topic_id) != 16
        ):
            return head + generic(record)
        tags = []
        if record.isr is not None:
            tags.append(_tagged_ids((0, record.isr)))
        if record.leader != m.NO_LEADER_CHANGE:
            tags.append(_TAG_LEADER + int32(record.leader))
        if record.replicas is not None:
            tags.append(_tagged_ids((2, record.replicas)))
        if record.removing_replicas is not None:
            tags.append(_tagged_ids((3, record.removing_replicas)))
        if record.adding_replicas is not None:
            tags.append(_tagged_ids((4, record.adding_replicas)))
        if record.leader_recovery_state != m.NO_RECOVERY_CHANGE:
            tags.append(_TAG_RECOVERY + record.leader_recovery_state.to_bytes(1, "big", signed=True))
        if record.directories is not None:
            tags.append(_tagged(8, encode_uuids(record.directories)))
        start = pack_start(record.partition_id, record.topic_id)
        return b"".join((head, start, len(tags).to_bytes(1, "big"), *tags))

    return write


def _partition_change_reader(version: int) -> Reader:
    """Fast for the usual change: a new ISR and perhaps a new leader (tags 0 and 1). Others use the generic codec."""
    generic = compiled(_LAYOUT[m.PartitionChangeRecord], version).read
    unpack_start, int32_from = _ID_AND_TOPIC.unpack_from, _INT32.unpack_from

    def read(buffer: bytes, start: int) -> tuple[m.PartitionChangeRecord, int]:
        position = start + 20
        left = buffer[position]
        position += 1
        isr: tuple[int, ...] | None = None
        leader = m.NO_LEADER_CHANGE
        if left and buffer[position] == 0 and buffer[position + 2] in _ONE_BYTE_LENGTHS:
            end = position + 2 + buffer[position + 1]
            isr, position = _short_ids(buffer, position + 2)
            left -= 1
            if position != end:
                return generic(buffer, start)
        if left and buffer[position : position + 2] == _TAG_LEADER:
            (leader,) = int32_from(buffer, position + 2)
            position += 6
            left -= 1
        if left:
            return generic(buffer, start)
        partition_id, topic_id = unpack_start(buffer, start)
        return m.PartitionChangeRecord(partition_id, topic_id, isr, leader), position

    return read


WRITERS: dict[type, Callable[[bytes, int], Writer]] = {
    m.TopicRecord: _topic_writer,
    m.ConfigRecord: _config_writer,
    m.PartitionRecord: _partition_writer,
    m.PartitionChangeRecord: _partition_change_writer,
}
"""Makes the writer of a record type's values from their first bytes and a version."""

READERS: dict[type, Callable[[int], Reader]] = {
    m.TopicRecord: _topic_reader,
    m.ConfigRecord: _config_reader,
    m.PartitionRecord: _partition_reader,
    m.PartitionChangeRecord: _partition_change_reader,
}
"""Makes the reader of a record type's bodies for a version."""
