"""The grace of brokers that send a new leader no heartbeats yet: which ones are not fenced, and for how long.

A broker in ZooKeeper mode waits up to 30 s for the answer to a heartbeat. If the controller that it asked hangs, the
broker is alive but cannot send another one. For a while its answers to this controller's requests count as heartbeats
(ADR 47).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from migrator.image.model import BrokerRegistration, MetadataImage, PartitionRegistration
from migrator.records.metadata import ZkMigrationState
from migrator.turns import Turn

GRACE_MS: Final = 40_000
"""The longest grace after a leader became active: a broker gives up a heartbeat after 30 s and then finds the
leader."""
SESSIONS_BEFORE: Final = 2


def may_have_grace(image: MetadataImage, registration: BrokerRegistration) -> bool:
    """Whether the broker's answers may count. Not for a broker in KRaft mode, which waits only half a session for an
    answer, nor for a fenced or stopping one, which needs to keep no leadership."""
    return (
        image.features.zk_migration_state is ZkMigrationState.MIGRATION
        and registration.is_migrating_zk_broker
        and not registration.fenced
        and not registration.in_controlled_shutdown
    )


class Evidence:
    """Which connections to a broker that has been unfenced all the time lead to its registered process.

    If another process had replaced it before a connection was opened, a leader that went on for a session would have
    missed its heartbeats and fenced it. A second session is for the records of that. Leaders that led for less prove
    nothing, however many they were.
    """

    __slots__ = ("_epoch", "_proven_ms", "_seen_ms", "_since_ms", "_timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._epoch = -1
        self._since_ms = self._seen_ms = 0
        self._proven_ms = -1

    def leads(self, epoch: int, now_ms: int) -> None:
        """The leader of this epoch has committed something. After a silence of a session its time begins anew: nobody
        knows who of the two was asleep."""
        if epoch != self._epoch or now_ms - self._seen_ms > self._timeout_ms:
            self._epoch, self._since_ms = epoch, now_ms
        self._seen_ms = now_ms
        before_ms = now_ms - SESSIONS_BEFORE * self._timeout_ms
        if self._since_ms <= before_ms:
            self._proven_ms = before_ms

    def covers(self, opened_ms: int) -> bool:
        """Whether answers on a connection that was opened at ``opened_ms`` come from the registered process."""
        return opened_ms <= self._proven_ms


def grace_ends_ms(answered_ms: int, active_ms: int, timeout_ms: int) -> int:
    """The end of the grace of a broker whose last answer was to a request sent at ``answered_ms``."""
    return min(answered_ms + timeout_ms, active_ms + GRACE_MS)


def replaceable(image: MetadataImage, is_unclean: Callable[[str], bool]) -> Iterator[int | None]:
    """The brokers that are the only member of an ISR while the topic allows unclean elections, so that a follower could
    lead: such a topic prefers availability, and must not wait. Yields None where a turn is over.

    :param is_unclean: whether the topic of that name allows unclean elections.
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
