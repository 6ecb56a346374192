"""A cluster whose brokers take the requests of plans, and a random history of what happens to it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeVar

from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, ImageDelta, MetadataImage, Provenance
from migrator.migration.broker_rpcs.deltas import plan_delta
from migrator.migration.broker_rpcs.requests import NOTHING_OPEN, RequestPlan, T, Terms, Work, plan_released, recipients
from migrator.records import metadata as rec
from migrator.records.uuid import Uuid
from migrator.wire.legacy.messages import LeaderAndIsr
from tests.image.support.strategies import small_uuid
from tests.migration.support.zk_broker import Replica, ZkBroker

E = TypeVar("E")


def complete(work: Work[T]) -> T:
    """Run a planner to its end."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result


def change(base: MetadataImage, *records: rec.MetadataRecord) -> ImageDelta:
    builder = ImageBuilder(base)
    for record in records:
        builder.replay(record)
    after, changes = builder.build(Provenance(base.provenance.offset + len(records), 1, 0))
    return ImageDelta(base, after, changes)


def broker(broker_id: int, epoch: int, *, migrating: bool = True, fenced: bool = False) -> rec.RegisterBrokerRecord:
    listeners = (rec.Endpoint("PLAINTEXT", f"host{broker_id}", 9092, 0), rec.Endpoint("CLIENTS", "c", 9093, 1))
    return rec.RegisterBrokerRecord(broker_id, migrating, small_uuid(epoch), epoch, listeners, (), None, fenced)


def partition(topic_id: Uuid, number: int, *replicas: int) -> rec.PartitionRecord:
    return rec.PartitionRecord(number, topic_id, replicas, replicas, (), (), replicas[0], 0, 5, 7)


class Cluster:
    """Brokers beside the image that they are told of."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.told = NOTHING_OPEN
        self.confirmed = False
        """Whether the full state has been sent."""
        self.brokers = {broker_id: ZkBroker(broker_id) for broker_id in range(5)}

    def assigned(self, broker_id: int) -> dict[Replica, Uuid]:
        """The logs that a broker should have."""
        return {
            (topic.name, number): topic.topic_id
            for topic in self.image.topics.by_id.values()
            for number, state in topic.partitions.items()
            if broker_id in state.replicas
        }

    def deliver(self, plan: RequestPlan) -> None:
        """Let the brokers handle a plan."""
        self.told = plan.told
        allowed = recipients(self.image)
        for send in plan.sends:
            broker = self.brokers[send.broker_id]
            assert allowed[send.broker_id].epoch == send.broker_epoch
            for request in send.requests:
                if isinstance(request, LeaderAndIsr) and not broker.heard_leader_and_isr:
                    self.check_first(broker, request)
                broker.handle(request)
            self.check_dropped(broker)

    def check_first(self, broker: ZkBroker, request: LeaderAndIsr) -> None:
        """A first LeaderAndIsr names every log that is to stay, or its high watermark is forgotten."""
        named = {(part.topic.name, number) for part in request.topics for number, _ in part.states()}
        hosted = self.assigned(broker.broker_id)
        late = self.told.waiting.keys() if self.confirmed else ()  # made in KRaft mode: nobody waits for ZooKeeper
        for replica, topic_id in broker.logs.items():
            assert replica in named or topic_id in late or hosted.get(replica) != topic_id, (
                f"{replica} is left out of the first LeaderAndIsr"
            )

    def check_dropped(self, broker: ZkBroker) -> None:
        """No log that is to stay was moved aside or deleted."""
        for _, number, topic_id in broker.dropped:
            topic = self.image.topics.by_id.get(topic_id)
            assert topic is None or broker.broker_id not in topic.partitions[number].replicas
        broker.dropped.clear()

    def restart_brokers(self) -> None:
        """Brokers with a new epoch have restarted. In KRaft mode they have the logs that the image says, also of topics
        that ZooKeeper does not have yet."""
        for broker_id, registration in self.image.cluster.brokers.items():
            known = self.brokers[broker_id]
            if known.epoch != registration.epoch:
                known.restart(registration.epoch)
            if not registration.is_migrating_zk_broker:
                known.logs = self.assigned(broker_id)

    def check(self) -> None:
        """Every recipient knows the image and hosts exactly what it should; nobody lost a log that is to stay."""
        topics = {topic.name: topic for topic in self.image.topics.by_id.values() if topic.partitions}
        for broker_id in recipients(self.image):
            broker = self.brokers[broker_id]
            assert broker.cache == {name: dict(topic.partitions) for name, topic in topics.items()}
            assert {name: broker.ids.get(name) for name in topics} == {
                name: topic.topic_id for name, topic in topics.items()
            }
            assert broker.brokers == set(self.image.cluster.brokers)
            assert broker.logs == self.assigned(broker_id)
            assert not broker.refused
            states = {key: topics[key[0]].partitions[key[1]] for key in broker.logs}
            assert broker.hosted == states


class History:
    """Events of a cluster, from a seed: dense, so that deletions meet restarts and namesakes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster()
        self.confirmed = False
        self.epoch = 0
        self.topics = 0

    def delta(self, size: int) -> ImageDelta:
        """So many events in one delta, which becomes the cluster's image."""
        image = self.cluster.image
        records: list[rec.MetadataRecord] = []
        events = (
            self.register,
            self.fencing,
            self.fencing,
            self.create,
            self.create,
            self.remove,
            self.alter,
            self.grow,
        )
        for _ in range(size):
            new = self.random.choice(events)(image)
            records += new
            image = change(image, *new).after
        delta = change(self.cluster.image, *records)
        self.cluster.image = delta.after
        self.cluster.restart_brokers()
        return delta

    def register(self, image: MetadataImage) -> list[rec.MetadataRecord]:
        broker_id = self.random.randrange(5)
        known = image.cluster.brokers.get(broker_id)
        if known is not None and self.random.random() < 0.2:
            return [rec.UnregisterBrokerRecord(broker_id, known.epoch)]
        self.epoch += 10
        migrating, fenced = self.random.random() < 0.9, self.random.random() < 0.3
        return [broker(broker_id, self.epoch, migrating=migrating, fenced=fenced)]

    def fencing(self, image: MetadataImage) -> list[rec.MetadataRecord]:
        fenced = self.random.choice([-1, -1, 1])
        if fenced == -1 and not self.confirmed:
            return self.register(image)  # what it missed while fenced cannot all be mended before the reconcile
        return [
            rec.BrokerRegistrationChangeRecord(broker_id, known.epoch, fenced)
            for broker_id, known in self.pick(image.cluster.brokers.items())
        ]

    def create(self, image: MetadataImage) -> list[rec.MetadataRecord]:
        name = self.random.choice(["a", "b", "c", "d"])
        if name in image.topics.ids:
            return []
        self.topics += 1
        topic_id = small_uuid(self.topics)
        partitions = [partition(topic_id, number, *self.replicas()) for number in range(self.random.randint(1, 3))]
        return [rec.TopicRecord(name, topic_id), *partitions]

    def remove(self, image: MetadataImage) -> list[rec.MetadataRecord]:
        return [rec.RemoveTopicRecord(topic.topic_id) for topic in self.pick(image.topics.by_id.values())]

    def alter(self, image: MetadataImage) -> list[rec.MetadataRecord]:
        records: list[rec.MetadataRecord] = []
        for topic in self.pick(image.topics.by_id.values()):
            for number, state in self.pick(topic.partitions.items()):
                replicas = self.random.choice([state.replicas, self.replicas()])
                isr = tuple(self.random.sample(replicas, self.random.randint(1, len(replicas))))
                records.append(rec.PartitionChangeRecord(number, topic.topic_id, isr, isr[0], replicas))
        return records

    def grow(self, image: MetadataImage) -> list[rec.MetadataRecord]:
        return [
            partition(topic.topic_id, len(topic.partitions), *self.replicas())
            for topic in self.pick(image.topics.by_id.values())
        ]

    def replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(range(5), self.random.randint(1, 3)))

    def pick(self, items: Iterable[E]) -> list[E]:
        """One of the items, if there are any."""
        known = sorted(items, key=repr)  # the order of a map differs from process to process
        return [self.random.choice(known)] if known else []

    def run(self, terms: Terms) -> None:
        """Some deltas, and ZooKeeper catching up now and then; before the reconcile it does not."""
        cluster = self.cluster
        self.confirmed = terms.confirmed
        for _ in range(self.random.randrange(8)):
            delta = self.delta(self.random.choice([0, 1, 1, 2, 4]))
            cluster.deliver(complete(plan_delta(delta, terms, cluster.told)))
            if terms.confirmed and self.random.random() < 0.5:
                reached = self.random.randint(-1, cluster.image.provenance.offset)
                cluster.deliver(complete(plan_released(cluster.image, terms, cluster.told, reached)))
