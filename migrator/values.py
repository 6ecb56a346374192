"""`@value`: the class decorator for immutable, slotted, hashable value types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

T = TypeVar("T")

if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True)
    def value(cls: type[T]) -> type[T]:
        """Frozen, to the type checker."""
        return cls
else:

    def value(cls):
        """Slotted and hashable. Not frozen at run time: a frozen constructor takes three times as long,
        and hundreds of thousands of these are built during a copy. The type checker refuses writes."""
        return dataclass(slots=True, unsafe_hash=True)(cls)


def fields_of(found: Any) -> dict[str, Any]:
    """The fields of a value by name; values in them stay values."""
    return {name: getattr(found, name) for name in type(found).__slots__}
