"""A consumer group that follows a topic from start to end, and the reading of a whole topic."""

from __future__ import annotations

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from migrator.drill.kafka.activity import Activity
from migrator.drill.kafka.clients import ANONYMOUS, ANSWER_SECONDS, ASKS_AGAIN, QUIET, Login
from migrator.drill.kafka.cluster import until
from migrator.drill.security.users import AUDITORS

COMMIT_EVERY_SECONDS = 0.5
POLL_SECONDS = 0.1
LIVELY_SECONDS = 1.0
READ_ALL_SECONDS = 60.0
_PROMPT = {"fetch.error.backoff.ms": 50, "reconnect.backoff.max.ms": 200, **ASKS_AGAIN, **QUIET}


class GroupProgress:
    """A group's position in a topic. Without transactions there is a record at every offset, so a jump ahead means lost
    records, and a jump back before an acknowledged commit means that the commit was lost."""

    def __init__(self) -> None:
        self.next: dict[int, int] = {}
        """By partition: the offset to be read next."""
        self.committed: dict[int, int] = {}
        """By partition: what was acknowledged."""
        self.faults: list[str] = []
        """Commits that were lost, and records that were skipped."""
        self.read_again = 0
        """Records that were read once more because their commit had not been acknowledged."""

    def take(self, partition: int, offset: int) -> None:
        """Note a record that was read."""
        expected, safe = self.next.get(partition, 0), self.committed.get(partition, 0)
        if offset > expected:
            self.faults.append(f"partition {partition}: read offset {offset} after {expected - 1}")
        elif offset < min(expected, safe):
            self.faults.append(f"partition {partition}: read offset {offset} again, {safe} was committed")
        elif offset < expected:
            self.read_again += 1
        self.next[partition] = max(expected, offset + 1)

    def acknowledge(self, partition: int, offset: int) -> None:
        """Note an acknowledged commit; answers may come in any order."""
        self.committed[partition] = max(offset, self.committed.get(partition, 0))


class GroupReader:
    """The only member of a group: it reads every number of a topic, and commits its offsets."""

    def __init__(self, bootstrap: str, topic: str, group: str, login: Login = ANONYMOUS) -> None:
        self.read: set[int] = set()
        self.progress = GroupProgress()
        self.activity = Activity()
        """Records."""
        self.assigned: set[int] = set()
        """The partitions that it follows now. Its own thread stores them here: the client admits one thread at a time,
        and a polling thread hardly lets another one in."""
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "on_commit": self._on_commit,
                **login,
                **_PROMPT,
            }
        )

    def start(self) -> None:
        """Begin, and wait for the first records."""
        self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread.start()
        until("the group reads", lambda: self.activity.goes_on(LIVELY_SECONDS))

    def stop(self) -> dict[int, int]:
        """Commit and leave the group; gives the offsets by partition that must stay committed.

        :raises OperatorError: the coordinator does not answer.
        """
        self._stop.set()
        until("the group is left", lambda: not self._thread.is_alive())
        return dict(self.progress.committed)

    def abandon(self) -> None:
        """Stop reading, without waiting for brokers; safe at any time."""
        self._stop.set()

    def _run(self) -> None:
        commit_at = time.monotonic() + COMMIT_EVERY_SECONDS
        while not self._stop.is_set():
            message = self._consumer.poll(POLL_SECONDS)
            if message is not None and message.error() is None:
                self._take(message)
            if time.monotonic() >= commit_at:
                commit_at = time.monotonic() + COMMIT_EVERY_SECONDS
                self._commit(asynchronous=True)
        self._commit(asynchronous=False)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        self.progress.take(message.partition() or 0, message.offset() or 0)
        self.read.add(int(message.value() or b""))
        self.activity.note()

    def _commit(self, *, asynchronous: bool) -> None:
        behind = [TopicPartition(self._topic, partition, offset) for partition, offset in self.progress.next.items()]
        if not behind:
            return
        try:
            if asynchronous:
                self._consumer.commit(offsets=behind)
            else:
                self._on_commit(None, self._consumer.commit(offsets=behind, asynchronous=False))
        except KafkaException:  # the coordinator moves; unacknowledged records are read again, which is no loss
            return

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is None:
            for each in partitions:
                if each.error is None:
                    self.progress.acknowledge(each.partition, each.offset)

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned |= {each.partition for each in partitions}

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(asynchronous=False)
        self.assigned -= {each.partition for each in partitions}


def read_to_end(bootstrap: str, topic: str, login: Login = ANONYMOUS, *, uncommitted: bool = False) -> list[str]:
    """Every value in the topic, of committed transactions only.

    :param uncommitted: also of all other transactions.
    :raises OperatorError: its end was not reached in time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": AUDITORS,
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **login,
            **_PROMPT,
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        left = set(found.partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        values: list[str] = []

        def ended() -> bool:
            for message in consumer.consume(1000, POLL_SECONDS):
                error = message.error()
                if error is None:
                    values.append((message.value() or b"").decode())
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (the library names it so)
                    left.discard(message.partition() or 0)
            return not left

        until(f"all of {topic} is read", ended, seconds=READ_ALL_SECONDS)
        return values
    finally:
        consumer.close()
