"""What a leader writes by the clock; `schedule` says when. Source: Kafka's ``QuorumController``."""

from __future__ import annotations

from itertools import islice
from typing import Final

from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision
from migrator.controller.delegation_tokens import expired_tokens, secret_key
from migrator.controller.effective import UncleanElections
from migrator.controller.elections import elect
from migrator.controller.heartbeats import fence
from migrator.controller.partition_change import ChangeRules, Election, PartitionTarget, leader_and_isr_changes
from migrator.image.model import MetadataImage
from migrator.records.metadata import NO_LEADER, MetadataRecord, NoOpRecord
from migrator.records.versions import MinLevel

MAX_ELECTIONS_PER_TURN: Final = 1_000
MAX_TOKENS_PER_TURN: Final = 10_000


def fence_silent_broker(image: MetadataImage, context: Context) -> Decision[int | None]:
    """Fence the broker that has been silent longest, if its session is over; the answer is its id. One at a time, so
    that each fencing sees the one before."""
    broker_id = context.sessions.stalest(image, context.now_ms)
    if broker_id is None:
        return Decision(None)
    return Decision(broker_id, fence(image, context, image.cluster.brokers[broker_id]), atomic=False)


def balance_leaders(image: MetadataImage, context: Context) -> Decision[bool]:
    """Move leadership to preferred replicas that can take it, at most 1,000 a turn; the answer is whether another turn
    should follow at once."""
    rules = ChangeRules(image, context)
    records: list[MetadataRecord] = []
    for topic_id, number in context.index.imbalanced:
        partition = image.topics.by_id[topic_id].partitions[number]
        preferred = partition.replicas[0] if partition.replicas else NO_LEADER
        if preferred not in partition.isr or not rules.can_lead(preferred, partition):
            continue
        record = rules.change((topic_id, number), partition, PartitionTarget(election=Election.PREFERRED))
        if record is not None:
            records.append(record)
            if len(records) >= MAX_ELECTIONS_PER_TURN:
                break
    return Decision(len(records) >= MAX_ELECTIONS_PER_TURN, tuple(records))


def elect_unclean_leaders(image: MetadataImage, context: Context) -> Decision[bool]:
    """Elect any living replica for partitions without a leader whose topics allow it, at most 1,000 a turn; the answer
    is whether another turn should follow at once."""
    rules, unclean = ChangeRules(image, context), UncleanElections(image, context)
    records = []
    for topic_id, number in context.index.leaderless:
        name = image.topics.by_id[topic_id].name
        if unclean.enabled(name):
            _, record = elect(image, rules, name, number, Election.UNCLEAN)
            if record is not None:
                records.append(record)
                if len(records) >= MAX_ELECTIONS_PER_TURN:
                    break
    return Decision(len(records) >= MAX_ELECTIONS_PER_TURN, tuple(records))


def elect_missing_leaders(image: MetadataImage, context: Context) -> Decision[bool]:
    """Give a leader to partitions that have none although a replica that may lead is unfenced, at most 1,000 a turn;
    the answer is whether another turn should follow at once.

    Otherwise that comes with a broker's unfencing. But brokers are unfenced before the copy, which then takes over what
    ZooKeeper's controller had no time to elect. Kafka leaves that to the next balancing of leaders, after minutes.
    """
    changes = leader_and_isr_changes(image, context, context.index.leaderless)
    records = tuple(islice(changes, MAX_ELECTIONS_PER_TURN))
    return Decision(len(records) >= MAX_ELECTIONS_PER_TURN, records)


def no_op(image: MetadataImage, _: Context) -> Decision[None]:
    """A record that shows that the quorum can still commit."""
    return Decision(None, (NoOpRecord(),) if supports(image, MinLevel.NO_OP_RECORD) else ())


def sweep_tokens(image: MetadataImage, context: Context) -> Decision[None]:
    """Remove expired delegation tokens."""
    if secret_key(context.settings) is None or not supports(image, MinLevel.DELEGATION_TOKENS):
        return Decision(None)
    return Decision(None, tuple(islice(expired_tokens(image, context), MAX_TOKENS_PER_TURN)))
