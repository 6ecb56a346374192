"""The limit of a request's size, and the size of an operation in it. Pure."""

from __future__ import annotations

from migrator.zookeeper.ops import Create, Op, SetData

JUTE_MAXBUFFER = 1024 * 1024 - 1
"""The most bytes of a request by default. A server closes the connection at a larger one."""
BYTES_MAX = 512 * 1024
"""The most bytes of a multi with several operations: half of the limit, which also bounds the server's transaction."""
OPS_MAX = 1_000
_OP_OVERHEAD = 80
"""An upper bound for the bytes of an operation in addition to path and data: headers, lengths, an access control
list."""
_GUARD_BYTES = 1_024
"""The bytes that a multi needs in addition to one large operation: checks, ``/migration``, a chroot."""


def op_bytes(op: Op) -> int:
    """An upper bound of the operation's bytes in a multi, without chroot."""
    data = op.data if isinstance(op, Create | SetData) else None
    return len(op.path.encode()) + len(data or b"") + _OP_OVERHEAD


def bytes_of_one(jute_maxbuffer: int) -> int:
    """The most bytes of an operation, by `op_bytes`, that is alone in a multi with its checks."""
    return jute_maxbuffer - _GUARD_BYTES
