"""Kafka's Uuid: 16 raw bytes in memory, 22 characters of unpadded base64url in text.

Raw bytes hash and compare in C, which matters where a topic id is looked up per partition.
Source: ``org.apache.kafka.common.Uuid``.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from random import Random

Uuid = NewType("Uuid", bytes)

RESERVED_COUNT = 100
"""The first 100 values are never generated. Some of them have a special meaning."""


def reserved_uuid(number: int) -> Uuid:
    """The reserved Uuid with that number, 0 to 99."""
    return Uuid(number.to_bytes(16, "big"))


ZERO_UUID = reserved_uuid(0)
DIRECTORY_MIGRATING = reserved_uuid(0)
DIRECTORY_UNASSIGNED = reserved_uuid(1)
DIRECTORY_LOST = reserved_uuid(2)
METADATA_TOPIC_ID = reserved_uuid(1)


def is_reserved(value: Uuid) -> bool:
    """Whether the value is one of the first 100."""
    return int.from_bytes(value, "big") < RESERVED_COUNT


def uuid_to_text(value: Uuid) -> str:
    """Text form, 22 characters, as Kafka prints it."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Parse the text form.

    :raises ValueError: when it is not 22 characters of base64url, with or without padding, that stand for 16 bytes.
    """
    try:
        raw = base64.b64decode(text.encode("ascii").removesuffix(b"==") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"not a Kafka Uuid: {text!r}") from error
    if len(raw) != 16:
        raise ValueError(f"not a Kafka Uuid: {text!r} stands for {len(raw)} bytes instead of 16")
    return Uuid(raw)


def random_uuid(random: Random) -> Uuid:
    """A random value that is not reserved and whose text does not start with a dash."""
    while True:
        value = Uuid(random.randbytes(16))
        if not is_reserved(value) and not uuid_to_text(value).startswith("-"):
            return value
