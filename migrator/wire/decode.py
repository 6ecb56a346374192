"""Bytes -> kio's messages, strict towards peers and fast enough for the hot path.

kio's own readers trust the peer: a negative length moves them backwards, and an unknown tag is an error. Here each
class is compiled once into a list of steps, in which a run of fields of fixed width is one `struct`. Every length is
checked against the rest of the frame. Unknown tags are skipped (KIP-482), and unknown error codes are read as
UNKNOWN_SERVER_ERROR, as in Kafka's clients.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from migrator.errors import PeerError
from migrator.records.primitives import MAX_STRING_BYTES
from migrator.wire.shapes import FIXED, FieldShape, Fixed, default_of, fixed, refuse_null, runs, shapes_of

Step = Callable[[dict[str, Any], memoryview, int], int]
Read = Callable[[memoryview, int], tuple[Any, int]]

UNBOUNDED = 2**62


class TooManyElementsError(PeerError):
    """The message has more elements than this controller accepts. The part that was read is well formed."""


class _Room(threading.local):
    """The number of array elements that the message being decoded by this thread may still have."""

    elements = UNBOUNDED


_room = _Room()
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def decode_entity(
    entity_type: type, buffer: bytes | bytearray | memoryview, offset: int = 0, max_elements: int = UNBOUNDED
) -> tuple[Any, int]:
    """Decode one message from ``buffer``.

    :param max_elements: the most array elements and tagged fields together. An element of two bytes becomes an object
        of a hundred; an unknown tagged field takes time, but no memory.
    :returns: the message, and the offset after it.
    :raises PeerError: the bytes are not such a message.
    :raises TooManyElementsError: it has more elements.
    """
    _room.elements = max_elements
    try:
        return _entity_reader(entity_type)(memoryview(buffer), offset)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise PeerError(f"malformed {entity_type.__name__}: {error}") from error
    finally:
        _room.elements = UNBOUNDED


def decode_body(
    entity_type: Any, buffer: bytes | bytearray | memoryview, offset: int = 0, max_elements: int = UNBOUNDED
) -> Any:
    """Decode the message that starts at ``offset``. Bytes after it are ignored, as in Kafka: librdkafka's Metadata
    requests end in meaningless bytes. Parameters and errors as in `decode_entity`.
    """
    return decode_entity(entity_type, buffer, offset, max_elements)[0]


def decode_exactly(entity_type: Any, buffer: bytes | bytearray | memoryview, offset: int = 0) -> Any:
    """Like `decode_body`, but the message must be the last thing in the buffer.

    :raises PeerError: the bytes are not such a message, or bytes follow it.
    """
    entity, end = decode_entity(entity_type, buffer, offset)
    if end != len(buffer):
        raise PeerError(f"{len(buffer) - end} bytes too many behind a {entity_type.__name__}")
    return entity


def read_unsigned_varint(buffer: memoryview, offset: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes; returns it and the offset after it.

    :raises ValueError, IndexError: there is no such number.
    """
    byte = buffer[offset]
    if byte < 128:
        return byte, offset + 1
    value = byte & 127
    for index in range(1, 5):
        byte = buffer[offset + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, offset + index + 1
    raise ValueError("a varint has more than five bytes")


@cache
def _entity_reader(entity_type: Any) -> Read:
    shapes = shapes_of(entity_type)
    steps = [
        _fixed_step(run) if fixed(run[0]) else _variable_step(run[0])
        for run in runs([shape for shape in shapes if shape.tag is None])
    ]
    if entity_type.__flexible__:
        steps.append(_tags_step(entity_type, [shape for shape in shapes if shape.tag is not None]))

    def read_entity(buffer: memoryview, offset: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for step in steps:
            offset = step(values, buffer, offset)
        return entity_type(**values), offset

    return read_entity


def _fixed_step(run: list[FieldShape]) -> Step:
    names = [shape.name for shape in run]
    kinds = [kind for shape in run if (kind := fixed(shape))]
    packed = struct.Struct(">" + "".join(kind.code for kind in kinds))
    unpack_from, size = packed.unpack_from, packed.size
    loads = [(name, kind.load) for name, kind in zip(names, kinds, strict=True) if kind.load]

    def step(values: dict[str, Any], buffer: memoryview, offset: int) -> int:
        values.update(zip(names, unpack_from(buffer, offset), strict=True))
        for name, load in loads:
            values[name] = load(values[name])
        return offset + size

    return step


def _variable_step(shape: FieldShape) -> Step:
    name, read = shape.name, _reader(shape)

    def step(values: dict[str, Any], buffer: memoryview, offset: int) -> int:
        values[name], offset = read(buffer, offset)
        return offset

    return step


def _tags_step(entity_type: Any, shapes: list[FieldShape]) -> Step:
    readers = {shape.tag: (shape.name, _reader(shape)) for shape in shapes}
    defaults = {shape.name: default_of(entity_type, shape) for shape in shapes}

    def step(values: dict[str, Any], buffer: memoryview, offset: int) -> int:
        values.update(defaults)
        count, offset = read_unsigned_varint(buffer, offset)
        _take_room(count)
        for _ in range(count):
            tag, offset = read_unsigned_varint(buffer, offset)
            size, offset = read_unsigned_varint(buffer, offset)
            end = _end(buffer, offset, size)
            if tag in readers:
                name, read = readers[tag]
                values[name], offset = read(buffer[:end], offset)
                if offset != end:
                    raise ValueError(f"tagged field {name} announces {size} bytes and has another length")
            offset = end
        return offset

    return step


def _reader(shape: FieldShape) -> Read:
    read = _element_reader(shape)
    return _array_reader(shape, read) if shape.is_array else read


def _element_reader(shape: FieldShape) -> Read:
    nullable = shape.nullable and not shape.is_array
    if shape.entity is not None:
        return _nullable_entity_reader(shape.entity) if nullable else _entity_reader(shape.entity)
    if kind := FIXED.get(shape.kafka_type):
        return _single_reader(fixed(shape) or kind)
    convert: Callable[[memoryview], Any] = _text if shape.kafka_type == "string" else bytes
    lengths = (_compact_string_length, _length16) if shape.kafka_type == "string" else (_compact_length, _length32)
    length = lengths[0] if shape.flexible else lengths[1]

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        size, offset = length(buffer, offset)
        if size == -1:
            refuse_null(shape, nullable)
            return None, offset
        end = _end(buffer, offset, size)
        return convert(buffer[offset:end]), end

    return read


def _single_reader(kind: Fixed) -> Read:
    packed = struct.Struct(">" + kind.code)
    load = kind.load or (lambda value: value)

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        return load(packed.unpack_from(buffer, offset)[0]), offset + packed.size

    return read


def _nullable_entity_reader(entity_type: type) -> Read:
    read_entity = _entity_reader(entity_type)

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        present = buffer[offset] < 128  # an int8: negative is null (KIP-893)
        return read_entity(buffer, offset + 1) if present else (None, offset + 1)

    return read


def _array_reader(shape: FieldShape, read: Read) -> Read:
    length = _compact_length if shape.flexible else _length32
    # Refuse a length that the frame cannot hold before memory is allocated for it.
    least = _least_size(shape)

    def read_array(buffer: memoryview, offset: int) -> tuple[Any, int]:
        count, offset = length(buffer, offset)
        if count == -1:
            refuse_null(shape, shape.nullable)
            return None, offset
        _end(buffer, offset, count * least)
        _take_room(count)
        items = []
        for _ in range(count):
            item, offset = read(buffer, offset)
            items.append(item)
        return tuple(items), offset

    return read_array


def _take_room(count: int) -> None:
    _room.elements -= count
    if _room.elements < 0:
        raise TooManyElementsError("the message has too many elements: ask for less in one request")


def _least_size(shape: FieldShape) -> int:
    """The least number of bytes of one element of this array."""
    if shape.entity is None:
        kind = FIXED.get(shape.kafka_type)
        return kind.size if kind else 1 if shape.flexible else 2
    inner = [field for field in shapes_of(shape.entity) if field.tag is None]
    return sum(kind.size if (kind := fixed(field)) else 1 for field in inner) + int(shape.flexible)


def _compact_length(buffer: memoryview, offset: int) -> tuple[int, int]:
    value, offset = read_unsigned_varint(buffer, offset)
    return value - 1, offset


def _compact_string_length(buffer: memoryview, offset: int) -> tuple[int, int]:
    """The length of a compact string. The limit is that of versions that are not flexible: Kafka reads no longer
    strings, neither in requests nor in the log."""
    size, offset = _compact_length(buffer, offset)
    if size > MAX_STRING_BYTES:
        raise ValueError(f"a string of {size} bytes is too long")
    return size, offset


def _length16(buffer: memoryview, offset: int) -> tuple[int, int]:
    return _INT16.unpack_from(buffer, offset)[0], offset + 2


def _length32(buffer: memoryview, offset: int) -> tuple[int, int]:
    return _INT32.unpack_from(buffer, offset)[0], offset + 4


def _end(buffer: memoryview, offset: int, size: int) -> int:
    end = offset + size
    if size < 0 or end > len(buffer):
        raise ValueError(f"length {size} at byte {offset} does not fit into {len(buffer)} bytes")
    return end


def _text(raw: memoryview) -> str:
    return str(raw, "utf-8")
