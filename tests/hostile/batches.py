"""Batches as a hostile leader sends them: whole by their checksum, and wrong in one place, or not at all."""

from __future__ import annotations

import struct
from functools import cache
from random import Random
from typing import Final

import crc32c

from migrator.records.batch import CHECKED_FROM, CONTROL_ATTRIBUTE, HEADER_SIZE, build_batch
from migrator.records.codec import SPEC_OF, decode, encode, encode_all
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import ConfigRecord, ConfigResourceType, NoOpRecord
from migrator.records.primitives import encode_uvarint
from migrator.records.versions import LATEST_SUPPORTED
from tests.records.support.samples import samples

HEADER: Final = {
    "base_offset": (0, "q"),
    "length": (8, "i"),
    "leader_epoch": (12, "i"),
    "magic": (16, "b"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "count": (57, "i"),
}
"""Where a header's field is, and how wide."""
UNHARMFUL: Final = frozenset({"base_timestamp", "max_timestamp", "producer_id"})
"""Nobody looks at them."""


def good_values(random: Random) -> list[bytes]:
    """Records that any image takes."""
    config = ConfigRecord(ConfigResourceType.BROKER, "", f"key-{random.randrange(9)}", "x" * random.choice((0, 9, 999)))
    return encode_all(
        [config if random.random() < 0.5 else NoOpRecord() for _ in range(random.randrange(1, 9))], _LEVEL
    )


_LEVEL: Final = LATEST_SUPPORTED


def hostile_values(random: Random) -> list[bytes]:
    """Of these one at least decodes as nothing."""
    values = good_values(random)
    worst = random.choice(
        (
            b"\x01",
            b"\x02\x14\x00\x00",  # frame version
            b"\x01\x7f\x00\x00",  # type
            b"\x01\x14\x09\x00",  # version
            b"\x01\x14\x00\x00\x00",  # one byte too many
            b"\x01\x0c\x00" + encode_uvarint(2**62) + b"x",  # a string of four exabytes
            b"\x01\x0c\x00" + b"\xff" * 12,  # a varint without an end
            b"\x01\x03\x02" + b"\xff\xff\xff\xff\x0f" * 6,
            b"\x01\x14\x00" + encode_uvarint(2**60),  # tagged fields without number
        )
    )
    values.insert(random.randrange(len(values) + 1), worst)
    return values


def batch_of(random: Random, offset: int, epoch: int) -> tuple[bytes, bool]:
    """A batch, and whether a follower may append it there."""
    kind = random.random()
    if kind < 0.35:
        return build_batch(good_values(random), timestamp_ms=1, base_offset=offset, leader_epoch=epoch), True
    if kind < 0.6:
        return build_batch(hostile_values(random), timestamp_ms=1, base_offset=offset, leader_epoch=epoch), False
    if kind < 0.7:
        key = struct.pack(">hh", 0, random.choice((-1, 0, 1, 2, 3, 7, 2**15 - 1)))
        data = random.choice((b"", b"\0\0", b"\xff" * 9, b"\0\0" + encode_uvarint(2**62)))
        values = [data or b"\0"]
        return build_batch(values, timestamp_ms=1, base_offset=offset, leader_epoch=epoch, control_keys=[key]), False
    changed = bytearray(build_batch(good_values(random), timestamp_ms=1, base_offset=offset, leader_epoch=epoch))
    field = random.choice(sorted(HEADER))
    position, code = HEADER[field]
    top = 2 ** (8 * struct.calcsize(code) - 1) - 1
    before = struct.unpack_from(">" + code, changed, position)[0]
    after = random.choice((-top - 1, -1, 0, 1, 2, CONTROL_ATTRIBUTE, top - 1, top, random.randint(-top - 1, top)))
    struct.pack_into(">" + code, changed, position, after)
    struct.pack_into(">I", changed, 17, crc32c.crc32c(changed[CHECKED_FROM:]))
    return bytes(changed), field in UNHARMFUL or after == before or len(changed) <= HEADER_SIZE


@cache
def _values_of() -> dict[str, list[bytes]]:
    """One of each version of each type, with every field set."""
    found: dict[str, list[bytes]] = {}
    for record, version in samples():
        found.setdefault(SPEC_OF[type(record)].type_name, []).append(encode(record, version))
    return found


def spoilt_batch(random: Random, type_name: str, offset: int, epoch: int) -> bytes:
    """A batch whose checksum is right, and in which a record of that type is cut short, or says it is longer."""
    value = random.choice(_values_of()[type_name])
    cut = random.randrange(len(value))
    ends = (b"", b"\xff" * 9, encode_uvarint(2**31), encode_uvarint(2**62) + b"x", b"\xff" * 12, b"\x80" * 11)
    worst = value[:cut] + random.choice(ends) if cut > 2 else value[:cut]
    if worst == value or _decodes(worst):
        worst = value + b"\0"
    values = good_values(random)
    values.insert(random.randrange(len(values) + 1), worst)
    return build_batch(values, timestamp_ms=1, base_offset=offset, leader_epoch=epoch)


def _decodes(value: bytes) -> bool:
    try:
        decode(value)
    except CorruptRecordsError:
        return False
    return True
