"""Kafka's KafkaPrincipal: the name of an authenticated peer, and its bytes in an Envelope (KIP-590).

Listeners make it, and authorization compares its text with rules. Bytes from a broker are decoded strictly: anything
unexpected is a `PeerError`.
"""

from __future__ import annotations

import struct

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData

from migrator.errors import PeerError
from migrator.values import value
from migrator.wire.decode import decode_exactly

_VERSION = struct.Struct(">h")


@value
class Principal:
    """``kind`` is ``User`` with Kafka's own principal builder."""

    kind: str
    name: str
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


def decode_principal(data: bytes) -> Principal:
    """Decode a principal that a broker with the default principal builder has serialized.

    :raises PeerError: the version is unknown, or the bytes are malformed.
    """
    if len(data) < _VERSION.size:
        raise PeerError("a principal has fewer than two bytes")
    (version,) = _VERSION.unpack_from(data)
    if version != 0:
        raise PeerError(f"a principal has version {version}; only version 0 is known")
    decoded = decode_exactly(DefaultPrincipalData, data, _VERSION.size)
    return Principal(decoded.type_, decoded.name, decoded.token_authenticated)
