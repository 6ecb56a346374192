"""Kafka's own clients, as users have them: an administrator, a producer that never pauses, consumers.

The real cluster and tests use them (librdkafka). `Traffic` knows what was acknowledged, so a reader can tell lost and
doubled records. `Activity` has the time of each acknowledged record or commit, and finds the longest pause; one that
lasts at the end counts, too. Settings that differ from librdkafka's defaults have their reason beside them.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from migrator.drill.kafka.cluster import until


class Activity:
    """The times of one kind of event, e.g. of acknowledged records. One thread notes them, others read them.

    :param clock: seconds; all times here are its times.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: list[float] = []

    def note(self) -> None:
        """The event happened, now."""
        self._times.append(self._clock())

    @property
    def count(self) -> int:
        return len(self._times)

    def count_between(self, since: float, until: float) -> int:
        """How often the event happened then."""
        times = self._times[:]
        return bisect_right(times, until) - bisect_left(times, since)

    def goes_on(self, within_seconds: float) -> bool:
        """Whether the event happened just now."""
        return bool(self._times) and self._clock() - self._times[-1] < within_seconds

    def longest_pause(self, since: float = 0.0, until: float | None = None) -> float:
        """Seconds without the event. A pause that began before ``since`` counts from its beginning, because clients
        notice a pause when it ends. A pause that is not over at ``until`` (None: now) counts up to then. Infinite when
        the event never happened."""
        end = self._clock() if until is None else until
        times = self._times[:]
        first = max(bisect_left(times, since) - 1, 0)
        inside = times[first : bisect_right(times, end)]
        return max((later - earlier for earlier, later in pairwise([*inside, end])), default=float("inf"))


ANSWER_SECONDS = 60.0
"""How long to wait for an answer, as librdkafka itself does: a busy machine is slow to create hundreds of
partitions."""
AGAIN_SECONDS = 0.1
FLUSH_SECONDS = 30.0
READ_SECONDS = 300.0
"""How long to wait for a message; reading all of them may take longer."""
SEND_EVERY_SECONDS = 0.01
LIVELY_SECONDS = 0.1
OUTSTANDING_MAX = 5
"""Messages without an acknowledgement: as many as librdkafka has requests in flight. With more, its threads poll
without a pause while brokers are slow, and take the processors that the brokers need."""
QUIET = {"log_level": 0}
"""Keeps librdkafka from printing its many messages about restarting brokers."""
PATIENT = {
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    **QUIET,
}
"""Settings of producers that go on as soon as they can."""
ASKS_AGAIN = MappingProxyType({"topic.metadata.refresh.interval.ms": 1000})
"""A broker in ZooKeeper mode that has just started knows no topic before its controller has sent UpdateMetadata. A
client that asks this broker asks again after five minutes by default; a consumer group loses its partitions meanwhile.
A producer with this setting recreates a deleted topic if brokers may create topics."""
Login = Mapping[str, str]
"""librdkafka's settings of a client's identity and login (`InClear.login`)."""
ANONYMOUS: Login = MappingProxyType({})


def _is_unknown(error: BaseException) -> bool:
    """Whether the error has a code that the client does not know."""
    return isinstance(error, KafkaException) and bool(error.args[0].code() == KafkaError.UNKNOWN)


def is_unknown_topic(error: KafkaException) -> bool:
    """Whether a producer has asked a broker that has just started (see `ASKS_AGAIN`)."""
    return bool(error.args[0].code() == KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - the name that the client gives it


class Admin:
    """An administrator's client. It is made when the brokers know each other: otherwise librdkafka waits for
    minutes."""

    def __init__(self, bootstrap: str, brokers: int, login: Login = ANONYMOUS) -> None:
        """``brokers``: the number of running brokers. Each of them has to know all: before that a controller creates no
        topic."""
        self._configuration: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, **login, **QUIET}
        until(
            "every broker knows every broker", lambda: self._knowing(brokers) >= min(brokers, bootstrap.count(",") + 1)
        )
        self.client = AdminClient(self._configuration)

    def create(self, name: str, partitions: int, replicas: int, **config: str) -> None:
        """Create a topic; ``_`` in keys of its configuration stands for a dot. A controller that has just started does
        not know the permissions yet (``AuthorizerNotReadyException``), and is asked again."""
        keys = {key.replace("_", "."): text for key, text in config.items()}
        again = Retrying(
            retry=retry_if_exception(_is_unknown),
            wait=wait_fixed(AGAIN_SECONDS),
            stop=stop_after_delay(ANSWER_SECONDS),
            reraise=True,
        )
        again(lambda: self.wait(self.client.create_topics([NewTopic(name, partitions, replicas, config=keys)])))

    def delete(self, name: str) -> None:
        self.wait(self.client.delete_topics([name]))

    def topics(self) -> dict[str, list[int]]:
        """The leaders of every topic's partitions, by name; -1 without a leader."""
        found = self.client.list_topics(timeout=ANSWER_SECONDS).topics
        return {name: [part.leader for part in topic.partitions.values()] for name, topic in found.items()}

    def replicas(self, name: str) -> dict[int, list[int]]:
        found = self.client.list_topics(name, timeout=ANSWER_SECONDS).topics[name].partitions
        return {number: partition.replicas for number, partition in found.items()}

    def in_sync(self) -> bool:
        """Whether every partition has a leader and all of its replicas in sync."""
        try:
            topics = self.client.list_topics(timeout=ANSWER_SECONDS).topics.values()
        except KafkaException as error:
            if error.args[0].code() != KafkaError._PARTIAL:  # noqa: SLF001 - it has no other name
                raise
            return False  # the only broker knows no brokers yet: no controller has sent UpdateMetadata
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(part.leader >= 0 and len(part.isrs) == len(part.replicas) for part in partitions)

    @staticmethod
    def wait(futures: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
        """Results of requests; raises their errors, or `TimeoutError` with the unanswered ones."""
        done, _ = concurrent.futures.wait(futures.values(), ANSWER_SECONDS)
        silent = [str(key) for key, future in futures.items() if future not in done]
        if silent:
            raise TimeoutError(f"no answer from the brokers in {ANSWER_SECONDS:.0f} s to a request about {silent[0]}")
        return {key: future.result() for key, future in futures.items()}

    def _knowing(self, brokers: int) -> int:
        """The number of servers that know so many brokers and a controller."""
        servers = str(self._configuration["bootstrap.servers"]).split(",")
        return sum(self._known_by(server) == brokers for server in servers)

    def _known_by(self, server: str) -> int:
        """The number of brokers that this server knows, as a new client sees it."""
        try:
            metadata = AdminClient({**self._configuration, "bootstrap.servers": server}).list_topics(timeout=1.0)
        except KafkaException:
            return 0
        return len(metadata.brokers) if metadata.controller_id >= 0 else 0


class Traffic:
    """An idempotent producer with acks=all that sends numbers from 0 until its context ends, and must lose none.

    :param per_second: messages per second.
    :param linger_ms: how long a batch is filled, in milliseconds; shorter pauses cannot be detected.
    :param more: other settings of librdkafka.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        per_second: int = 100,
        linger_ms: int = 5,
        login: Login = ANONYMOUS,
        more: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._topic = topic
        self._per_second = per_second
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                **login,
                **PATIENT,
                **more,
            }
        )
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []
        self.activity = Activity()
        """Acknowledgements."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def goes_on(self) -> bool:
        """Whether messages are acknowledged, now."""
        return self.activity.goes_on(LIVELY_SECONDS)

    def longest_pause(self, since: float = 0.0) -> float:
        """Seconds between two acknowledgements, since a time of `time.monotonic`."""
        return self.activity.longest_pause(since)

    def start(self) -> None:
        """Begin, and wait until messages are acknowledged."""
        self._thread.start()
        until("messages are acknowledged", self.goes_on)

    def stop(self) -> None:
        """Send no more, and wait for the last acknowledgement; safe at any time."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.flush(FLUSH_SECONDS)

    def abandon(self) -> None:
        """Stop sending, without waiting for brokers; safe at any time."""
        self._stop.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - begin) * self._per_second) + 1
            while self.sent < due and len(self._producer) < OUTSTANDING_MAX:
                number = str(self.sent)
                try:
                    self._producer.produce(self._topic, value=number, key=number, on_delivery=self._delivered)
                except KafkaException as error:
                    if not is_unknown_topic(error):
                        raise
                    break
                self.sent += 1
            self._producer.poll(SEND_EVERY_SECONDS)

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged.add(int(message.value() or b""))
            self.activity.note()
        else:
            self.errors.append(str(error))


def consume(bootstrap: str, topic: str, group: str, count: int, login: Login = ANONYMOUS) -> list[str]:
    """Values of the group's next messages, at most ``count``, whose offsets are then committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **login,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + READ_SECONDS
    try:
        while len(values) < count and time.monotonic() < deadline:
            messages = consumer.consume(count - len(values), 0.5)
            found = [(message.value() or b"").decode() for message in messages if message.error() is None]
            if found:
                deadline = time.monotonic() + READ_SECONDS
            values += found
        if values:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def committed(bootstrap: str, topic: str, group: str, partitions: int, login: Login = ANONYMOUS) -> int:
    """The number of messages that the group has read, by its committed offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **login, **QUIET})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(max(found.offset, 0) for found in consumer.committed(asked, timeout=READ_SECONDS))
    finally:
        consumer.close()
