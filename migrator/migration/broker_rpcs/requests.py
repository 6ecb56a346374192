"""The requests to brokers in ZooKeeper mode, at a takeover and for the full state. Pure: images in, requests out.

Planning visits every partition, so each planner is a generator: it yields nothing after every few thousand partitions,
so that the caller can do other work, and returns the `RequestPlan`. A broker's requests must reach it in their order,
one plan after the other. Rules that hold in every plan:

* Recipients are registered as migrating and unfenced. Others get everything when they come back.
* Each UpdateMetadata names all registered brokers, for it replaces the list, and topics with their ids.
* A topic whose creation has not reached ZooKeeper yet gets no LeaderAndIsr: brokers read its configuration there
  when they create the log, and might find a namesake's. It is in `Told.waiting` until `plan_released`.
* A LeaderAndIsr of type 2 names every partition that the image assigns to the broker, for the broker moves all other
  logs aside. A broker that hosts a topic that waits gets type 1, and type 2 when none of its topics waits any more.

Source: KIP-866, Kafka's ``MigrationPropagator`` and, for what brokers make of it, ``ReplicaManager`` and
``ZkMetadataCache``. Unlike stock controllers, this deletes topics before it creates their namesakes, lets new
topics wait for ZooKeeper, tells brokers that come back what to drop, and leaves no broker out of the full requests.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from immutables import Map

from migrator.image.model import BrokerRegistration, MetadataImage, TopicImage
from migrator.records.uuid import Uuid
from migrator.turns import Turn
from migrator.values import value
from migrator.wire.legacy.messages import (
    LeaderAndIsr,
    LegacyRequest,
    LiveLeader,
    TopicPartitions,
    UpdateMetadata,
    UpdateType,
)

PART_BYTES: Final = 10 * 2**20
"""About how big a part of a split UpdateMetadata is. For each part a broker copies its metadata cache."""

T = TypeVar("T")
Work = Generator[None, None, T]


@value
class Terms:
    """The input of a plan beside images.

    :ivar listener: name of the listener between brokers.
    :ivar confirmed: image and ZooKeeper were reconciled and `plan_full` went out, so a broker that comes back may
        be told to delete what it should no longer have.
    :ivar without_topic_ids: brokers that have logs without a topic id, on which a LeaderAndIsr of type 2 fails as
        a whole; they get type 1.
    """

    listener: str
    confirmed: bool = False
    without_topic_ids: frozenset[int] = frozenset()


@value
class Told:
    """Changes that brokers have not been told yet, beside the image from which the last plan was made.

    :ivar waiting: topics without LeaderAndIsr, each with the offset that has to be in ZooKeeper first.
    :ivar uninformed: brokers that have started, and of whose partitions only some could be sent. They get no
        LeaderAndIsr: if the first one is not complete, a broker forgets the high watermarks of the other partitions.
    :ivar partial: brokers that got a LeaderAndIsr of type 1 in place of type 2, because they host topics that wait.
    """

    waiting: Mapping[Uuid, int] = Map()
    uninformed: frozenset[int] = frozenset()
    partial: frozenset[int] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether something has not been told yet."""
        return bool(self.waiting or self.uninformed or self.partial)

    def is_due(self, offset: int) -> bool:
        """Whether some of it can be told when ZooKeeper holds everything up to ``offset``."""
        return any(after <= offset for after in self.waiting.values()) if self.waiting else self.is_open


NOTHING_OPEN: Final = Told()


@value
class Addressed:
    """Requests for one broker, in order. UpdateMetadata objects may be the same for several brokers."""

    broker_id: int
    broker_epoch: int
    requests: tuple[LegacyRequest, ...]


@value
class RequestPlan:
    sends: tuple[Addressed, ...]
    told: Told


class Outbox:
    """Gathers the requests of a plan by recipient."""

    def __init__(self, image: MetadataImage, terms: Terms) -> None:
        self.image = image
        self.terms = terms
        self.recipients = recipients(image)
        self.brokers = tuple(broker for _, broker in sorted(image.cluster.brokers.items()))
        self._leaders = tuple(
            LiveLeader(broker.broker_id, end.host, end.port)
            for broker in self.brokers
            for end in broker.listeners
            if end.name == terms.listener
        )
        self._requests: dict[int, list[LegacyRequest]] = {broker_id: [] for broker_id in sorted(self.recipients)}

    def add(self, broker_ids: Iterable[int], request: LegacyRequest) -> None:
        """Queue a request for those of the brokers that are recipients."""
        for broker_id in broker_ids:
            if broker_id in self._requests:
                self._requests[broker_id].append(request)

    def update_metadata(self, kind: UpdateType, topics: Iterable[TopicPartitions]) -> UpdateMetadata:
        """An UpdateMetadata that names every registered broker."""
        return UpdateMetadata(kind, tuple(topics), self.brokers)

    def leader_and_isr(self, kind: UpdateType, topics: Iterable[TopicPartitions]) -> LeaderAndIsr:
        """A LeaderAndIsr; its live leaders are all registered brokers, as a superset does no harm."""
        return LeaderAndIsr(kind, tuple(topics), self._leaders)

    def add_whole(self, broker_id: int, topics: Sequence[TopicPartitions], *, complete: bool) -> None:
        """Queue one LeaderAndIsr for a broker that has to hear of all its partitions.

        :param complete: whether the topics are all that the image assigns to the broker.
        """
        refuses = broker_id in self.terms.without_topic_ids or not self.terms.confirmed
        kind = UpdateType.INCREMENTAL if refuses or not complete else UpdateType.FULL
        if topics or kind is UpdateType.FULL:
            self.add([broker_id], self.leader_and_isr(kind, topics))

    def plan(self, told: Told) -> RequestPlan:
        """The finished plan, without recipients that get nothing."""
        uninformed, partial = (ids.intersection(self.recipients) for ids in (told.uninformed, told.partial))
        sends = (
            Addressed(broker_id, self.recipients[broker_id].epoch, tuple(requests))
            for broker_id, requests in self._requests.items()
            if requests
        )
        return RequestPlan(tuple(sends), Told(told.waiting, uninformed, partial))


def first_updates(image: MetadataImage, terms: Terms) -> Iterator[tuple[Addressed, ...]]:
    """Plan the first UpdateMetadata requests of a new leader, one part after the other: brokers hear of the first
    topics while the rest is planned. A part without requests only ends a turn."""
    outbox = Outbox(image, terms)
    for part in metadata_parts(outbox):
        to = () if part is None else sorted(outbox.recipients.items())
        yield tuple(Addressed(broker_id, broker.epoch, (part,)) for broker_id, broker in to if part is not None)


def plan_takeover(
    image: MetadataImage, terms: Terms, has_config: Container[str], predecessor_offset: int
) -> Work[RequestPlan]:
    """Plan the requests of a new leader that follow `first_updates`. It has not compared its image with ZooKeeper yet:
    they delete nothing on a broker.

    :param has_config: names of the topics with a znode below ``/config/topics``.
    :param predecessor_offset: the last offset of which the leader before us may have told brokers; a broker that
        registered after it has heard nothing yet.
    """
    outbox = Outbox(image, terms)
    offset = image.provenance.offset
    waiting, turn = {}, Turn()
    for name, topic_id in image.topics.ids.items():
        if name not in has_config:
            waiting[topic_id] = offset
        if turn.is_over():
            yield
    ready = yield from hosted(outbox.recipients, without(image, waiting))
    new = {broker.broker_id for broker in outbox.recipients.values() if broker.epoch > predecessor_offset}
    uninformed = yield from partly_hosting(new, image, waiting)
    for broker_id, topics in ready.items():
        if topics and broker_id not in uninformed:
            outbox.add([broker_id], outbox.leader_and_isr(UpdateType.INCREMENTAL, topics))
    return outbox.plan(Told(waiting, uninformed))


def plan_full(image: MetadataImage, terms: Terms, told: Told, offset: int) -> Work[RequestPlan]:
    """Plan the full state, after image and ZooKeeper have been reconciled. Logs that it does not name become strays on
    a broker, and topics that it does not name leave its cache. Partitions in the cache are up to date by then, so the
    closing UpdateMetadata names topics only; it is never split. One fault stays: when the leader before us deleted a
    topic and created it with fewer partitions, and a running broker heard nothing of that, the other partitions stay in
    its cache.

    :param image: the one that the last plan was made of.
    :param offset: up to where ZooKeeper holds the log after the reconcile; only topics that were created later go on
        waiting.
    """
    outbox = Outbox(image, Terms(terms.listener, confirmed=True, without_topic_ids=terms.without_topic_ids))
    waiting = still_waiting(told, offset)
    partial = yield from partly_hosting(outbox.recipients, image, waiting)
    uninformed = told.uninformed & partial
    assigned = yield from hosted(outbox.recipients.keys() - uninformed, without(image, waiting))
    for broker_id, topics in assigned.items():
        outbox.add_whole(broker_id, topics, complete=broker_id not in partial)
    outbox.add(outbox.recipients, (yield from closing_update(outbox)))
    return outbox.plan(Told(waiting, uninformed, partial - uninformed))


def plan_released(image: MetadataImage, terms: Terms, told: Told, offset: int) -> Work[RequestPlan]:
    """ZooKeeper has caught up to ``offset`` (inclusive): plan LeaderAndIsr of the topics that waited for it, and the
    whole state for incomplete brokers of which no topic waits any more.

    :param image: the one that the last plan was made of.
    """
    outbox = Outbox(image, terms)
    by_id = image.topics.by_id
    waiting = still_waiting(told, offset)
    released = [by_id[topic_id] for topic_id in told.waiting if topic_id not in waiting and topic_id in by_id]
    due = told.uninformed | told.partial
    completed = due - (yield from partly_hosting(due, image, waiting))
    topics_of = yield from hosted(outbox.recipients.keys() - told.uninformed - completed, released)
    for broker_id, topics in topics_of.items():
        if topics:
            outbox.add([broker_id], outbox.leader_and_isr(UpdateType.INCREMENTAL, topics))
    if completed:
        for broker_id, topics in (yield from hosted(completed, without(image, waiting))).items():
            outbox.add_whole(broker_id, topics, complete=True)
    return outbox.plan(Told(waiting, told.uninformed - completed, told.partial - completed))


def still_waiting(told: Told, offset: int) -> Mapping[Uuid, int]:
    """The topics that wait when ZooKeeper holds everything up to ``offset``."""
    return {topic_id: after for topic_id, after in told.waiting.items() if after > offset}


def recipients(image: MetadataImage) -> Mapping[int, BrokerRegistration]:
    """The brokers that take these requests, by id."""
    return {
        broker_id: broker
        for broker_id, broker in image.cluster.brokers.items()
        if broker.is_migrating_zk_broker and not broker.fenced
    }


def without(image: MetadataImage, topic_ids: Container[Uuid]) -> Iterable[TopicImage]:
    """All topics except these."""
    return (topic for topic_id, topic in image.topics.by_id.items() if topic_id not in topic_ids)


def hosted(broker_ids: Iterable[int], topics: Iterable[TopicImage]) -> Work[dict[int, list[TopicPartitions]]]:
    """The partitions that each of the brokers hosts, by topic; brokers without any have an empty list."""
    return by_broker(broker_ids, (TopicPartitions(topic) for topic in topics))


def partly_hosting(broker_ids: Iterable[int], image: MetadataImage, topic_ids: Iterable[Uuid]) -> Work[frozenset[int]]:
    """The brokers that host a partition of the topics."""
    by_id = image.topics.by_id
    topics_of = yield from hosted(broker_ids, (by_id[topic_id] for topic_id in topic_ids if topic_id in by_id))
    return frozenset(broker_id for broker_id, topics in topics_of.items() if topics)


def by_broker(broker_ids: Iterable[int], topics: Iterable[TopicPartitions]) -> Work[dict[int, list[TopicPartitions]]]:
    """The partitions, by each of the brokers that hosts a replica of them."""
    result: dict[int, list[TopicPartitions]] = {broker_id: [] for broker_id in sorted(broker_ids)}
    turn = Turn()
    for part in topics:
        numbers: dict[int, list[int]] = {}
        for number, state in part.states():
            for replica in state.replicas:
                if replica in result:
                    numbers.setdefault(replica, []).append(number)
            if turn.is_over():
                yield
        for replica, hosted_numbers in numbers.items():
            result[replica].append(TopicPartitions(part.topic, hosted_numbers))
    return result


def metadata_parts(outbox: Outbox) -> Iterator[UpdateMetadata | None]:
    """All topics of the image in UpdateMetadata requests of type 0, the only type that may be split; None where a turn
    is over. There is at least one request, because it also names the brokers."""
    topics: list[TopicPartitions] = []
    size, begun, turn = 0, False, Turn()
    for topic in outbox.image.topics.by_id.values():
        topics.append(TopicPartitions(topic))
        size += 32 + len(topic.name) + sum(30 + 8 * len(state.replicas) for state in topic.partitions.values())
        if size >= PART_BYTES:
            yield outbox.update_metadata(UpdateType.UNKNOWN, topics)
            topics, size, begun = [], 0, True
        if turn.is_over(1 + len(topic.partitions)):
            yield None
    if topics or not begun:
        yield outbox.update_metadata(UpdateType.UNKNOWN, topics)


def closing_update(outbox: Outbox) -> Work[UpdateMetadata]:
    """The UpdateMetadata of type 2: every topic id, no partitions."""
    topics, turn = [], Turn()
    for topic in outbox.image.topics.by_id.values():
        topics.append(TopicPartitions(topic, ()))
        if turn.is_over():
            yield
    return outbox.update_metadata(UpdateType.FULL, topics)
