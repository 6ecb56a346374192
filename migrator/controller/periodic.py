"""The periodic decisions of a leader; `schedule` says when they are due. Source: Kafka's ``QuorumController``."""

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
    """Fence the broker that has been silent longest, if its session is over; the answer is its id. One broker at a
    time, so that each decision sees the one before. A broker with many partitions is fenced at the end of an errand."""
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
    """Elect any live replica for those of the partitions that have no leader and whose topics allow it."""
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
    """Elect a leader for those of the partitions that have none, although a replica that may lead is unfenced.

    Normally the unfencing of a broker does that. But brokers are unfenced before the copy, and the copy may bring
    partitions for which ZooKeeper's controller had no time to elect a leader. Kafka elects these at the next balancing
    of leaders, minutes later.
    """
    return Decision(None, tuple(leader_and_isr_changes(image, context, partitions)))


def no_op(image: MetadataImage, _: Context, _nothing: Iterable[object]) -> Decision[None]:
    """A NoOpRecord, whose commit shows that the quorum works."""
    return Decision(None, (NoOpRecord(),) if supports(image, MinLevel.NO_OP_RECORD) else ())


def sweep_tokens(image: MetadataImage, context: Context, token_ids: Iterable[str]) -> Decision[None]:
    """Remove those of these delegation tokens that are expired."""
    if secret_key(context.settings) is None or not supports(image, MinLevel.DELEGATION_TOKENS):
        return Decision(None)
    return Decision(None, tuple(expired_tokens(image, context, token_ids)))
