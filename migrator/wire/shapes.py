"""The fields of kio's message classes, for `decode` and `encode`.

kio's types are dataclasses with Kafka's type name in each field's metadata. `shapes_of` reads them once for each class,
and decoders and encoders are compiled from the result. A time beyond Python's range (the year 9999) becomes the last
one in it, so no time of a peer raises an exception.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import struct
import uuid
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kio.schema.errors import ErrorCode

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST = dt.datetime.max.replace(microsecond=0, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
_ZERO_UUID = bytes(16)
_ERROR_CODES = {code.value: code for code in ErrorCode}


class FieldShape(NamedTuple):
    """A field and its type; ``entity`` is None for a primitive."""

    name: str
    kafka_type: str
    entity: type | None
    is_array: bool
    nullable: bool
    tag: int | None
    flexible: bool


class Fixed(NamedTuple):
    """A primitive of fixed width: its `struct` code, and the conversion of its value if there is one."""

    code: str
    load: Callable[[Any], Any] | None = None
    dump: Callable[[Any], Any] | None = None

    @property
    def size(self) -> int:
        return struct.calcsize(">" + self.code)


def _load_error(code: int) -> ErrorCode:
    return _ERROR_CODES.get(code, ErrorCode.unknown_server_error)


def _load_uuid(raw: bytes) -> uuid.UUID | None:
    return None if raw == _ZERO_UUID else uuid.UUID(bytes=raw)


def _dump_uuid(value: uuid.UUID | None) -> bytes:
    return _ZERO_UUID if value is None else value.bytes


_LONGEST = (dt.timedelta.min // _MILLISECOND, dt.timedelta.max // _MILLISECOND)
_LATEST = ((dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // _MILLISECOND, (_LAST - _EPOCH) // _MILLISECOND)
"""Python's bounds, in milliseconds: a time on the wire has 64 bits, but Python's times end with the year 9999 and its
durations after 2,700,000 years."""


def _within(bounds: tuple[int, int], number: int) -> int:
    return max(bounds[0], min(bounds[1], number))


def _load_duration(milliseconds: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=_within(_LONGEST, milliseconds))


def _dump_duration(value: dt.timedelta) -> int:
    return value // _MILLISECOND


def _load_time(milliseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=_within(_LATEST, milliseconds))


def _dump_time(value: dt.datetime) -> int:
    return (value - _EPOCH) // _MILLISECOND


def _load_optional_time(milliseconds: int) -> dt.datetime | None:
    return None if milliseconds == -1 else _load_time(milliseconds)


def _dump_optional_time(value: dt.datetime | None) -> int:
    return -1 if value is None else _dump_time(value)


FIXED = {
    "int8": Fixed("b"),
    "int16": Fixed("h"),
    "int32": Fixed("i"),
    "int64": Fixed("q"),
    "uint8": Fixed("B"),
    "uint16": Fixed("H"),
    "uint32": Fixed("I"),
    "uint64": Fixed("Q"),
    "float64": Fixed("d"),
    "bool": Fixed("?"),
    "error_code": Fixed("h", _load_error),
    "uuid": Fixed("16s", _load_uuid, _dump_uuid),
    "timedelta_i32": Fixed("i", _load_duration, _dump_duration),
    "timedelta_i64": Fixed("q", _load_duration, _dump_duration),
    "datetime_i64": Fixed("q", _load_time, _dump_time),
}
_OPTIONAL_TIME = Fixed("q", _load_optional_time, _dump_optional_time)


@cache
def shapes_of(entity_type: Any) -> tuple[FieldShape, ...]:
    """Every field of one of kio's classes, in the order of the wire."""
    return tuple(_shape(entity_type, field) for field in dataclasses.fields(entity_type))


def _shape(entity_type: Any, field: dataclasses.Field[Any]) -> FieldShape:
    inner, nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner = get_args(inner)[0]
    # The client id is the only string of a flexible header that is not compact (RequestHeader.json).
    legacy = entity_type.__name__ == "RequestHeader" and field.name == "client_id"
    return FieldShape(
        name=field.name,
        kafka_type=field.metadata.get("kafka_type", ""),
        entity=inner if dataclasses.is_dataclass(inner) else None,  # type: ignore[arg-type]
        is_array=is_array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        flexible=entity_type.__flexible__ and not legacy,
    )


def _without_none(declared: Any) -> tuple[Any, bool]:
    if get_origin(declared) is UnionType:
        (inner,) = (argument for argument in get_args(declared) if argument is not type(None))
        return inner, True
    return declared, False


def fixed(shape: FieldShape) -> Fixed | None:
    if shape.is_array or shape.entity is not None:
        return None
    if shape.kafka_type == "datetime_i64" and shape.nullable:
        return _OPTIONAL_TIME
    return FIXED.get(shape.kafka_type)


def runs(shapes: list[FieldShape]) -> list[list[FieldShape]]:
    """Group neighbouring fields of fixed width. Every other field is a separate group."""
    runs: list[list[FieldShape]] = []
    for shape in shapes:
        if fixed(shape) and runs and fixed(runs[-1][-1]):
            runs[-1].append(shape)
        else:
            runs.append([shape])
    return runs


def default_of(entity_type: Any, shape: FieldShape) -> Any:
    """Kafka's default, for an absent tagged field and for `build`."""
    (field,) = (field for field in dataclasses.fields(entity_type) if field.name == shape.name)
    if field.default is not dataclasses.MISSING:
        return field.default
    if shape.is_array:
        return ()
    if shape.entity is not None:
        return shape.entity(**{inner.name: default_of(shape.entity, inner) for inner in shapes_of(shape.entity)})
    kind = fixed(shape)
    if kind is None:
        return "" if shape.kafka_type == "string" else b""
    zero = struct.unpack(">" + kind.code, bytes(kind.size))[0]
    return kind.load(zero) if kind.load else zero


def refuse_null(shape: FieldShape, nullable: bool) -> None:  # noqa: FBT001
    if not nullable:
        raise ValueError(f"field {shape.name} must not be null")
