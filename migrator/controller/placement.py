"""Places the replicas of new partitions: evenly over racks and brokers, leaders on unfenced brokers.

Within a rack the unfenced brokers come before the fenced ones. Racks and brokers are taken in stripes, each partition
beginning one further. After as many partitions as there are unfenced brokers the order is shuffled, so that not always
the same brokers share partitions. Source: Kafka's ``StripedReplicaPlacer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.image.model import BrokerRegistration, MetadataImage

if TYPE_CHECKING:
    from random import Random

Assignment = tuple[int, ...]
"""Broker ids of one partition's replicas, the preferred leader first."""


def place(image: MetadataImage, partitions: int, replication_factor: int, random: Random) -> list[Assignment]:
    """Assignments for that many new partitions.

    :raises RefusedError: INVALID_REPLICATION_FACTOR when it is not positive, there are fewer brokers, or none is
        unfenced.
    """
    usable = [broker for broker in image.cluster.brokers.values() if not is_shutting_down(broker)]
    if replication_factor <= 0:
        raise RefusedError(
            ErrorCode.invalid_replication_factor,
            f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
        )
    if all(broker.fenced for broker in usable):
        raise RefusedError(ErrorCode.invalid_replication_factor, "All brokers are currently fenced.")
    if replication_factor > len(usable):
        raise RefusedError(
            ErrorCode.invalid_replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only {len(usable)} "
            "broker(s) are registered.",
        )
    racks = _Racks(usable, random)
    return [racks.place(replication_factor) for _ in range(partitions)]


def is_shutting_down(broker: BrokerRegistration) -> bool:
    """Whether the broker is in controlled shutdown. A fenced broker counts as fenced only: it may come back."""
    return broker.in_controlled_shutdown and not broker.fenced


class _Stripe:
    """The fenced or the unfenced brokers of one rack. Each round of ``next`` begins one further than the one before."""

    __slots__ = ("_offset", "_round", "_taken", "brokers")

    def __init__(self, brokers: list[int], random: Random) -> None:
        self.brokers = sorted(brokers)
        self._offset = random.randrange(len(brokers)) if brokers else 0
        self._round = 0
        self._taken = 0

    def next(self, round_number: int) -> int | None:
        """A broker that was not yet taken in this round."""
        if not self.brokers:
            return None
        if self._round != round_number:
            self._round = round_number
            self._taken = 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._taken >= len(self.brokers):
            return None
        broker = self.brokers[(self._taken + self._offset) % len(self.brokers)]
        self._taken += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[BrokerRegistration], random: Random) -> None:
        self.unfenced = _Stripe([broker.broker_id for broker in brokers if not broker.fenced], random)
        self.fenced = _Stripe([broker.broker_id for broker in brokers if broker.fenced], random)

    def next(self, round_number: int) -> int | None:
        broker = self.unfenced.next(round_number)
        return self.fenced.next(round_number) if broker is None else broker


class _Racks:
    __slots__ = ("_offset", "_racks", "_random", "_round", "_unfenced")

    def __init__(self, brokers: list[BrokerRegistration], random: Random) -> None:
        by_name: dict[str | None, list[BrokerRegistration]] = {}
        for broker in brokers:
            by_name.setdefault(broker.rack, []).append(broker)
        names = sorted(by_name, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_name[name], random) for name in names]
        self._unfenced = sum(not broker.fenced for broker in brokers)
        self._random = random
        self._round = 0
        self._offset = random.randrange(len(names))

    def place(self, replication_factor: int) -> Assignment:
        """The replicas of the next partition."""
        if self._round and self._round % self._unfenced == 0 and self._unfenced > 1:
            self._shuffle()
        self._offset %= len(self._racks)
        leader_rack, leader = self._leader()
        replicas = [leader]
        rack, skip = self._offset, leader_rack
        while len(replicas) < replication_factor:
            broker = None
            if rack == skip:
                skip = -1  # the leader's rack is skipped in the first round only
            else:
                broker = self._racks[rack].next(self._round)
            if broker is not None:
                replicas.append(broker)
            rack = (rack + 1) % len(self._racks)
        self._round += 1
        self._offset += 1
        return tuple(replicas)

    def _leader(self) -> tuple[int, int]:
        for step in range(len(self._racks)):
            rack = (self._offset + step) % len(self._racks)
            broker = self._racks[rack].unfenced.next(self._round)
            if broker is not None:
                return rack, broker
        raise AssertionError("no unfenced broker")

    def _shuffle(self) -> None:
        self._random.shuffle(self._racks)
        for rack in self._racks:
            self._random.shuffle(rack.unfenced.brokers)
            self._random.shuffle(rack.fenced.brokers)
