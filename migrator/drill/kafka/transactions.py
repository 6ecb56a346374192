"""A transactional producer that commits and aborts from start to end, and knows which records consumers must see.

`ClientTraffic` runs one `Transactions`. A reader of committed records must see all records of a committed transaction
and none of an aborted one; a transaction whose commit got no answer may be either, but whole.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import KafkaError, KafkaException, Producer
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_fixed

from migrator.drill.kafka.clients import ANONYMOUS, ASKS_AGAIN, PATIENT, Activity, Login, is_unknown_topic
from migrator.drill.kafka.cluster import until

RECORDS = 10
"""The number of records of one transaction."""
ABORT_EVERY = 5
PAUSE_SECONDS = 0.3
RETRY_SECONDS = 0.05
CALL_SECONDS = 10.0
TRIES = 6
LIVELY_SECONDS = 1.0


class Transactions:
    """One transaction after the other; every fifth is aborted. Values are ``transaction.number``."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, login: Login = ANONYMOUS) -> None:
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.written: set[int] = set()
        """Brokers had acknowledged all of their records before these were aborted."""
        self.in_doubt: set[int] = set()
        """Transactions whose end was not acknowledged: all of their records may be there, or none."""
        self.errors: list[str] = []
        self.activity = Activity()
        """Ends of transactions."""
        self._topic = topic
        self._configuration = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            **login,
            **PATIENT,
            **ASKS_AGAIN,
        }
        self._producer = Producer(self._configuration)
        self._begun = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin, and wait for the first commit."""
        _retry(lambda: self._producer.init_transactions(CALL_SECONDS))
        self._thread.start()
        until("transactions are committed", lambda: self.activity.goes_on(LIVELY_SECONDS))

    def stop(self) -> None:
        """End after the transaction under way.

        :raises OperatorError: it does not end.
        """
        self._stop.set()
        until("the last transaction ends", lambda: not self._thread.is_alive(), seconds=TRIES * CALL_SECONDS)

    def abandon(self) -> None:
        """Begin no further transaction, without waiting for brokers; safe at any time."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self._begun
            self._begun += 1
            try:
                self._transact(number)
            except KafkaException as error:
                self._recover(number, error)
            self._stop.wait(PAUSE_SECONDS)

    def _transact(self, number: int) -> None:
        self._producer.begin_transaction()
        for value in values_of(number):
            self._producer.produce(self._topic, value=value, key=value)
        self._producer.poll(0)
        if number % ABORT_EVERY == ABORT_EVERY - 1:
            # Records that are still in the client are dropped there: then brokers have nothing to abort, and may refuse
            # it.
            if self._producer.flush(CALL_SECONDS) == 0:
                self.written.add(number)
            _retry(lambda: self._producer.abort_transaction(CALL_SECONDS))
            self.aborted.add(number)
        else:
            _retry(lambda: self._producer.commit_transaction(CALL_SECONDS))
            self.committed.add(number)
        self.activity.note()

    def _recover(self, number: int, failed: KafkaException) -> None:
        """Abort when the protocol requires it; otherwise a new producer fences the old one and ends its transaction."""
        try:
            if _error(failed).txn_requires_abort() or is_unknown_topic(failed):
                _retry(lambda: self._producer.abort_transaction(CALL_SECONDS))
                self.aborted.add(number)
                return
            self.in_doubt.add(number)
            self.errors.append(str(failed))
            self._producer = Producer(self._configuration)
            _retry(lambda: self._producer.init_transactions(CALL_SECONDS))
        except KafkaException as error:
            self.in_doubt.add(number)
            self.errors.append(str(error))
            self._stop.set()


def faults(
    seen: Iterable[str], committed: Iterable[int], aborted: Iterable[int], in_doubt: Iterable[int]
) -> Iterator[str]:
    """A sentence for each transaction of which a reader of committed records saw too little or too much."""
    counted = Counter(seen)

    def counts(number: int) -> list[int]:
        return sorted({counted.pop(value, 0) for value in values_of(number)})

    for number in committed:
        if (times := counts(number)) != [1]:
            yield f"transaction {number} was committed, its records are there {times} times"
    for number in aborted:
        if (times := counts(number)) != [0]:
            yield f"transaction {number} was aborted, its records are there {times} times"
    for number in in_doubt:
        if counts(number) not in ([0], [1]):
            yield f"of transaction {number} a part is there"
    yield from (f"{value} was not sent" for value in counted)


def undone(seen: Iterable[str], written: Iterable[int]) -> set[int]:
    """The transactions whose records a reader of uncommitted records sees completely."""
    held = set(seen)
    return {number for number in written if held.issuperset(values_of(number))}


def values_of(number: int) -> list[str]:
    """The values of a transaction's records."""
    return [f"{number}.{index}" for index in range(RECORDS)]


def _retry(call: Callable[[], None]) -> None:
    """Call again while the client says that this may help."""
    again = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, KafkaException) and _error(error).retriable()),
        wait=wait_fixed(RETRY_SECONDS),
        stop=stop_after_attempt(TRIES),
        reraise=True,
    )
    again(call)


def _error(failed: KafkaException) -> KafkaError:
    error: KafkaError = failed.args[0]
    return error
