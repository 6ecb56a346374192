"""How long writes to ZooKeeper take: Kafka's histograms ZkWriteSnapshotTimeMs and ZkWriteDeltaTimeMs.

The migration notes durations; metrics and beans read them from other threads. Names and attributes are Kafka's, so
existing dashboards work; quantiles are made of the newest `KEPT` durations. Source: ``QuorumControllerMetrics``,
``KRaftMigrationDriver``; the form is that of a Yammer Metrics histogram.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

SNAPSHOT, DELTA = "ZkWriteSnapshotTimeMs", "ZkWriteDeltaTimeMs"
_HELP = {
    SNAPSHOT: "Milliseconds until ZooKeeper is as the log: a whole comparison, with its writes",
    DELTA: "Milliseconds that one write of changes to ZooKeeper takes",
}
PREFIX = "kafka_controller_kafkacontroller_"
METRICS = tuple(PREFIX + name.lower() for name in _HELP)
"""Their names in Prometheus."""
KEPT = 1028
"""How many durations the quantiles are made of: as many as in Yammer's histograms, but here always the newest."""
QUANTILES = {"50th": 0.5, "75th": 0.75, "95th": 0.95, "98th": 0.98, "99th": 0.99, "999th": 0.999}


class Durations:
    """Durations of one kind in milliseconds, for one writer and any number of readers."""

    def __init__(self) -> None:
        self._kept: deque[int] = deque(maxlen=KEPT)
        self._count = 0
        self._sum = 0
        self._squares = 0
        self._min = self._max = 0

    def note(self, ms: int) -> None:
        self._min = ms if not self._count else min(self._min, ms)
        self._max = max(self._max, ms)
        self._kept.append(ms)
        self._sum += ms
        self._squares += ms * ms
        self._count += 1

    @property
    def sum(self) -> int:
        return self._sum

    def attributes(self) -> dict[str, float]:
        """The bean's attributes; all are 0 before the first duration."""
        count, kept = self._count, sorted(self._kept.copy())
        mean = self._sum / count if count else 0.0
        variance = max(0.0, self._squares - mean * self._sum) / (count - 1) if count > 1 else 0.0
        return {
            "Count": count,
            "Max": float(self._max),
            "Mean": mean,
            "Min": float(self._min),
            "StdDev": math.sqrt(variance),
            **{f"{name}Percentile": _quantile(kept, part) for name, part in QUANTILES.items()},
        }


def _quantile(ordered: list[int], part: float) -> float:
    """Interpolated between neighbours, as by ``Snapshot.getValue``."""
    if not ordered:
        return 0.0
    position = part * (len(ordered) + 1)
    if position < 1:
        return float(ordered[0])
    if position >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[int(position) - 1], ordered[int(position)]
    return low + (position - math.floor(position)) * (high - low)


class WriteTimes(Collector):
    """Both histograms of write times, with Kafka's names."""

    def __init__(self) -> None:
        self.snapshot = Durations()
        self.delta = Durations()

    def attributes(self) -> Mapping[str, Mapping[str, float]]:
        """The attributes of each bean, by its name."""
        return {SNAPSHOT: self.snapshot.attributes(), DELTA: self.delta.attributes()}

    def collect(self) -> Iterator[Metric]:
        """Summaries for a scrape (see `Collector`)."""
        for name, durations in ((SNAPSHOT, self.snapshot), (DELTA, self.delta)):
            found, metric = durations.attributes(), PREFIX + name.lower()
            summary = Metric(metric, _HELP[name], "summary")
            for label, part in QUANTILES.items():
                summary.add_sample(metric, {"quantile": str(part)}, found[f"{label}Percentile"])
            summary.add_sample(metric + "_count", {}, found["Count"])
            summary.add_sample(metric + "_sum", {}, durations.sum)
            yield summary
