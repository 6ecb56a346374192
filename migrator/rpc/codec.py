"""The consensus core's messages <-> protobuf. Fields have the same names on both sides, so one rule serves all.

`raft_transport` and `quorum_service` call it. A message without a snapshot id that it needs, or with a malformed
directory id, is a `PeerError`; the core checks all other values. An optional field that is unset, for example by an
earlier release, becomes None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message
from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.raft import messages
from migrator.raft.messages import EpochOffset, RaftRequest, RaftResponse
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.rpc.stubs import quorum_pb2

REQUESTS = (
    messages.VoteRequest,
    messages.BeginQuorumEpochRequest,
    messages.EndQuorumEpochRequest,
    messages.FetchRequest,
    messages.FetchSnapshotRequest,
)
RESPONSES = (
    messages.VoteResponse,
    messages.BeginQuorumEpochResponse,
    messages.EndQuorumEpochResponse,
    messages.FetchResponse,
    messages.FetchSnapshotResponse,
)

_PROTOS: Mapping[type, Any] = {each: getattr(quorum_pb2, each.__name__) for each in (*REQUESTS, *RESPONSES)}
_MESSAGES: Mapping[str, Any] = {each.__name__: each for each in (*REQUESTS, *RESPONSES)}
_PLAIN = frozenset({"int", "bool", "bytes"})
"""Types of fields that are the same on both sides."""
_ERRORS = {code.value: code for code in ErrorCode}

_Load = Callable[[Any, str], Any]

_OPTIONAL = frozenset({"cluster_id", "diverging", "snapshot_id", "own_log"})
_ERROR_FIELDS = frozenset({"top_error", "error"})


def to_proto(message: RaftRequest | RaftResponse) -> Any:
    """The protobuf message of the same name."""
    values = {
        name: getattr(message, name) if load is None else _dump(getattr(message, name))
        for name, load in _FIELDS[type(message)]
    }
    return _PROTOS[type(message)](**values)


def from_proto(proto: Message) -> Any:
    """The core's message of the same name.

    :raises PeerError: a field has a value that cannot be.
    """
    message_type = _MESSAGES[proto.DESCRIPTOR.name]
    fields = _FIELDS[message_type]
    return message_type(*[getattr(proto, name) if load is None else load(proto, name) for name, load in fields])


def _dump(value: Any) -> Any:
    if isinstance(value, EpochOffset):
        return quorum_pb2.EpochOffset(epoch=value.epoch, offset=value.offset)
    if isinstance(value, messages.OwnLog):
        return quorum_pb2.OwnLog(end=_dump(value.end), must_fetch_first=value.must_fetch_first)
    return value


def _load_optional(proto: Any, name: str) -> Any:
    value = getattr(proto, name)
    if not proto.HasField(name):
        # Only a Fetch may lack a snapshot id: the other two messages need one.
        if name == "snapshot_id" and not isinstance(proto, quorum_pb2.FetchResponse):
            raise PeerError(f"{proto.DESCRIPTOR.name} without {name}")
        return None
    if isinstance(value, quorum_pb2.OwnLog):
        return messages.OwnLog(_epoch_offset(value.end), value.must_fetch_first)
    return _epoch_offset(value) if isinstance(value, quorum_pb2.EpochOffset) else value


def _loader(field: dataclasses.Field[Any]) -> _Load | None:
    """The function that reads a field; None where `getattr` is enough."""
    name = field.name
    if name in _OPTIONAL:
        return _load_optional
    if name in _ERROR_FIELDS:
        return lambda proto, name: _ERRORS.get(getattr(proto, name), ErrorCode.unknown_server_error)
    if name.endswith("directory_id"):
        return lambda proto, name: _uuid(getattr(proto, name))
    if name == "preferred_successors":
        return lambda proto, name: tuple(getattr(proto, name))
    if name == "successor_directories":
        return lambda proto, name: tuple(map(_uuid, getattr(proto, name)))
    return None if field.type in _PLAIN else getattr


def _epoch_offset(value: Any) -> EpochOffset:
    return EpochOffset(value.epoch, value.offset)


def _uuid(raw: bytes) -> Uuid:
    if len(raw) not in (0, 16):
        raise PeerError(f"a directory id has {len(raw)} bytes")
    return Uuid(raw) if raw else ZERO_UUID


_FIELDS: Mapping[type, tuple[tuple[str, _Load | None], ...]] = {
    each: tuple((field.name, _loader(field)) for field in dataclasses.fields(each)) for each in (*REQUESTS, *RESPONSES)
}
