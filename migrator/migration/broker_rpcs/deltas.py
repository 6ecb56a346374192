"""The requests to brokers in ZooKeeper mode when the image changes.

Order matters, for each broker: deleted topics go first, since StopReplica knows no topic ids and would hit a new
topic of the same name; then the brokers; then leaders and followers, before clients hear of them; replicas that
moved away are deleted last.

A broker that comes back gets everything. Once image and ZooKeeper are known to agree, that includes deletions: a broker
that was only fenced may know topics that were deleted meanwhile. These deletions go first: a new topic with the same
name, or its deletion, would hide the old topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from migrator.image.model import ImageDelta, MetadataImage, PartitionRegistration, TopicImage
from migrator.migration.broker_rpcs.requests import (
    Outbox,
    RequestPlan,
    Terms,
    Told,
    Work,
    by_broker,
    closing_update,
    hosted,
    metadata_parts,
    partly_hosting,
    recipients,
    without,
)
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.turns import Turn, in_order
from migrator.wire.legacy.messages import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    StoppedPartition,
    StoppedTopic,
    StopReplica,
    TopicPartitions,
    UpdateType,
)


def plan_delta(delta: ImageDelta, terms: Terms, told: Told) -> Work[RequestPlan]:
    """Plan the requests that lead brokers from one image to the next."""
    before, after, changes = delta.before, delta.after, delta.changes
    old = recipients(before)
    outbox = Outbox(after, terms)
    fresh = {
        broker_id
        for broker_id, broker in outbox.recipients.items()
        if broker_id not in old or old[broker_id].epoch != broker.epoch
    }
    known = outbox.recipients.keys() - fresh
    changed = yield from _changed_partitions(delta)
    waiting = yield from _waiting(delta, told)

    if fresh and terms.confirmed:
        outbox.add(fresh, (yield from closing_update(outbox)))
    yield from _deletions(delta, outbox)
    if any(before.cluster.brokers.get(key) != after.cluster.brokers.get(key) for key in changes.brokers):
        outbox.add(known, outbox.update_metadata(UpdateType.UNKNOWN, ()))
    open_now = yield from _inform_fresh(outbox, fresh, replace(told, waiting=waiting))
    informed = known - told.uninformed
    topics_of = yield from by_broker(informed, (part for part in changed if part.topic.topic_id not in waiting))
    for broker_id, topics in topics_of.items():
        if topics:
            outbox.add([broker_id], outbox.leader_and_isr(UpdateType.INCREMENTAL, topics))
    if changed:
        outbox.add(known, outbox.update_metadata(UpdateType.INCREMENTAL, changed))
    yield from _removals(before, changed, outbox)
    return outbox.plan(open_now)


def _changed_partitions(delta: ImageDelta) -> Work[list[TopicPartitions]]:
    """The partitions that are new or differ, by topic."""
    result: list[TopicPartitions] = []
    turn = Turn()
    for topic_id, numbers in delta.changes.partitions.items():
        topic = delta.after.topics.by_id.get(topic_id)
        if topic is None:
            continue
        old, differing = _partitions(delta.before, topic_id), list[int]()
        for number in sorted(numbers):
            if old.get(number) != topic.partitions.get(number):
                differing.append(number)
            if turn.is_over():
                yield
        if differing:
            result.append(TopicPartitions(topic, differing))
    return result


def _partitions(image: MetadataImage, topic_id: Uuid) -> Mapping[int, PartitionRegistration]:
    topic = image.topics.by_id.get(topic_id)
    return {} if topic is None else topic.partitions


def _waiting(delta: ImageDelta, told: Told) -> Work[Mapping[Uuid, int]]:
    """The topics that wait for ZooKeeper after this delta: the earlier ones without deleted topics, and the new
    topics."""
    before, after = delta.before.topics.by_id, delta.after.topics.by_id
    waiting, turn = dict(told.waiting), Turn()  # thousands may wait: only changed ones are visited
    for topic_id in in_order(delta.changes.topics):  # LeaderAndIsr names them in this order later
        if topic_id is not None and topic_id not in after:
            waiting.pop(topic_id, None)
        elif topic_id is not None and topic_id not in before:
            waiting[topic_id] = delta.after.provenance.offset
        if topic_id is None or turn.is_over():
            yield
    return waiting


def _deletions(delta: ImageDelta, outbox: Outbox) -> Work[None]:
    """Plan the requests that remove deleted topics from the metadata caches, and their logs from the replicas."""
    before, after = delta.before.topics.by_id, delta.after.topics.by_id
    found, turn = list[TopicImage](), Turn()
    for topic_id in delta.changes.topics:
        if topic_id in before and topic_id not in after:
            found.append(before[topic_id])
        if turn.is_over():
            yield
    deleted, named = list[TopicImage](), list[TopicPartitions]()
    for topic in in_order(found, key=lambda topic: topic.name):
        if topic is not None:
            deleted.append(topic)
            named.append((yield from _as_deleted(topic, turn)))
        if topic is None or turn.is_over():
            yield
    if not deleted:
        return
    outbox.add(outbox.recipients, outbox.update_metadata(UpdateType.INCREMENTAL, named))
    yield from _stop(deleted, outbox)


def _stop(deleted: Iterable[TopicImage], outbox: Outbox) -> Work[None]:
    turn, topics_of = Turn(), (yield from hosted(outbox.recipients, deleted))
    for broker_id, topics in topics_of.items():
        stopped = list[StoppedTopic]()
        for part in topics:
            numbers = list[StoppedPartition]()
            for number, _ in part.states():
                numbers.append(StoppedPartition(number, EPOCH_DURING_DELETE, delete=True))
                if turn.is_over():
                    yield
            stopped.append(StoppedTopic(part.topic.name, tuple(numbers)))
        if stopped:
            outbox.add([broker_id], StopReplica(tuple(stopped)))


def _as_deleted(topic: TopicImage, turn: Turn) -> Work[TopicPartitions]:
    """The topic in the form by which UpdateMetadata deletes it. The id is zero: a broker that does not have the
    topic would otherwise keep its id."""
    partitions = {}
    for number, state in topic.partitions.items():
        partitions[number] = replace(state, leader=LEADER_DURING_DELETE, leader_epoch=0, partition_epoch=0)
        if turn.is_over():
            yield
    return TopicPartitions(TopicImage(topic.name, ZERO_UUID, partitions))


def _inform_fresh(outbox: Outbox, fresh: AbstractSet[int], told: Told) -> Work[Told]:
    """Plan everything for brokers that came back: the cluster's metadata, and one LeaderAndIsr with all partitions that
    they host.

    Topics that wait may have logs: before the reconcile all of them may, and later those that the broker made in KRaft
    mode. Before the reconcile a broker that hosts one gets no LeaderAndIsr yet; later it gets the other topics, and
    moves no log aside. Returns what brokers have not been told then.
    """
    if not fresh:
        return told
    for part in metadata_parts(outbox):
        if part is None:
            yield
        else:
            outbox.add(fresh, part)
    partly = yield from partly_hosting(fresh, outbox.image, told.waiting)
    later, partial = (frozenset[int](), partly) if outbox.terms.confirmed else (partly, frozenset[int]())
    topics_of = yield from hosted(fresh, without(outbox.image, told.waiting))
    for broker_id, topics in topics_of.items():
        if broker_id not in later:
            outbox.add_whole(broker_id, topics, complete=broker_id not in partial)
    return Told(told.waiting, told.uninformed - fresh | later, told.partial - fresh | partial)


def plan_again(image: MetadataImage, terms: Terms, told: Told, broker_ids: Collection[int]) -> Work[RequestPlan]:
    """Plan the full state for brokers that missed something, perhaps deletions.

    :param image: the image from which the last plan was made.
    """
    outbox = Outbox(image, terms)
    if terms.confirmed:
        outbox.add(broker_ids, (yield from closing_update(outbox)))
    return outbox.plan((yield from _inform_fresh(outbox, frozenset(broker_ids), told)))


def _removals(before: MetadataImage, changed: Iterable[TopicPartitions], outbox: Outbox) -> Work[None]:
    """Plan the StopReplica requests for replicas that are no longer assigned (KAFKA-16120)."""
    stops: dict[int, list[StoppedTopic]] = {}
    turn = Turn()
    for part in changed:
        old = _partitions(before, part.topic.topic_id)
        gone: dict[int, list[StoppedPartition]] = {}
        for number, state in part.states():
            was = old.get(number)
            if was is not None and was.replicas != state.replicas:
                for broker_id in set(was.replicas).difference(state.replicas):
                    gone.setdefault(broker_id, []).append(StoppedPartition(number, state.leader_epoch, delete=True))
            if turn.is_over():
                yield
        for broker_id, partitions in gone.items():
            stops.setdefault(broker_id, []).append(StoppedTopic(part.topic.name, tuple(partitions)))
    for broker_id, topics in sorted(stops.items()):
        outbox.add([broker_id], StopReplica(tuple(topics)))
