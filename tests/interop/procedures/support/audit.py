"""A client that writes while something is done to its cluster, and the count of its records afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import until
from tests.interop.procedures.support.runner import Performance

TOPIC = "orders"
RecordProperty = Callable[[str, object], None]


@contextmanager
def audited(performance: Performance, record_property: RecordProperty) -> Iterator[Traffic]:
    """Writes to `TOPIC`, which is there, until the context ends. Then every record is read back, each once.

    :param record_property: gets the records that were produced, read and lost, and the longest pause in seconds.
    """
    bootstrap = performance.bootstrap
    with Traffic(bootstrap, TOPIC) as traffic:
        begin = time.monotonic()
        yield traffic
        performance.admin.create("after", 2, 2)
        until("messages are acknowledged", traffic.goes_on)
        until("all is in sync", performance.admin.in_sync)
        pause = traffic.longest_pause(begin)
        traffic.stop()
    read = [int(text) for text in consume(bootstrap, TOPIC, "auditors", traffic.sent)]
    record_property("produced", traffic.sent)
    record_property("read", len(read))
    record_property("lost", traffic.sent - len(set(read)))
    record_property("longest_pause_s", round(pause, 1))
    assert traffic.errors == []
    assert sorted(read) == list(range(traffic.sent))
