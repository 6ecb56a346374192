"""The clients of a drill's Kafka cluster, from start to end, and the audit of their records."""

from __future__ import annotations

from collections import Counter

from migrator.drill.kafka.clients import ASKS_AGAIN, Admin, Traffic, committed, consume
from migrator.drill.kafka.cluster import until
from migrator.drill.kafka.readers import GroupReader, read_to_end
from migrator.drill.kafka.transactions import Transactions, faults, undone
from migrator.drill.report import DrillReport
from migrator.drill.security.protection import IN_CLEAR, InClear
from migrator.drill.security.users import ORDERS, PAYER, PAYMENTS, READER, READERS, RESTING, TRANSACTIONAL_ID, WRITER

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
