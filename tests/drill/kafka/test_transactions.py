"""Transactions that a reader of committed records must see, and must not see."""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka import KafkaError, KafkaException

from migrator.drill.kafka import transactions
from migrator.drill.kafka.transactions import RECORDS, Transactions, faults, undone, values_of

COMMITTED, ABORTED, IN_DOUBT = {0, 1}, {2}, {3}
SOUND = [*values_of(0), *values_of(1)]
WRONG = {
    "lost": (SOUND[1:], "transaction 0 was committed"),
    "twice": ([*SOUND, SOUND[-1]], "transaction 1 was committed"),
    "aborted": ([*SOUND, values_of(2)[0]], "transaction 2 was aborted"),
    "half": ([*SOUND, *values_of(3)[1:]], "of transaction 3 a part is there"),
    "strange": ([*SOUND, "9.0"], "9.0 was not sent"),
}


def test_committed_ones_whole_and_those_in_doubt_whole_or_not_at_all() -> None:
    assert len(SOUND) == 2 * RECORDS
    for seen in (SOUND, SOUND + values_of(3)):
        assert list(faults(seen, COMMITTED, ABORTED, IN_DOUBT)) == []


@pytest.mark.parametrize("case", WRONG)
def test_anything_else_is_a_fault(case: str) -> None:
    seen, expected = WRONG[case]
    found = list(itertools.islice(faults(seen, COMMITTED, ABORTED, IN_DOUBT), 5))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_an_abort_of_what_never_reached_a_broker_proves_nothing() -> None:
    assert undone(SOUND + values_of(2) + values_of(3)[1:], {2, 3, 4}) == {2}


class ForgetfulProducer:
    """As librdkafka's; the broker that it asks does not know the topic the first time (as just after its start)."""

    made = 0

    def __init__(self, _configuration: object) -> None:
        ForgetfulProducer.made += 1
        self._knows = False

    def init_transactions(self, _seconds: float) -> None:
        pass

    def begin_transaction(self) -> None:
        pass

    def produce(self, _topic: str, value: str, key: str) -> None:
        assert value == key
        if not self._knows:
            self._knows = True
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))

    def poll(self, _seconds: float) -> None:
        pass

    def commit_transaction(self, _seconds: float) -> None:
        pass

    abort_transaction = commit_transaction


def test_a_broker_that_has_just_started_and_knows_no_topic_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForgetfulProducer, "made", 0)
    monkeypatch.setattr(transactions, "Producer", ForgetfulProducer)
    running = Transactions("localhost:9", "orders", "drill")
    running.start()
    running.stop()
    assert running.errors == []
    assert running.aborted >= {0}
    assert running.committed >= {1}
    assert ForgetfulProducer.made == 1
