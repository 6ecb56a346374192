"""`verify --watch`: compares again and again in one Spark session, keeps the verdicts, and serves them as metrics.

`migrator verify` runs one `Watch` until it is stopped. A comparison that fails is an entry like any other, and the
watch goes on; only a history that cannot be written ends it.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Counter, Gauge
from pyspark.sql import SparkSession

from migrator.clock import wall_ms
from migrator.errors import OperatorError
from migrator.observe.metrics_access import OPEN, AccessFiles
from migrator.observe.metrics_endpoint import MetricsEndpoint
from migrator.verify.foreign import ForeignWrite, ForeignWriteSearch
from migrator.verify.history import History, HistoryEntry
from migrator.verify.kraft.log_tail import metadata_tail
from migrator.verify.recheck import Recheck
from migrator.verify.verdict import Verdict, VerifyRequest
from migrator.verify.zookeeper.side import ZooKeeperSide

_LAST = {"equal": 1, "different": 0}


class WatchMetrics:
    """The metrics for Prometheus, on a separate port.

    :param access: the clients that may read them.
    :raises OperatorError: the port is taken.
    """

    def __init__(self, host: str, port: int, access: AccessFiles = OPEN) -> None:
        gauges: list[Gauge] = []

        def gauge(name: str, doc: str) -> Gauge:
            gauges.append(Gauge(f"migrator_verify_{name}", doc, registry=None))
            return gauges[-1]

        self._verdict = gauge("last_verdict", "1 equal, 0 different, -1 could not tell, or nothing yet")
        self._verdict.set(-1)
        self._time = gauge("last_time_seconds", "When the last comparison ended, in seconds since 1970")
        self._offset = gauge("offset", "Offset of the log at which the sides were seen")
        self._zxid = gauge("zxid", "Transaction of ZooKeeper at which they were seen")
        self._rows = gauge("rows", "Rows compared")
        self._differences = gauge("differences", "Rows that differ")
        self._lag = gauge("lag_records", "Records that ZooKeeper is behind the log, -1 when unknown")
        self._foreign = Counter("migrator_verify_foreign_writes", "Writes of others", registry=None)
        collectors = (*gauges, self._foreign)
        self._endpoint = MetricsEndpoint(host, port, collectors, access=access, where="--metrics-port")
        self.port: int = self._endpoint.port

    def show(self, entry: HistoryEntry) -> None:
        """Show an entry as the last one."""
        self._verdict.set(_LAST.get(entry.verdict, -1))
        self._time.set(entry.time_ms / 1000)
        self._offset.set(entry.offset)
        self._zxid.set(entry.zxid)
        self._rows.set(entry.rows)
        self._differences.set(entry.differences)
        self._lag.set(-1 if entry.lag is None else entry.lag)
        self._foreign.inc(entry.foreign_writes)

    def close(self) -> None:
        """Stop serving."""
        self._endpoint.close()


def entry_of(found: Verdict | OperatorError, foreign: int, now_ms: int) -> HistoryEntry:
    """The entry of the history for a comparison, or for a failed one."""
    if isinstance(found, OperatorError):
        return HistoryEntry(now_ms, "could not tell", -1, -1, None, 0, 0, 0, foreign, 0.0, str(found))
    return HistoryEntry(
        now_ms,
        found.word,
        found.at.zxid,
        found.at.offset,
        found.lag,
        found.comparison.rows,
        found.comparison.differences,
        len(found.undecided),
        foreign,
        found.seconds,
        found.why,
    )


@dataclass(slots=True)
class Watch:
    """Repeats a comparison until it is stopped.

    :param compare: one comparison with its consequences; errors as in `verify`.
    :param tell: called with each entry, and with the writes of other clients since the entry before.
    """

    request: VerifyRequest
    seconds: float
    compare: Callable[[SparkSession], Verdict]
    tell: Callable[[Verdict | OperatorError, tuple[ForeignWrite, ...]], None]
    history: History | None = None
    metrics: WatchMetrics | None = None
    transaction_logs: tuple[str, ...] = ()
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self, spark: SparkSession) -> Verdict | OperatorError:
        """Run until `stopping`; return the last verdict, or why there was none.

        :raises OperatorError: the history can't be kept.
        """
        found: Verdict | OperatorError = OperatorError(
            "could not tell: stopped before the first comparison",
            where="--watch",
            remedy="Let verify run until it has printed a verdict",
        )
        foreign: ForeignWriteSearch | None = None
        with ExitStack() as stack:
            while not self.stopping.is_set():
                began = time.monotonic()
                written: tuple[ForeignWrite, ...] = ()
                try:
                    foreign = foreign or self._foreign(stack)
                    found = self.compare(spark)
                    written = foreign.look()
                except OperatorError as error:
                    found = error
                    stack.close()
                    foreign = None
                self._keep(found, written)
                self.stopping.wait(max(0.0, self.seconds - (time.monotonic() - began)))
        return found

    def _keep(self, found: Verdict | OperatorError, written: tuple[ForeignWrite, ...]) -> None:
        entry = entry_of(found, len(written), wall_ms())
        if self.history is not None:
            self.history.append(entry)
        if self.metrics is not None:
            self.metrics.show(entry)
        self.tell(found, written)

    def _foreign(self, stack: ExitStack) -> ForeignWriteSearch:
        salt = secrets.token_bytes(16)
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        side = stack.enter_context(ZooKeeperSide(self.request.zookeeper, self.request.config, salt))
        log = metadata_tail(self.request.sources.metadata or "", self.request.config, scratch, None)
        recheck = Recheck(side, log, salt, self.request.patience)
        foreign = ForeignWriteSearch(recheck, self.transaction_logs, side.chroot)
        foreign.look()
        return foreign
