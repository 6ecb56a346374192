"""Kafka's own clients, as a cluster's users have them: an administrator, a producer that never rests, consumers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from migrator.drill.kafka_cluster import until

ANSWER_SECONDS = 15.0
FLUSH_SECONDS = 30.0
READ_SECONDS = 30.0
PRODUCE_EVERY_SECONDS = 0.01
_QUIET = {"log_level": 0}
"""librdkafka prints what it meets, and a restarting broker is much to print."""


class Admin:
    """An administrator's client, made when the brokers know each other: librdkafka waits for minutes otherwise."""

    def __init__(self, bootstrap: str, brokers: int) -> None:
        self._bootstrap = bootstrap
        until("every broker is in the metadata", lambda: self._brokers() == brokers)
        self.client = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})

    def create(self, name: str, partitions: int, replicas: int, **config: str) -> None:
        """Create a topic; ``_`` in keys of its configuration stands for a dot."""
        keys = {key.replace("_", "."): text for key, text in config.items()}
        self.wait(self.client.create_topics([NewTopic(name, partitions, replicas, config=keys)]))

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self.wait(self.client.delete_topics([name]))

    def topics(self) -> dict[str, list[int]]:
        """The leaders of every topic's partitions, by name; -1 without a leader."""
        found = self.client.list_topics(timeout=ANSWER_SECONDS).topics
        return {name: [part.leader for part in topic.partitions.values()] for name, topic in found.items()}

    def alter_config(self, kind: ResourceType, name: str, key: str, text: str) -> None:
        """Set one value of a topic's or a broker's configuration."""
        change = ConfigEntry(key, text, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[change])
        self.wait(self.client.incremental_alter_configs([resource]))

    def in_sync(self) -> bool:
        """Whether every partition has a leader and all of its replicas in sync."""
        topics = self.client.list_topics(timeout=ANSWER_SECONDS).topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(part.leader > 0 and len(part.isrs) == len(part.replicas) for part in partitions)

    def topic_config(self, name: str, key: str) -> str:
        """One value of a topic's configuration, as a broker has it."""
        answer = self.wait(self.client.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
        return str(next(iter(answer.values()))[key].value)

    def wait(self, futures: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
        """Results of requests; raises what was answered to them."""
        return {key: future.result(ANSWER_SECONDS) for key, future in futures.items()}

    def _brokers(self) -> int:
        """As a client sees it that knows nothing yet."""
        try:
            metadata = AdminClient({"bootstrap.servers": self._bootstrap, **_QUIET}).list_topics(timeout=1.0)
        except KafkaException:
            return 0
        return len(metadata.brokers) if metadata.controller_id >= 0 else 0


class Traffic:
    """A producer that sends a message every ten milliseconds until its context ends, and loses none."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
                **_QUIET,
            }
        )
        self.sent = 0
        self.errors: list[str] = []
        self._acknowledged: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def goes_on(self) -> bool:
        """Whether messages are acknowledged, now."""
        return bool(self._acknowledged) and time.monotonic() - self._acknowledged[-1] < 10 * PRODUCE_EVERY_SECONDS

    def longest_pause(self, since: float = 0.0) -> float:
        """Seconds between two acknowledgements, since a time of `time.monotonic`."""
        times = [moment for moment in self._acknowledged if moment >= since] + [time.monotonic()]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def stop(self) -> None:
        """Send no more, and wait for the last acknowledgement."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(FLUSH_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        until("messages are acknowledged", self.goes_on)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, value=str(self.sent), key=str(self.sent), on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(PRODUCE_EVERY_SECONDS)
            self._stop.wait(PRODUCE_EVERY_SECONDS)

    def _delivered(self, error: object, _message: Message) -> None:
        if error is None:
            self._acknowledged.append(time.monotonic())
        else:
            self.errors.append(str(error))


def consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    """Values of the group's next messages, at most ``count``, whose offsets are then committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **_QUIET,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + READ_SECONDS
    try:
        while len(values) < count and time.monotonic() < deadline:
            messages = consumer.consume(count - len(values), 0.5)
            values += [(message.value() or b"").decode() for message in messages if message.error() is None]
        if values:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def committed(bootstrap: str, topic: str, group: str, partitions: int) -> int:
    """How many messages the group has behind it, by its committed offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **_QUIET})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(max(found.offset, 0) for found in consumer.committed(asked, timeout=READ_SECONDS))
    finally:
        consumer.close()
