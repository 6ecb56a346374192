"""Principals as a broker puts them into an envelope."""

from __future__ import annotations

import struct

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData

from migrator.wire.encode import encode_entity
from migrator.wire.principal import Principal


def encode_principal(principal: Principal) -> bytes:
    """The counterpart of `migrator.wire.principal.decode_principal`."""
    data = DefaultPrincipalData(
        type_=principal.kind, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return b"".join([struct.pack(">h", 0), *encode_entity(data)])
