"""Random messages of every class that kio has, for comparing our codecs with kio's."""

from __future__ import annotations

import datetime as dt
import random
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from migrator.wire.encode import encode_entity
from migrator.wire.schemas import (
    CONTROLLER_APIS,
    RequestHeader,
    encode_request_header,
    request_type,
    response_type,
)
from migrator.wire.shapes import FieldShape, shapes_of


def every_message_type() -> Iterator[Any]:
    """Request and response classes of every API key and version."""
    for key, name in api_key_map.items():
        for version, kinds in schema_name_map[name].items():
            if EntityType.request in kinds:
                yield request_type(key, version)
            if EntityType.response in kinds:
                yield response_type(key, version)


def random_message(entity_type: Any, source: random.Random) -> Any:
    """A message with random content, nulls and defaults where they may stand."""
    return entity_type(**{shape.name: _field(shape, source) for shape in shapes_of(entity_type)})


def damaged_frame(source: random.Random) -> bytes:
    """A frame of a random request with up to three wrong bytes, cut short or prolonged now and then."""
    key = source.choice(list(CONTROLLER_APIS))
    version = source.randint(CONTROLLER_APIS[key].min, CONTROLLER_APIS[key].max)
    header = RequestHeader(key, version, source.getrandbits(31), "fuzz")
    body = encode_request_header(header) + encode_entity(random_message(request_type(key, version), source))
    raw = bytearray(b"".join(body))
    for _ in range(source.randint(0, 3)):
        raw[source.randrange(len(raw))] = source.getrandbits(8)
    if source.random() < 0.1:
        raw = raw[: source.randrange(len(raw))]
    size = len(raw) if source.random() < 0.95 else source.getrandbits(32) - 2**31
    return struct.pack(">i", size) + raw


def _field(shape: FieldShape, source: random.Random) -> Any:
    # A null in a tagged field is its absence, and that only where it is the default.
    may_be_null = shape.nullable and (shape.tag is None or shape.kafka_type == "uuid")
    if may_be_null and source.random() < 0.3:
        return None
    if shape.is_array:
        return tuple(_element(shape, source) for _ in range(source.choice([0, 0, 1, 1, 2, 3])))
    return _element(shape, source)


def _element(shape: FieldShape, source: random.Random) -> Any:
    if shape.entity is not None:
        return random_message(shape.entity, source)
    return _PRIMITIVES[shape.kafka_type](source)


def _signed(bits: int) -> Callable[[random.Random], int]:
    return lambda source: source.choice([0, 1, -1, -(1 << (bits - 1)), source.getrandbits(bits - 1)])


_PRIMITIVES: dict[str, Callable[[random.Random], Any]] = {
    "int8": _signed(8),
    "int16": _signed(16),
    "int32": _signed(32),
    "int64": _signed(64),
    "uint16": lambda source: source.getrandbits(16),
    "float64": lambda source: source.uniform(-1e9, 1e9),
    "bool": lambda source: source.random() < 0.5,
    "string": lambda source: source.choice(["", "topic", "ä" * source.randrange(200)]),
    "bytes": lambda source: source.randbytes(source.choice([0, 1, 300])),
    "records": lambda source: source.randbytes(source.choice([0, 1, 20_000])),
    "error_code": lambda source: source.choice(list(ErrorCode)),
    "uuid": lambda source: uuid.UUID(bytes=source.randbytes(16)),
    "timedelta_i32": lambda source: dt.timedelta(milliseconds=source.getrandbits(31)),
    "timedelta_i64": lambda source: dt.timedelta(milliseconds=source.getrandbits(40)),
    "datetime_i64": lambda source: dt.datetime.fromtimestamp(source.getrandbits(31), dt.UTC),
}
