"""The clients of a drill's Kafka cluster, from start to end, and the audit of their records.

`RealCluster` starts `ClientTraffic` before the migration and calls `audit` after it. Every acknowledged record must be
read exactly once, and no commit of a group may be lost. Pauses of each client are measured and reported.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from migrator.drill.kafka.clients import (
    ANONYMOUS,
    ANSWER_SECONDS,
    ASKS_AGAIN,
    QUIET,
    Activity,
    Admin,
    Login,
    Traffic,
    committed,
    consume,
)
from migrator.drill.kafka.cluster import until
from migrator.drill.kafka.transactions import Transactions, faults, undone
from migrator.drill.report import DrillReport
from migrator.drill.security.protection import (
    AUDITORS,
    IN_CLEAR,
    ORDERS,
    PAYER,
    PAYMENTS,
    READER,
    READERS,
    RESTING,
    TRANSACTIONAL_ID,
    WRITER,
    InClear,
)

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
        """The offset to read next, by partition."""
        self.committed: dict[int, int] = {}
        """The last offset whose commit was acknowledged, by partition."""
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


PARTITIONS = 3
RECORDS_PER_SECOND = 500
LINGER_MS = 20
"""Four times librdkafka's own: brokers, clients, controllers and Spark share a small machine."""
RESTING_READ = 100
CATCH_UP_SECONDS = 60.0


class ClientTraffic:
    """An idempotent producer (acks=all), a consumer group, a transactional producer. All calls block."""

    def __init__(self, bootstrap: str, security: InClear = IN_CLEAR) -> None:
        self._bootstrap = bootstrap
        self._reader = security.login(READER)
        self._producer = Traffic(
            bootstrap,
            ORDERS,
            per_second=RECORDS_PER_SECOND,
            linger_ms=LINGER_MS,
            login=security.login(WRITER),
            more=ASKS_AGAIN,
        )
        self._group = GroupReader(bootstrap, ORDERS, READERS, self._reader)
        self._transactions = Transactions(bootstrap, PAYMENTS, TRANSACTIONAL_ID, security.login(PAYER))

    def start(self, admin: Admin, replicas: int) -> None:
        """Create the topics and start the clients; returns when all of them work."""
        for topic in (ORDERS, PAYMENTS):
            admin.create(topic, PARTITIONS, replicas, min_insync_replicas=str(max(replicas - 1, 1)))
        self._producer.start()
        self._group.start()
        self._transactions.start()
        consume(self._bootstrap, ORDERS, RESTING, RESTING_READ, self._reader)

    def meter(self, since: float, until_: float) -> dict[str, float | int]:
        """Longest pauses in seconds, and counts of records, between two moments (see `report.Meter`)."""
        producer, group, transactions = self._producer.activity, self._group.activity, self._transactions.activity
        return {
            "produce": producer.longest_pause(since, until_),
            "consume": group.longest_pause(since, until_),
            "commit": transactions.longest_pause(since, until_),
            "acknowledged": producer.count_between(since, until_),
            "read": group.count_between(since, until_),
            "transactions ended": transactions.count_between(since, until_),
        }

    def go_on(self) -> None:
        """:raises OperatorError: records are not acknowledged, or transactions not committed, any more."""
        until("records are acknowledged", self._producer.goes_on)
        commits = self._transactions.activity
        before = commits.count
        until("transactions are committed", lambda: commits.count > before)

    def abandon(self) -> None:
        """End all clients without an audit; safe at any time, and more than once."""
        for each in (self._transactions, self._producer, self._group):
            each.abandon()

    def audit(self, report: DrillReport) -> None:
        """End the clients, read everything back, and note in the report whether every acknowledged record is there.

        :raises OperatorError: it cannot be read.
        """
        self._transactions.stop()
        self._producer.stop()
        report.wait_for("the group reads the last records")
        until("the group has read all", self._group_is_through, seconds=CATCH_UP_SECONDS)
        offsets = self._group.stop()
        report.wait_for("everything is read back")
        self._audit_orders(report)
        self._audit_group(report, offsets)
        self._audit_transactions(report)

    def _group_is_through(self) -> bool:
        return self._producer.acknowledged <= self._group.read

    def _audit_orders(self, report: DrillReport) -> None:
        producer = self._producer
        seen = Counter(map(int, read_to_end(self._bootstrap, ORDERS, self._reader)))
        report.figure("records sent", producer.sent)
        report.figure("records acknowledged", len(producer.acknowledged))
        report.figure("records read back", seen.total())
        report.none_of("lost records", len(producer.acknowledged - seen.keys()))
        report.none_of("duplicated records", sum(count - 1 for count in seen.values()))
        report.check("every record was acknowledged", not producer.errors, producer.errors[:5])
        report.check("nothing is there that was not sent", max(seen, default=0) < producer.sent)

    def _audit_group(self, report: DrillReport, offsets: dict[int, int]) -> None:
        group = self._group
        report.check("the group read every record, in order", not group.progress.faults, group.progress.faults[:5])
        report.figure("records that the group read again", group.progress.read_again)
        held = committed(self._bootstrap, ORDERS, READERS, PARTITIONS, self._reader)
        expected = sum(offsets.values())
        report.check("its committed offsets survived", held == expected, f"{held} instead of {expected}")
        held = committed(self._bootstrap, ORDERS, RESTING, PARTITIONS, self._reader)
        report.check(
            "so did those from before the migration", held == RESTING_READ, f"{held} instead of {RESTING_READ}"
        )

    def _audit_transactions(self, report: DrillReport) -> None:
        transactions = self._transactions
        seen = read_to_end(self._bootstrap, PAYMENTS, self._reader)
        found = list(faults(seen, transactions.committed, transactions.aborted, transactions.in_doubt))
        report.figure("transactions committed", len(transactions.committed))
        report.figure("transactions aborted", len(transactions.aborted))
        report.check("committed transactions are read whole, aborted ones never", not found, found[:5])
        everything = read_to_end(self._bootstrap, PAYMENTS, self._reader, uncommitted=True)
        held = undone(everything, transactions.written)
        report.figure("of these, with all their records in the log", len(held))
        report.check("brokers had records to undo", held == transactions.written, transactions.written - held)
        report.check("no transaction failed", not transactions.errors, transactions.errors[:5])
