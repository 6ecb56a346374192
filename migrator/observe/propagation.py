"""How long a change takes from its commit until the last broker knows it."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import Histogram

PROPAGATION = "migrator_change_propagation_seconds"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class PropagationMode(StrEnum):
    """How a broker hears of changes."""

    ZOOKEEPER = "zookeeper"
    """Changes sent by UpdateMetadata and LeaderAndIsr. The time ends when all brokers have answered."""
    KRAFT = "kraft"
    """Changes read from the metadata log. The time ends when heartbeats report the offset, so it is up to one heartbeat
    interval too long."""


class PropagationTimes:
    """A histogram by mode. Fenced brokers are not waited for."""

    def __init__(self) -> None:
        self.histogram = Histogram(
            PROPAGATION,
            "Seconds from the commit of a change to the last unfenced broker that knows it",
            ("mode",),
            buckets=BUCKETS,
            registry=None,
        )
        self._by_mode = {mode: self.histogram.labels(mode.value) for mode in PropagationMode}

    def observe(self, mode: PropagationMode, seconds: float) -> None:
        """One change has reached every broker."""
        self._by_mode[mode].observe(seconds)
