"""Which brokers a new leader does not fence yet although they send it no heartbeats, and for how long.

A broker in ZooKeeper mode waits up to 30 s for the answer to a heartbeat. If the controller that it asked hangs, the
broker lives and can tell nobody. For a while its answers to our requests count as its heartbeats: see ADR 47.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from migrator.image.model import BrokerRegistration, MetadataImage, PartitionRegistration
from migrator.records.metadata import ZkMigrationState
from migrator.turns import Turn

GRACE_MS: Final = 40_000
"""From when a leader became active. The broker needs 30 s to give up a heartbeat, and then finds the new leader."""
SESSIONS_BEFORE: Final = 2


def may_have_grace(image: MetadataImage, registration: BrokerRegistration) -> bool:
    """Whether its answers may count: a broker in KRaft mode waits for half a session only, and one that is fenced, or
    stops, leads nothing that it should keep."""
    return (
        image.features.zk_migration_state is ZkMigrationState.MIGRATION
        and registration.is_migrating_zk_broker
        and not registration.fenced
        and not registration.in_controlled_shutdown
    )


def is_proof(opened_ms: int, active_ms: int, timeout_ms: int) -> bool:
    """Whether it is the registered process that answers on a connection that was opened then, to a broker that has been
    unfenced since. If another process had taken its place before, the last leader would have missed its heartbeats for
    a session, and fenced it. The second session is for the time in which nobody led.

    :param active_ms: when this leader became active.
    """
    return opened_ms + SESSIONS_BEFORE * timeout_ms <= active_ms


def grace_ends_ms(answered_ms: int, active_ms: int, timeout_ms: int) -> int:
    """Until when a broker is not fenced whose last answer was to a request that was sent then."""
    return min(answered_ms + timeout_ms, active_ms + GRACE_MS)


def replaceable(image: MetadataImage, is_unclean: Callable[[str], bool]) -> Iterator[int | None]:
    """Brokers that are the only member of an ISR while a follower could lead, since the topic allows unclean elections:
    whoever allows them does not want to wait. Yields None where a turn is over.

    :param is_unclean: whether the topic of that name allows them.
    """
    turn = Turn()
    for topic in image.topics.by_id.values():
        partitions = topic.partitions.values() if is_unclean(topic.name) else ()
        for partition in partitions:
            if len(partition.isr) == 1 and _has_follower(image.cluster.brokers, partition):
                yield partition.isr[0]
        if turn.is_over(1 + len(partitions)):
            yield None


def _has_follower(brokers: Mapping[int, BrokerRegistration], partition: PartitionRegistration) -> bool:
    others = (brokers.get(replica) for replica in partition.replicas if replica not in partition.isr)
    return any(other is not None and not other.fenced for other in others)
