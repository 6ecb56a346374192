"""One record of every type and version with every field set to something else than its default.

The same at each call, so that a golden file can hold the bytes.
"""

from __future__ import annotations

from typing import Any

from migrator.records import metadata as m
from migrator.records import schema as s
from migrator.records.primitives import Kind
from migrator.records.schema import Field, ListOf, Struct
from migrator.records.specs import SPECS
from migrator.records.uuid import Uuid

UUID = Uuid(bytes(range(101, 117)))

_BY_KIND: dict[str, Any] = {
    s.BOOLEAN.name: True,
    s.INT8.name: 1,
    s.INT16.name: 513,
    s.UINT16.name: 65_000,
    s.INT32.name: 70_000,
    s.INT64.name: 2**40 + 7,
    s.FLOAT64.name: 0.25,
    s.STRING.name: 'näme "quoted"\\',
    s.BYTES.name: b"\x00\xff",
    s.UUID.name: UUID,
    s.INT32_LIST.name: (3, 1, 2),
    s.UUID_LIST.name: (UUID, UUID),
}


def samples() -> list[tuple[m.MetadataRecord, int]]:
    """A record and its version for every version of every type."""
    return [(_struct(spec.struct, version), version) for spec in SPECS for version in range(spec.latest + 1)]


def _struct(struct: Struct, version: int) -> Any:
    return struct.build(**{field.name: _field(field, version) for field in struct.fields})


def _field(field: Field, version: int) -> Any:
    return _kind(field.kind, version) if field.since <= version else field.default


def _kind(kind: Kind | Struct | ListOf, version: int) -> Any:
    if isinstance(kind, Kind):
        return _BY_KIND[kind.name]
    if isinstance(kind, Struct):
        return _struct(kind, version)
    return (_kind(kind.item, version),)
