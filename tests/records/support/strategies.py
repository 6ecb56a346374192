"""Hypothesis strategies for records, made from the specs that the codec is compiled from.

A value is one that its version can carry, so encoding and decoding must return it.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from migrator.records import schema as s
from migrator.records.primitives import Kind
from migrator.records.schema import Field, ListOf, Struct
from migrator.records.specs import RecordSpec

_IDS = st.integers(min_value=-(2**31), max_value=2**31 - 1)
_UUIDS = st.binary(min_size=16, max_size=16)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=300)

_BY_KIND: dict[str, st.SearchStrategy[Any]] = {
    s.BOOLEAN.name: st.booleans(),
    s.INT8.name: st.integers(-128, 127),
    s.INT16.name: st.integers(-(2**15), 2**15 - 1),
    s.UINT16.name: st.integers(0, 2**16 - 1),
    s.INT32.name: _IDS,
    s.INT64.name: st.integers(-(2**63), 2**63 - 1),
    s.FLOAT64.name: st.floats(allow_nan=False),
    s.STRING.name: _TEXT,
    s.BYTES.name: st.binary(max_size=300),
    s.UUID.name: _UUIDS,
    s.INT32_LIST.name: st.lists(_IDS, max_size=200).map(tuple),
    s.UUID_LIST.name: st.lists(_UUIDS, max_size=140).map(tuple),
}


def structs(struct: Struct, version: int) -> st.SearchStrategy[Any]:
    """Values of a struct that the version can carry."""
    return st.builds(struct.build, **{field.name: _field(field, version) for field in struct.fields})


def records(spec: RecordSpec, version: int) -> st.SearchStrategy[Any]:
    """Records of that type that the version can carry."""
    return structs(spec.struct, version)


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.since > version:
        return st.just(field.default)
    content = _kind(field.kind, version)
    if field.tag is not None or field.nullable:
        content = st.one_of(st.just(field.default), content)
    return content


def _kind(kind: Kind | Struct | ListOf, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Kind):
        return _BY_KIND[kind.name]
    if isinstance(kind, Struct):
        return structs(kind, version)
    return st.lists(_kind(kind.item, version), max_size=3).map(tuple)
