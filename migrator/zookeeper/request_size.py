"""How large a request may be, and how large an operation is in it. Pure."""

from __future__ import annotations

from migrator.zookeeper.ops import Create, Op, SetData

JUTE_MAXBUFFER = 1024 * 1024 - 1
"""Bytes of one request that a server takes by default; it closes the connection at a larger one."""
BYTES_MAX = 512 * 1024
"""Of a multi of several operations: half of that, as it also bounds the transaction that the server logs."""
OPS_MAX = 1_000
_OP_OVERHEAD = 80
"""Headers, lengths, an access control list: more than any operation has beside path and data."""
_GUARD_BYTES = 1_024
"""What a multi needs beside one large operation: checks, the mark, a chroot."""


def op_bytes(op: Op) -> int:
    """An upper bound of what the operation takes in a multi, without chroot."""
    data = op.data if isinstance(op, Create | SetData) else None
    return len(op.path.encode()) + len(data or b"") + _OP_OVERHEAD


def bytes_of_one(jute_maxbuffer: int) -> int:
    """How large one operation may be, by `op_bytes`, when it travels in a multi with nothing but checks."""
    return jute_maxbuffer - _GUARD_BYTES
