"""Reads JSON znodes field by field. Errors name path and field, never the content.

Kafka reads them with Jackson through ``kafka.utils.json``: types are not converted, unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import orjson

from migrator.zookeeper.znodes.errors import ZnodeError

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UINT32_MAX = 2**32 - 1

JSON_BYTES_PER_CHARACTER = 6
"""The most bytes of a character in orjson's output: control characters take six, all others at most four."""

_DECIMAL = re.compile(r"[+-]?[0-9]{1,100}")


class Fields:
    """The fields of one JSON object in one znode."""

    __slots__ = ("_fields", "path", "remedy")

    def __init__(self, path: str, fields: Mapping[str, Any], remedy: str) -> None:
        self.path = path
        self.remedy = remedy
        self._fields = fields

    @classmethod
    def parse(cls, path: str, data: bytes | None, remedy: str) -> Fields:
        """:raises ZnodeError: when the data is missing or not a JSON object."""
        if not data:
            raise ZnodeError(path, "the znode has no data", remedy)
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ZnodeError(path, f"the data is not JSON: {error.msg} at character {error.pos}", remedy) from None
        if type(fields) is not dict:
            raise ZnodeError(path, "the data is JSON, but not an object", remedy)
        return cls(path, fields, remedy)

    def fault(self, fault: str) -> ZnodeError:
        return ZnodeError(self.path, fault, self.remedy)

    def version(self, supported: Collection[int], *, default: int | None = None) -> int:
        """The ``version`` field, or ``default`` if it is missing.

        :raises ZnodeError: it is missing without a default, or not supported.
        """
        if default is not None and "version" not in self._fields:
            return default
        version = self.integer("version")
        if version not in supported:
            known = ", ".join(map(str, supported))
            raise self.fault(f"version {version} is unknown (known: {known})")
        return version

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._fields.get(name) is not None

    def integer(self, name: str, low: int = INT32_MIN, high: int = INT32_MAX, *, default: int | None = None) -> int:
        """:raises ZnodeError: when missing without default, not a JSON integer, or out of range."""
        value = self._fields.get(name, default)
        if type(value) is not int or not low <= value <= high:
            raise self.fault(f"field {name!r} is not an integer from {low} to {high}")
        return value

    def long(self, name: str) -> int:
        """:raises ZnodeError: as `integer`, for 64 bits."""
        return self.integer(name, INT64_MIN, INT64_MAX)

    def decimal(self, name: str, *, default: int | None = None) -> int:
        """A 64-bit integer that is stored as text.

        :raises ZnodeError: when missing without default, or not such a text.
        """
        if default is not None and not self.has(name):
            return default
        return parse_decimal(self.path, self.text(name), f"field {name!r}", self.remedy)

    def text(self, name: str) -> str:
        """:raises ZnodeError: when missing or not a JSON string."""
        value = self._fields.get(name)
        if type(value) is not str:
            raise self.fault(f"field {name!r} is not a string")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """:raises ZnodeError: when missing or not an array of strings."""
        value = self._fields.get(name)
        if type(value) is not list or not all(type(item) is str for item in value):
            raise self.fault(f"field {name!r} is not an array of strings")
        return tuple(value)

    def text_map(self, name: str) -> dict[str, str]:
        """{} when the field is missing or null. :raises ZnodeError: when the field is not an object with string
        values."""
        value = self.mapping(name)
        for key, item in value.items():
            if type(item) is not str:
                raise self.fault(f"the value of {key!r} in field {name!r} is not a string")
        return dict(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """{} when the field is missing or null. :raises ZnodeError: when the field is not an object."""
        value = self._fields.get(name)
        if value is None:
            return {}
        if type(value) is not dict:
            raise self.fault(f"field {name!r} is not an object")
        return value

    def broker_ids(self, name: str) -> tuple[int, ...]:
        """:raises ZnodeError: when missing or not an array of different broker ids."""
        value = self._fields.get(name)
        if type(value) is not list:
            raise self.fault(f"field {name!r} is not an array")
        try:
            return broker_ids(*value)
        except (ValueError, TypeError):
            raise self.fault(f"field {name!r} is not a list of broker ids") from None

    def objects(self, name: str) -> list[Fields]:
        """:raises ZnodeError: when missing or not an array of objects."""
        value = self._fields.get(name)
        if type(value) is not list or not all(type(item) is dict for item in value):
            raise self.fault(f"field {name!r} is not an array of objects")
        return [Fields(self.path, item, self.remedy) for item in value]


def parse_decimal(path: str, text: str, what: str, remedy: str) -> int:
    """A 64-bit integer in decimal text, as Java's ``Long.parseLong`` accepts it: with a sign, or with leading zeros.

    :raises ZnodeError: when it is not one.
    """
    if _DECIMAL.fullmatch(text):
        value = int(text)
        if INT64_MIN <= value <= INT64_MAX:
            return value
    raise ZnodeError(path, f"{what} is not an integer in text", remedy)


@lru_cache(maxsize=1 << 16, typed=True)
def broker_ids(*ids: int) -> tuple[int, ...]:
    """A list of broker ids. Equal lists are one object: a cluster has far fewer different assignments than partitions.

    :raises ValueError: an id is not an integer, is negative, or is there twice.
    """
    if not all(type(broker) is int and 0 <= broker <= INT32_MAX for broker in ids):
        raise ValueError("broker ids are integers from 0")
    if len(set(ids)) != len(ids):
        raise ValueError("a broker id is listed twice")
    return ids


def utf8(path: str, data: bytes | None, remedy: str) -> str:
    """Plain text of a znode.

    :raises ZnodeError: when there is none or it is not UTF-8.
    """
    if not data:
        raise ZnodeError(path, "the znode has no data", remedy)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ZnodeError(path, f"the data is not UTF-8 text at byte {error.start}", remedy) from None
