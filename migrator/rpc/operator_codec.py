"""Values of `migrator.observe` <-> the messages of operator.proto and voters.proto.

The client and the services of operators call it. A field has the same name in the value and in the message. A field
without a value (None) is absent in the message.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from migrator.observe.status import BrokerStatus, VoterStatus
from migrator.values import fields_of

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
_INSTEAD = {VoterStatus: {"silent_ms": "heard_ms_ago"}, BrokerStatus: {"silent_ms": "heartbeat_age_ms"}}
"""Fields that a controller of an earlier release does not send, and the fields whose values replace them."""


def to_proto(message: Any, found: Any) -> Any:
    """The message of that class with the fields of a value."""
    return message(**_plain(found))


def from_proto(kind: type[T], message: Any) -> T:
    """The value of that class with the fields of a message.

    :raises ValueError: a role, or the state of a broker or plan, that this version does not know.
    """
    hints: Mapping[str, Any] = _hints(kind)  # type: ignore[arg-type]
    return kind(**{name: _read(kind, name, hint, message) for name, hint in hints.items()})


def member_of(kind: type[E], numbers: Any, number: int) -> E:
    """The member of an enum, from its number in a request.

    :param numbers: the enum of the protocol, whose names are those of the members.
    :raises ValueError: this version does not know the number.
    """
    name = numbers.Name(number) if number in numbers.values() else ""
    if name not in kind.__members__:
        raise ValueError(f"{kind.__name__} has no number {number}")
    return kind[name]


def _plain(item: Any) -> Any:
    """The arguments that protobuf takes: nested mappings and lists."""
    if is_dataclass(item):
        return {name: _plain(each) for name, each in fields_of(item).items() if each not in (None, ())}
    if isinstance(item, tuple):  # pairs are a map, as the details of an event
        return dict(item) if isinstance(item[0], tuple) else [_plain(each) for each in item]
    return item.name if isinstance(item, Enum) and not isinstance(item, str) else item


def _read(kind: Any, name: str, hint: Any, message: Any) -> Any:
    if get_origin(hint) is types.UnionType:
        return _value(get_args(hint)[0], getattr(message, name)) if message.HasField(name) else None
    instead = _INSTEAD.get(kind, {}).get(name)
    return _value(hint, getattr(message, name if instead is None or message.HasField(name) else instead))


def _value(hint: Any, item: Any) -> Any:
    if get_origin(hint) is tuple:
        return (
            tuple(sorted(item.items()))
            if isinstance(item, Mapping)
            else tuple(_value(get_args(hint)[0], each) for each in item)
        )
    if is_dataclass(hint):
        return from_proto(hint, item)  # type: ignore[arg-type]
    if not issubclass(hint, Enum):
        return item
    if issubclass(hint, str):
        return hint(item)
    if item not in hint.__members__:
        raise ValueError(f"{hint.__name__} {item!r}")
    return hint[item]


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)
