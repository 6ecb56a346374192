"""Kafka's primitive types in the compact encoding of flexible messages: bytes <-> plain Python values.

A reader takes a buffer and a position, and returns the value and the position after it. A writer returns bytes. Readers
may raise `IndexError`, `struct.error` and `UnicodeDecodeError`, which the codecs turn into `CorruptRecordsError`.
Source: ``org.apache.kafka.common.protocol``, KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from migrator.records.errors import CorruptRecordsError, TooLongError
from migrator.records.uuid import Uuid
from migrator.values import value

K = TypeVar("K")
V = TypeVar("V")

Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]

UVARINT_BITS_MAX = 63
MAX_STRING_BYTES = 0x7FFF
"""The most bytes of a text in UTF-8. Kafka's readers accept no longer text in any version."""
ID_LISTS_CACHED = 65_536
"""The most lists of broker ids (and of directories) that are cached with their bytes: a cluster has few."""


def encode_uvarint(number: int) -> bytes:
    """An unsigned varint, least significant group first. ``number`` must not be negative."""
    if number < 0x80:
        return number.to_bytes(1, "big")
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def read_uvarint(buffer: bytes, position: int) -> tuple[int, int]:
    """Read an unsigned varint; refuses more than 63 bits."""
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    number, shift = byte & 0x7F, 7
    while True:
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > UVARINT_BITS_MAX:
            raise CorruptRecordsError("a variable-length integer is too long", position)


def encode_zigzag(number: int) -> bytes:
    """A signed varint in zigzag form, as record batches use it."""
    return encode_uvarint(number << 1 if number >= 0 else (-number << 1) - 1)


def read_zigzag(buffer: bytes, position: int) -> tuple[int, int]:
    """Read a signed varint in zigzag form. Sizes of records have one or two bytes, and there are millions of them."""
    raw = buffer[position]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    high = buffer[position + 1]
    if high < 0x80:
        raw = raw & 0x7F | high << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    raw, position = read_uvarint(buffer, position)
    return (raw >> 1) ^ -(raw & 1), position


@value
class Kind:
    """A type of field: how it is read, written and shown as JSON."""

    name: str
    read: Reader
    write: Writer
    to_json: Callable[[Any], Any]


def fixed_kind(name: str, layout: str) -> Kind:
    """A kind of fixed width, from a `struct` format."""
    packed = struct.Struct(layout)
    unpack_from, size = packed.unpack_from, packed.size

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        return unpack_from(buffer, position)[0], position + size

    return Kind(name, read, packed.pack, lambda number: number)


def _take(buffer: bytes, position: int, size: int) -> bytes:
    end = position + size
    if end > len(buffer):
        raise CorruptRecordsError(f"{size} bytes announced, {len(buffer) - position} left", position)
    return buffer[position:end]


def _read_length(buffer: bytes, position: int, what: str) -> tuple[int, int]:
    """A compact length that must not stand for null."""
    length, position = read_uvarint(buffer, position)
    if length == 0:
        raise CorruptRecordsError(f"{what} is null, which is not allowed", position - 1)
    return length - 1, position


def read_bytes(buffer: bytes, position: int) -> tuple[bytes, int]:
    """Compact bytes, not null."""
    size, position = _read_length(buffer, position, "bytes")
    return _take(buffer, position, size), position + size


def write_bytes(data: bytes) -> bytes:
    """Compact bytes."""
    return encode_uvarint(len(data) + 1) + data


def read_string(buffer: bytes, position: int) -> tuple[str, int]:
    """Compact string, not null."""
    size, position = _read_length(buffer, position, "a string")
    return _take(buffer, position, size).decode(), position + size


def write_string(text: str) -> bytes:
    """Compact string.

    :raises TooLongError: it has more than `MAX_STRING_BYTES`.
    """
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise TooLongError(f"a text has {len(data):,} bytes, and at most {MAX_STRING_BYTES:,} are allowed")
    return encode_uvarint(len(data) + 1) + data


def read_uuid(buffer: bytes, position: int) -> tuple[Uuid, int]:
    """16 raw bytes."""
    return Uuid(_take(buffer, position, 16)), position + 16


def write_uuid(uuid: Uuid) -> bytes:
    """16 raw bytes."""
    if len(uuid) != 16:
        raise ValueError(f"a Uuid has {len(uuid)} bytes")
    return uuid


class _Memory(dict[K, V]):
    """What a function gave."""

    __slots__ = ("_of",)

    def __init__(self, of: Callable[[K], V]) -> None:
        self._of = of

    def __missing__(self, key: K) -> V:
        if len(self) >= ID_LISTS_CACHED:
            self.clear()
        made = self[key] = self._of(key)
        return made


def remembered(of: Callable[[K], V]) -> Callable[[K], V]:
    """The function, which remembers `ID_LISTS_CACHED` results and then forgets all: where lists seldom repeat, an
    `lru_cache` takes as long as the decoding of a record."""
    return _Memory(of).__getitem__


@remembered
def encode_ids(ids: tuple[int, ...]) -> bytes:
    """Compact array of int32."""
    return encode_uvarint(len(ids) + 1) + struct.pack(f">{len(ids)}i", *ids)


@remembered
def decode_ids(raw: bytes) -> tuple[int, ...]:
    """The numbers of an int32 array without its length. Equal lists share one tuple, which saves most of an image's
    memory: there are far more partitions than different assignments."""
    return _id_list(len(raw) // 4).unpack(raw)


@cache
def _id_list(count: int) -> struct.Struct:
    return struct.Struct(f">{count}i")


def read_ids(buffer: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Compact array of int32, not null."""
    count, position = _read_length(buffer, position, "an array")
    return decode_ids(_take(buffer, position, 4 * count)), position + 4 * count


@remembered
def encode_uuids(uuids: tuple[Uuid, ...]) -> bytes:
    """Compact array of Uuids."""
    return encode_uvarint(len(uuids) + 1) + b"".join(map(write_uuid, uuids))


@remembered
def decode_uuids(raw: bytes) -> tuple[Uuid, ...]:
    """The values of a Uuid array without its length; equal lists share one tuple."""
    return tuple([_one_uuid(raw[start : start + 16]) for start in range(0, len(raw), 16)])


@remembered
def _one_uuid(raw: bytes) -> Uuid:
    """One object for each directory: every broker has a few, and every one of its replicas names one of them."""
    return Uuid(raw)


def read_uuids(buffer: bytes, position: int) -> tuple[tuple[Uuid, ...], int]:
    """Compact array of Uuids, not null."""
    count, position = _read_length(buffer, position, "an array")
    return decode_uuids(_take(buffer, position, 16 * count)), position + 16 * count
