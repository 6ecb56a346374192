"""``/brokers/topics/<topic>/partitions/<partition>/state``: leader, ISR and epochs of a partition. Pure.

Copy, reconcile, checks and `verify` decode with it. The partition epoch is not in the data: it is the data version of
the znode. There are hundreds of thousands, so the usual form has a fast path. Source:
``kafka.zk.TopicPartitionStateZNode``.
"""

from __future__ import annotations

from functools import lru_cache

import orjson

from migrator.values import value
from migrator.zookeeper.znodes.fields import INT32_MAX, INT32_MIN, Fields, broker_ids

_REMEDY = (
    "Restore what the brokers report with 'migrator repair partition-states'. Do not delete the znode: brokers ignore "
    "a state that is older than the one they know"
)


@value
class PartitionState:
    """``leader`` is -1 when there is none; ``recovering`` after an unclean election (KIP-704)."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    recovering: bool = False


def decode_partition_state(path: str, data: bytes | None) -> PartitionState:
    """Decode a partition's state. There are hundreds of thousands, few of which differ, so the usual form is decoded
    once. Brokers ignore the version.

    :raises ZnodeError: the data is not the state of a partition.
    """
    return _usual(data or b"") or _decode_with_care(path, data)


@lru_cache(maxsize=1 << 16)
def _usual(data: bytes) -> PartitionState | None:
    """The state in the usual form; None for another form, and for what is no state."""
    try:
        fields = orjson.loads(data)
        leader, leader_epoch, controller_epoch = fields["leader"], fields["leader_epoch"], fields["controller_epoch"]
        isr = fields["isr"]
        if (
            len(fields) == 5
            and fields["version"] == 1
            and type(leader) is type(leader_epoch) is type(controller_epoch) is int
            and -1 <= leader <= INT32_MAX
            and 0 <= leader_epoch <= INT32_MAX
            and INT32_MIN <= controller_epoch <= INT32_MAX
            and type(isr) is list
        ):
            return PartitionState(leader, leader_epoch, controller_epoch, broker_ids(*isr))
    except (orjson.JSONDecodeError, ValueError, LookupError, TypeError):
        pass
    return None


def _decode_with_care(path: str, data: bytes | None) -> PartitionState:
    fields = Fields.parse(path, data, _REMEDY)
    recovery = fields.integer("leader_recovery_state", 0, 1, default=0)
    return PartitionState(
        leader=fields.integer("leader", -1),
        leader_epoch=fields.integer("leader_epoch", 0),
        controller_epoch=fields.integer("controller_epoch"),
        isr=fields.broker_ids("isr"),
        recovering=recovery == 1,
    )


def encode_partition_state(state: PartitionState) -> bytes:
    """Version 1; the recovery state is written only while recovering, as Kafka does."""
    fields = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": state.isr,
    }
    if state.recovering:
        fields["leader_recovery_state"] = 1
    return orjson.dumps(fields)
