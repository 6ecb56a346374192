"""``/controller`` and ``/controller_epoch``: who controls the cluster, and how often the controller has changed. Pure.

The claim, the guards and tools decode and encode with it. A broker's claim is an ephemeral znode without a KRaft epoch;
a claim of a KRaft controller has one and is persistent. Epochs above `EPOCH_MAX` are never claimed. Source:
``kafka.zk.ControllerZNode`` and ``ControllerEpochZNode``.
"""

from __future__ import annotations

import orjson

from migrator.values import value
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.fields import INT32_MAX, Fields, parse_decimal, utf8

NO_KRAFT_EPOCH = -1
NOBODY = -1
"""The broker id in a claim without a controller, which only wakes the brokers."""

_REMEDY = "Let the brokers elect a controller: delete the znode once no KRaft quorum runs"
_EPOCH_REMEDY = (
    "Set it with a ZooKeeper client to a number above every controller_epoch in the partition states: "
    "brokers refuse requests with an older one"
)


@value
class ControllerClaim:
    """The claim of a controller. A broker's claim is ephemeral and has ``kraft_epoch`` -1."""

    broker_id: int
    timestamp_ms: int
    kraft_epoch: int = NO_KRAFT_EPOCH

    @property
    def is_broker(self) -> bool:
        """Whether a broker holds the claim, as the ZooKeeper controller."""
        return not self.is_kraft and self.broker_id != NOBODY

    @property
    def is_nobody(self) -> bool:
        """Whether the claim only wakes the brokers (`migrator.zookeeper.claim.Claimer.wake_brokers`)."""
        return not self.is_kraft and self.broker_id == NOBODY

    @property
    def is_kraft(self) -> bool:
        """Whether a KRaft controller holds the claim; brokers use the same test."""
        return self.kraft_epoch > 0


EPOCH_MAX = INT32_MAX - 2**16
"""The highest controller epoch that is claimed. Each claim takes the next one, and brokers' epochs have 32 bits."""


def decode_controller(path: str, data: bytes | None) -> ControllerClaim:
    """:raises ZnodeError: when it is not a claim of version 1 or 2."""
    fields = Fields.parse(path, data, _REMEDY)
    fields.version((1, 2), default=1)
    return ControllerClaim(
        broker_id=fields.integer("brokerid"),
        timestamp_ms=fields.decimal("timestamp", default=-1),
        kraft_epoch=fields.integer("kraftControllerEpoch", default=NO_KRAFT_EPOCH),
    )


def encode_controller(claim: ControllerClaim) -> bytes:
    """Version 2."""
    return orjson.dumps(
        {
            "version": 2,
            "brokerid": claim.broker_id,
            "timestamp": str(claim.timestamp_ms),
            "kraftControllerEpoch": claim.kraft_epoch,
        }
    )


def decode_controller_epoch(path: str, data: bytes | None) -> int:
    """:raises ZnodeError: when the epoch is not a number from 0."""
    epoch = parse_decimal(path, utf8(path, data, _EPOCH_REMEDY), "the controller epoch", _EPOCH_REMEDY)
    if not 0 <= epoch <= EPOCH_MAX:
        raise ZnodeError(path, f"the controller epoch {epoch} is out of range", _EPOCH_REMEDY)
    return epoch


def encode_controller_epoch(epoch: int) -> bytes:
    """Decimal text."""
    return b"%d" % epoch
