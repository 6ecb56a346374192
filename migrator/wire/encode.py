"""kio's messages -> bytes, as a list of chunks.

Big byte fields (records, snapshots) are in the list by reference, and are never copied. Each class is compiled once; a
run of fields of fixed width is one `struct`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from migrator.errors import PeerError
from migrator.wire.shapes import FIXED, FieldShape, default_of, fixed, refuse_null, runs, shapes_of

Chunks = list[bytes]
Write = Callable[[Chunks, Any], None]

LONGEST_TEXT = 2**15 - 1
"""The most bytes of a string in a message that is not flexible. A longer string, set in a newer version, does not fit
into an older one: the request fails, as in Kafka."""
_SMALL_VARINTS = tuple(bytes((n,)) for n in range(128))
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def encode_entity(entity: Any) -> Chunks:
    """Encode one message, without header or length, as chunks.

    :raises PeerError: a string is too long for this version of the message.
    """
    chunks: Chunks = []
    entity_type: Any = type(entity)
    _entity_writer(entity_type)(chunks, entity)
    return chunks


def unsigned_varint(value: int) -> bytes:
    """Encode 0 to 2**32 - 1 as Kafka's unsigned varint."""
    if value < 128:
        return _SMALL_VARINTS[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


@cache
def _entity_writer(entity_type: Any) -> Write:
    shapes = shapes_of(entity_type)
    writers = [
        _fixed_writer(run) if fixed(run[0]) else _field_writer(run[0])
        for run in runs([shape for shape in shapes if shape.tag is None])
    ]
    if entity_type.__flexible__:
        writers.append(_tags_writer(entity_type, [shape for shape in shapes if shape.tag is not None]))

    def write_entity(out: Chunks, entity: Any) -> None:
        for write in writers:
            write(out, entity)

    return write_entity


def _fixed_writer(run: list[FieldShape]) -> Write:
    kinds = [kind for shape in run if (kind := fixed(shape))]
    pack = struct.Struct(">" + "".join(kind.code for kind in kinds)).pack
    if len(run) == 1:
        get, dump = attrgetter(run[0].name), kinds[0].dump or (lambda value: value)
        return lambda out, entity: out.append(pack(dump(get(entity))))
    get_all = attrgetter(*(shape.name for shape in run))
    dumps = [(index, kind.dump) for index, kind in enumerate(kinds) if kind.dump]
    if not dumps:
        return lambda out, entity: out.append(pack(*get_all(entity)))

    def write(out: Chunks, entity: Any) -> None:
        values = list(get_all(entity))
        for index, dump in dumps:
            values[index] = dump(values[index])
        out.append(pack(*values))

    return write


def _field_writer(shape: FieldShape) -> Write:
    get, write = attrgetter(shape.name), _writer(shape)
    return lambda out, entity: write(out, get(entity))


def _tags_writer(entity_type: Any, shapes: list[FieldShape]) -> Write:
    fields = (
        sorted(
            (shape.tag or 0, attrgetter(shape.name), _writer(shape), default_of(entity_type, shape)) for shape in shapes
        )
        if shapes
        else []
    )

    def write(out: Chunks, entity: Any) -> None:
        present = [(tag, value, put) for tag, get, put, default in fields if (value := get(entity)) != default]
        out.append(unsigned_varint(len(present)))
        for tag, value, put in present:
            content: Chunks = []
            put(content, value)
            out.append(unsigned_varint(tag))
            out.append(unsigned_varint(sum(map(len, content))))
            out.extend(content)

    return write


def _writer(shape: FieldShape) -> Write:
    write = _element_writer(shape)
    return _array_writer(shape, write) if shape.is_array else write


def _element_writer(shape: FieldShape) -> Write:
    nullable = shape.nullable and not shape.is_array
    if shape.entity is not None:
        return _nullable_entity_writer(shape.entity) if nullable else _entity_writer(shape.entity)
    if kind := fixed(shape) or FIXED.get(shape.kafka_type):
        pack, dump = struct.Struct(">" + kind.code).pack, kind.dump or (lambda value: value)
        return lambda out, value: out.append(pack(dump(value)))
    length = _put_compact_length if shape.flexible else _put_length16 if shape.kafka_type == "string" else _put_length32

    def write(out: Chunks, value: str | bytes | None) -> None:
        if value is None:
            refuse_null(shape, nullable)
            out.append(length(-1))
            return
        raw = value.encode() if isinstance(value, str) else value
        out.append(length(len(raw)))
        out.append(raw)

    return write


def _nullable_entity_writer(entity_type: type) -> Write:
    write_entity = _entity_writer(entity_type)

    def write(out: Chunks, entity: Any) -> None:
        if entity is None:
            out.append(b"\xff")
        else:
            out.append(b"\x01")
            write_entity(out, entity)

    return write


def _array_writer(shape: FieldShape, write: Write) -> Write:
    length = _put_compact_length if shape.flexible else _put_length32

    def write_array(out: Chunks, items: tuple[Any, ...] | None) -> None:
        if items is None:
            refuse_null(shape, shape.nullable)
            out.append(length(-1))
            return
        out.append(length(len(items)))
        for item in items:
            write(out, item)

    return write_array


def _put_compact_length(length: int) -> bytes:
    return unsigned_varint(length + 1)


def _put_length16(length: int) -> bytes:
    if length > LONGEST_TEXT:
        raise PeerError(f"a string of {length} bytes is too long for this version of the message")
    return _INT16.pack(length)


def _put_length32(length: int) -> bytes:
    return _INT32.pack(length)
