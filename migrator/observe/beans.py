"""The figures in the form of Kafka's JMX beans, for tools that poll beans.

The metrics endpoint serves them. Names and attributes are Kafka's; the values are those of the same reading as in
Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from migrator.observe.metrics import CONTROLLER_PREFIX, GAUGES, RAFT_PREFIX, Reading
from migrator.observe.write_times import WriteTimes

Attributes = Mapping[str, float | str]
Beans = Mapping[str, Attributes]
"""The attributes of each bean, by Kafka's name of the bean."""

CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
RAFT: Final = "kafka.server:type=raft-metrics"
STATE: Final = "ZkMigrationState"
NAMES: Final = (
    *("ActiveControllerCount", STATE, "MigrationIneligibleBrokerCount", "MigrationIneligibleControllerCount"),
    *("MigratingZkBrokerCount", "ZooKeeperWriteBehindLag", "ZkWriteBehindLag", "ZooKeeperBlockingKRaftMillis"),
    *("MetadataType", "ActiveBrokerCount", "FencedBrokerCount", "GlobalTopicCount", "GlobalPartitionCount"),
    *("OfflinePartitionsCount", "PreferredReplicaImbalanceCount", "MetadataErrorCount", "LastAppliedRecordOffset"),
    *("LastAppliedRecordTimestamp", "LastAppliedRecordLagMs", "LastCommittedRecordOffset", "NewActiveControllersCount"),
)
"""The gauges of type KafkaController; in Prometheus each has the same name in small letters."""
_FIGURES = {name: figure for name, _, figure in GAUGES}


def beans_of(reading: Reading, writes: WriteTimes) -> Beans:
    """All beans now."""
    gauges = {
        f"{CONTROLLER}{name}": {"Value": int(_FIGURES[CONTROLLER_PREFIX + name.lower()](reading))} for name in NAMES
    }
    times = {f"{CONTROLLER}{name}": attributes for name, attributes in writes.attributes().items()}
    raft = {
        name.removeprefix(RAFT_PREFIX).replace("_", "-"): float(figure(reading))
        for name, figure in _FIGURES.items()
        if name.startswith(RAFT_PREFIX)
    }
    texts = {"current-state": reading.kafka_raft_state, "current-vote-directory-id": reading.voted_directory}
    return {**gauges, **times, RAFT: {**raft, **texts}}


def bean_reader(read: Callable[[], Reading], writes: WriteTimes) -> Callable[[], Beans]:
    """Like `beans_of`, for any thread."""
    return lambda: beans_of(read(), writes)
