"""Brokers in KRaft mode on our quorum, as each suite of a client finds them."""

from __future__ import annotations

from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from tests.interop.support.cluster import KafkaCluster

BROKERS = 2


def start(cluster: KafkaCluster, brokers: int = BROKERS) -> None:
    """Our controllers, and then the brokers, of which the cluster has so many."""
    cluster.start_controllers()
    cluster.start_brokers(KafkaBrokerMode.KRAFT)
    until("all brokers are unfenced", lambda: cluster.running_brokers() == dict.fromkeys(range(1, brokers + 1), False))
