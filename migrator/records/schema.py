"""Messages described as data, and the generic codec that reads, writes and shows them.

A `Struct` lists its fields in Kafka's order, with the versions that have them. `compiled` makes three functions of it
for one version. Every version is flexible: compact lengths, and a tag buffer at the end of each struct.
Source: Kafka's message generator, KIP-482.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from migrator.records import primitives as p
from migrator.records.errors import CorruptRecordsError
from migrator.records.primitives import Kind, Reader, Writer, fixed_kind
from migrator.records.uuid import uuid_to_text
from migrator.values import value

BOOLEAN = fixed_kind("bool", ">?")
INT8 = fixed_kind("int8", ">b")
INT16 = fixed_kind("int16", ">h")
UINT16 = fixed_kind("uint16", ">H")
INT32 = fixed_kind("int32", ">i")
INT64 = fixed_kind("int64", ">q")
FLOAT64 = fixed_kind("float64", ">d")
STRING = Kind("string", p.read_string, p.write_string, str)
BYTES = Kind("bytes", p.read_bytes, p.write_bytes, lambda data: base64.b64encode(data).decode())
UUID = Kind("uuid", p.read_uuid, p.write_uuid, uuid_to_text)
INT32_LIST = Kind("[]int32", p.read_ids, p.encode_ids, list)
UUID_LIST = Kind("[]uuid", p.read_uuids, p.encode_uuids, lambda uuids: [uuid_to_text(uuid) for uuid in uuids])


@value
class Field:
    """One field of a struct.

    :ivar name: attribute of the value class.
    :ivar since: first version with the field.
    :ivar tag: number of a tagged field, which is written only when it differs from ``default``.
    :ivar default: the value of the field when a version or a message lacks it.
    :ivar json_name: name in Kafka's JSON, if it is not ``name`` in camel case.
    """

    name: str
    kind: Kind | Struct | ListOf
    since: int = 0
    tag: int | None = None
    nullable: bool = False
    default: Any = None
    json_name: str = ""


@value
class Struct:
    """A message, or a struct within one. ``build`` takes the fields by name."""

    build: Callable[..., Any]
    fields: tuple[Field, ...]


@value
class ListOf:
    """A compact array of structs or primitives, a tuple in memory."""

    item: Kind | Struct


class Codec(NamedTuple):
    """One struct at one version."""

    read: Reader
    write: Writer
    to_json: Callable[[Any], Any]


@cache
def compiled(struct: Struct, version: int) -> Codec:
    """The functions that read, write and show one version of a struct."""
    return Codec(_struct_reader(struct, version), _struct_writer(struct, version), _struct_to_json(struct, version))


def _plain_codecs(struct: Struct, version: int) -> list[tuple[str, Codec]]:
    """Name and codec of the fields that are always written, in order."""
    fields = [field for field in struct.fields if field.tag is None and field.since <= version]
    return [(field.name, _field_codec(field, version)) for field in fields]


def _tagged_codecs(struct: Struct, version: int) -> dict[int, tuple[Field, Codec]]:
    fields = {field.tag: field for field in struct.fields if field.tag is not None and field.since <= version}
    return {tag: (fields[tag], _field_codec(fields[tag], version)) for tag in sorted(fields)}


def _struct_reader(struct: Struct, version: int) -> Reader:
    plain, tagged = _plain_codecs(struct, version), _tagged_codecs(struct, version)
    always = {name for name, _ in plain}
    defaults = {field.name: field.default for field in struct.fields if field.name not in always}

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        values = dict(defaults)
        for name, codec in plain:
            values[name], position = codec.read(buffer, position)
        count, position = p.read_uvarint(buffer, position)
        for _ in range(count):
            tag, position = p.read_uvarint(buffer, position)
            size, position = p.read_uvarint(buffer, position)
            end = position + size
            if tag in tagged:
                field, codec = tagged[tag]
                values[field.name], position = codec.read(buffer, position)
                if position != end:
                    raise CorruptRecordsError(f"tagged field {field.name} does not end where it says", position)
            position = end
        return struct.build(**values), position

    return read


def _struct_writer(struct: Struct, version: int) -> Writer:
    plain, tagged = _plain_codecs(struct, version), _tagged_codecs(struct, version)
    absent = [field for field in struct.fields if field.since > version]

    def write(message: Any) -> bytes:
        for field in absent:
            if getattr(message, field.name) != field.default:
                raise ValueError(f"version {version} of {type(message).__name__} cannot carry {field.name}")
        parts = [codec.write(getattr(message, name)) for name, codec in plain]
        sections: list[bytes] = []
        for tag, (field, codec) in tagged.items():
            content = getattr(message, field.name)
            if content != field.default:
                encoded = codec.write(content)
                sections += (p.encode_uvarint(tag), p.encode_uvarint(len(encoded)), encoded)
        return b"".join((*parts, p.encode_uvarint(len(sections) // 3), *sections))

    return write


def _struct_to_json(struct: Struct, version: int) -> Callable[[Any], dict[str, Any]]:
    present = [(field, _field_codec(field, version)) for field in struct.fields if field.since <= version]

    def to_json(message: Any) -> dict[str, Any]:
        shown = {}
        for field, codec in present:
            content = getattr(message, field.name)
            if field.tag is None or content != field.default:
                shown[_json_name(field)] = codec.to_json(content)
        return shown

    return to_json


@cache
def _field_codec(field: Field, version: int) -> Codec:
    codec = _kind_codec(field.kind, version)
    return _nullable(codec) if field.nullable else codec


def _kind_codec(kind: Kind | Struct | ListOf, version: int) -> Codec:
    if isinstance(kind, Kind):
        return Codec(kind.read, kind.write, kind.to_json)
    if isinstance(kind, Struct):
        return compiled(kind, version)
    return _list_codec(_kind_codec(kind.item, version))


def _list_codec(item: Codec) -> Codec:
    def read(buffer: bytes, position: int) -> tuple[tuple[Any, ...], int]:
        count, position = p.read_uvarint(buffer, position)
        if count == 0:
            raise CorruptRecordsError("an array is null, which is not allowed", position - 1)
        items = []
        for _ in range(count - 1):
            content, position = item.read(buffer, position)
            items.append(content)
        return tuple(items), position

    def write(items: tuple[Any, ...]) -> bytes:
        return p.encode_uvarint(len(items) + 1) + b"".join(map(item.write, items))

    return Codec(read, write, lambda items: [item.to_json(content) for content in items])


def _nullable(codec: Codec) -> Codec:
    """A codec of nullable strings or arrays: the length 0 means null."""

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        return (None, position + 1) if buffer[position] == 0 else codec.read(buffer, position)

    def write(content: Any) -> bytes:
        return b"\0" if content is None else codec.write(content)

    return Codec(read, write, lambda content: None if content is None else codec.to_json(content))


def _json_name(field: Field) -> str:
    first, *others = field.name.split("_")
    return field.json_name or first + "".join(word.capitalize() for word in others)
