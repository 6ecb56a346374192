"""What a leader writes by the clock; `schedule` says when. Source: Kafka's ``QuorumController``."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision
from migrator.controller.delegation_tokens import expired_tokens, secret_key
from migrator.controller.effective import UncleanElections
from migrator.controller.elections import elect
from migrator.controller.errands import leaving, next_records
from migrator.controller.index import TopicPartition
from migrator.controller.partition_change import (
    ChangeRules,
    Election,
    PartitionTarget,
    leader_and_isr_changes,
    present,
)
from migrator.image.model import MetadataImage
from migrator.records.metadata import NO_LEADER, MetadataRecord, NoOpRecord
from migrator.records.versions import MinLevel


def fence_silent_broker(image: MetadataImage, context: Context) -> Decision[int | None]:
    """Fence the broker that has been silent longest, if its session is over; the answer is its id. One at a time, so
    that each fencing sees the one before. One with many partitions is fenced at the end of an errand."""
    broker_id = context.sessions.stalest(image, context.now_ms)
    if broker_id is None:
        return Decision(None)
    errand = leaving(context, image.cluster.brokers[broker_id], fences=True)
    if errand.is_last:
        return Decision(broker_id, tuple(next_records(image, context, errand)), atomic=False)
    return Decision(broker_id, note=lambda sessions, _end, _now: sessions.begin_errand(errand))


def balance_leaders(image: MetadataImage, context: Context, partitions: Iterable[TopicPartition]) -> Decision[None]:
    """Move leadership of these partitions to preferred replicas that can take it."""
    rules = ChangeRules(image, context)
    records: list[MetadataRecord] = []
    for where, _, partition in present(image, partitions):
        preferred = partition.replicas[0] if partition.replicas else NO_LEADER
        if preferred not in partition.isr or not rules.can_lead(preferred, partition):
            continue
        record = rules.change(where, partition, PartitionTarget(election=Election.PREFERRED))
        if record is not None:
            records.append(record)
    return Decision(None, tuple(records))


def elect_unclean_leaders(
    image: MetadataImage, context: Context, partitions: Iterable[TopicPartition]
) -> Decision[None]:
    """Elect any living replica for those of these partitions that have no leader and whose topics allow it."""
    rules, unclean = ChangeRules(image, context), UncleanElections(image, context)
    records: list[MetadataRecord] = []
    for where, topic, _ in present(image, partitions):
        if unclean.enabled(topic.name):
            _, record = elect(image, rules, topic.name, where[1], Election.UNCLEAN)
            if record is not None:
                records.append(record)
    return Decision(None, tuple(records))


def elect_missing_leaders(
    image: MetadataImage, context: Context, partitions: Iterable[TopicPartition]
) -> Decision[None]:
    """Give a leader to those of these partitions that have none although a replica that may lead is unfenced.

    Otherwise that comes with a broker's unfencing. But brokers are unfenced before the copy, which then takes over what
    ZooKeeper's controller had no time to elect. Kafka leaves that to the next balancing of leaders, after minutes.
    """
    return Decision(None, tuple(leader_and_isr_changes(image, context, partitions)))


def no_op(image: MetadataImage, _: Context, _nothing: Iterable[object]) -> Decision[None]:
    """A record that shows that the quorum can still commit."""
    return Decision(None, (NoOpRecord(),) if supports(image, MinLevel.NO_OP_RECORD) else ())


def sweep_tokens(image: MetadataImage, context: Context, token_ids: Iterable[str]) -> Decision[None]:
    """Remove those of these delegation tokens that are expired."""
    if secret_key(context.settings) is None or not supports(image, MinLevel.DELEGATION_TOKENS):
        return Decision(None)
    return Decision(None, tuple(expired_tokens(image, context, token_ids)))
