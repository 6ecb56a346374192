"""Messages that are valid in their encoding and hostile in their content: generated from the schemas, seeded.

A third of the fields means something in the attacked node's world, so that a message gets past the first check; the
others are what integers, texts and lists can be at their worst.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from kio.schema.errors import ErrorCode

from migrator.wire.shapes import FieldShape, default_of, shapes_of

Hints = Mapping[str, Sequence[Any]]
"""By field name (of any message): values that mean something now."""

PLAUSIBLE, EXTREME = 0.55, 0.85
"""Of the fields, up to where they are plausible, and up to where extreme; the rest is drawn from all values."""
MANY: Final = 300
WIDTHS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 17, "uint32": 33}
TEXTS: Final = (
    "",
    "\0",
    ".",
    "..",
    "../../etc/passwd",
    "a" * 249,
    "a" * 250,
    "\u202e\x1b[31m\r\n",
    "\U0001f4a3" * 20,
    "9" * 400,
    "-1",
    "*",
    "User:",
    "(" * 3_000,
    "x" * 32_000,
    "y" * 32_767,
    "z" * 32_768,
    "w" * 40_000,
    "NaN",
    "1e999",
    "%s%n{0}${jndi:x}",
    ",,,=,=",
)
_PROTO_INTEGERS: Final = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_ENUM)
FLOATS: Final = (math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7e308, -1.0, 1.5, 2.0**63)
LONGEST_MS: Final = -(dt.timedelta.min // dt.timedelta(milliseconds=1))


UNIFORM: Final = 0.06
"""Of the messages, in which each integer is the lowest there is; and as many in which each is the highest."""


class Hostile:
    """Draws messages.

    :param random: of this message alone: what other messages there are changes nothing.
    :param hints: may be changed between messages.
    :param ends: hears of each integer field that was sent at an end of its range: ``struct.field`` and 0 or 1.
    """

    def __init__(self, seeded: random.Random, hints: Hints, ends: set[tuple[str, int]] | None = None) -> None:
        self._random = seeded
        self._hints = hints
        self._ends = set() if ends is None else ends
        self._field_name = ""
        dice = seeded.random()
        self._end = 0 if dice < UNIFORM else 1 if dice < 2 * UNIFORM else None

    def entity(self, entity_type: Any) -> Any:
        """One of kio's messages."""
        return entity_type(**{shape.name: self._field(entity_type, shape) for shape in shapes_of(entity_type)})

    def proto(self, message_type: Any) -> Any:
        message = message_type()
        for field in message_type.DESCRIPTOR.fields:
            self._fill(message, field)
        return message

    def number(self, name: str, bits: int, *, signed: bool = True) -> int:
        """An integer of a field."""
        low, top = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        number = (low, top)[self._end] if self._end is not None else self._number(name, low, top)
        if number in (low, top):
            self._ends.add((self._field_name, int(number == top)))
        return number

    def _number(self, name: str, low: int, top: int) -> int:
        extremes = (low, low + 1, -2, -1, 0, 1, 2, top - 2**16, top - 2**16 + 1, top - 1, top)
        found = self._drawn(name, extremes, lambda: self._random.randint(low, top))
        return found if isinstance(found, int) and low <= found <= top else self._random.choice((0, low, top))

    def text(self, name: str, longest: int = 200_000) -> str:
        found = self._drawn(name, TEXTS, lambda: "".join(map(chr, self._points())))
        text = found if isinstance(found, str) else self._random.choice(TEXTS)
        while len(text.encode()) > longest:
            text = text[: len(text) // 2]
        return text

    def raw(self, name: str) -> bytes:
        extremes = (b"", b"\0", b"\xff" * 16, bytes(16), bytes(70_000))
        found = self._drawn(name, extremes, lambda: self._random.randbytes(self._random.choice((1, 16, 64, 500))))
        return found if isinstance(found, bytes) else b""

    def length(self) -> int:
        """How many elements an array has."""
        return self._random.choices((0, 1, 2, 3, MANY), (15, 60, 15, 9, 1))[0]

    def _drawn(self, name: str, extremes: Sequence[Any], anything: Callable[[], Any]) -> Any:
        dice, known = self._random.random(), self._hints.get(name, ())
        if dice < PLAUSIBLE and known:
            return self._random.choice(known)
        return self._random.choice(extremes) if dice < EXTREME else anything()

    def _points(self) -> list[int]:
        some = self._random.choices(range(1, 0xD7FF), k=self._random.randrange(40))
        return [point if self._random.random() < 0.3 else 32 + point % 90 for point in some]

    def _field(self, entity_type: Any, shape: FieldShape) -> Any:
        if shape.nullable and self._random.random() < 0.12:
            return None
        if shape.tag is not None and self._random.random() < 0.3:
            return default_of(entity_type, shape)
        if not shape.is_array:
            return self._one(entity_type, shape)
        items = [self._one(entity_type, shape) for _ in range(self.length())]
        if items and self._random.random() < 0.1:
            items.append(self._random.choice(items))  # named twice
        return tuple(items)

    def _one(self, entity_type: Any, shape: FieldShape) -> Any:
        if shape.entity is not None:
            return self.entity(shape.entity)
        self._field_name = field_name(entity_type, shape)
        kind, name = shape.kafka_type, shape.name
        if kind in WIDTHS:
            unsigned = kind.startswith("u")
            return self.number(name, WIDTHS[kind] - unsigned, signed=not unsigned)
        return self._other(kind, name, shape)

    def _other(self, kind: str, name: str, shape: FieldShape) -> Any:
        if kind == "string":
            return self.text(name, 200_000 if shape.flexible else 32_767)
        if kind == "bool":
            return self._random.random() < 0.5
        if kind == "float64":
            drawn = self._drawn(name, FLOATS, lambda: self._random.uniform(-1e6, 1e6))
            return drawn if isinstance(drawn, float) else self._random.choice(FLOATS)
        if kind == "uuid":
            found = self._drawn(name, (None, uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)), lambda: None)
            return found if isinstance(found, uuid.UUID) else uuid.UUID(bytes=self._random.randbytes(16))
        if kind == "error_code":
            return self._random.choice((ErrorCode.none, ErrorCode.none, *ErrorCode))
        if kind.startswith("timedelta"):
            number = self.number(name, 32 if kind.endswith("i32") else 64)
            return dt.timedelta(milliseconds=max(-LONGEST_MS, min(LONGEST_MS, number)))
        if kind.startswith("datetime"):
            return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=self._random.randrange(2**43))
        return self.raw(name)

    def _fill(self, message: Any, field: Any) -> None:
        if field.has_presence and field.message_type is None and self._random.random() < 0.3:
            return
        if field.message_type is not None:
            self._fill_message(message, field)
        elif field.is_repeated:
            getattr(message, field.name).extend(self._scalar(field) for _ in range(self.length()))
        else:
            setattr(message, field.name, self._scalar(field))

    def _fill_message(self, message: Any, field: Any) -> None:
        if field.is_repeated:
            if not field.message_type.GetOptions().map_entry:
                for _ in range(self.length()):
                    self._fill_all(getattr(message, field.name).add())
        elif self._random.random() < 0.8:
            getattr(message, field.name).SetInParent()
            self._fill_all(getattr(message, field.name))

    def _fill_all(self, message: Any) -> None:
        for field in message.DESCRIPTOR.fields:
            self._fill(message, field)

    def _scalar(self, field: Any) -> Any:
        self._field_name = field.full_name
        kind = field.type
        if kind == FieldDescriptor.TYPE_BOOL:
            return self._random.random() < 0.5
        if kind == FieldDescriptor.TYPE_STRING:
            return self.text(field.name)
        if kind == FieldDescriptor.TYPE_BYTES:
            return self.raw(field.name)
        return self.number(field.name, 64 if kind == FieldDescriptor.TYPE_INT64 else 32)


def field_name(entity_type: Any, shape: FieldShape) -> str:
    """The same for all versions of a message."""
    return f"{entity_type.__module__.split('.')[2]} {entity_type.__name__}.{shape.name}"


def integer_fields(schema: Any) -> set[str]:
    """Names of all integers in a message, as `Hostile` reports them."""
    if hasattr(schema, "DESCRIPTOR"):
        return set(_of_proto(schema.DESCRIPTOR))
    return set(_of_entity(schema))


def _of_entity(entity_type: Any) -> Iterator[str]:
    for shape in shapes_of(entity_type):
        if shape.entity is not None:
            yield from _of_entity(shape.entity)
        elif shape.kafka_type in WIDTHS or shape.kafka_type.startswith("timedelta"):
            yield field_name(entity_type, shape)


def _of_proto(descriptor: Any) -> Iterator[str]:
    for field in descriptor.fields:
        if field.message_type is not None:
            if not field.message_type.GetOptions().map_entry:
                yield from _of_proto(field.message_type)
        elif field.type in _PROTO_INTEGERS:
            yield field.full_name
