"""``/latest_producer_id_block``: the block of producer ids that was assigned last. Pure.

Copy, write-behind and `verify` use it. An id that was handed out must never be handed out again, so data that does not
decode is a `ZnodeError`. Source: ``kafka.zk.ProducerIdBlockZNode``.
"""

from __future__ import annotations

import orjson

from migrator.values import value
from migrator.zookeeper.znodes.fields import INT64_MAX, Fields

BLOCK_SIZE = 1000
_REMEDY = (
    "Ids that were handed out must not be handed out again: restore the block with a ZooKeeper client "
    "from the highest producer id in use, or delete the znode and create it without data if none ever was"
)


@value
class ProducerIdBlock:
    """The block that was assigned last, both ends included; ``broker`` is -1 when a KRaft controller wrote it."""

    broker: int
    start: int
    end: int

    @property
    def next_id(self) -> int:
        """The first id that was never assigned."""
        return self.end + 1


def decode_producer_ids(path: str, data: bytes | None) -> ProducerIdBlock | None:
    """Decode a block; None when no block was ever assigned (a znode without data).

    :raises ZnodeError: the data is not a block. Data of length 0 is not null, and brokers cannot read it, either.
    """
    if data is None:
        return None
    fields = Fields.parse(path, data, _REMEDY)
    block = ProducerIdBlock(fields.integer("broker"), fields.decimal("block_start"), fields.decimal("block_end"))
    if not 0 <= block.start <= block.end < INT64_MAX:
        raise fields.fault(f"the block from {block.start} to {block.end} is not a range of producer ids")
    return block


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Version 1."""
    return orjson.dumps(
        {"version": 1, "broker": block.broker, "block_start": str(block.start), "block_end": str(block.end)}
    )
