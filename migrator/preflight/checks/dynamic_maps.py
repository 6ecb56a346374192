"""A ``listener.security.protocol.map`` that is set dynamically, without the controllers' listener.

A broker in migration mode takes its dynamic settings from ZooKeeper before it looks for the protocol of that listener.
Without a protocol it does not start. Source: ``KafkaServer.startup``, ``RaftManager.buildNetworkClient`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.config.keys import CONTROLLERS, PROTOCOLS
from migrator.config.reading import listener_names
from migrator.config.types import entries_of
from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Found, PreflightCheck
from migrator.preflight.evidence import Evidence
from migrator.records.metadata import SecurityProtocol
from migrator.zookeeper.znodes import paths


def without_controllers(evidence: Evidence) -> Iterator[Found]:
    """Checks each broker's own dynamic configuration. Kafka ignores such a map in the configuration of all brokers
    (``DynamicBrokerConfig``)."""
    if evidence.zookeeper is None:
        return
    ours = [controller.file.get(CONTROLLERS) for controller in evidence.controllers]
    own = {str(broker.broker_id): broker for broker in evidence.brokers}
    for broker, text in sorted(evidence.zookeeper.dynamic_maps.items()):
        file = own[broker].file if broker in own else None
        told = (file.get(CONTROLLERS) if file is not None else "") or next(iter(ours), "")
        name = next(iter(listener_names(told)), "").upper()
        known = {entry.rpartition(":")[0].strip().upper() for entry in entries_of(text)}
        if name and name not in {*known, *SecurityProtocol.__members__}:
            what = f"broker {broker}: {PROTOCOLS} is {text}, without the controllers' listener {name}"
            yield Found(f"{paths.BROKER_CONFIGS}/{broker}", what)


CHECKS = (
    PreflightCheck(
        "M127", Severity.BLOCKER, "Dynamic listener maps without the controllers' listener", without_controllers,
        "A dynamic map counts more than the one of the property file: the broker would not start in migration mode. "
            "Add the listener to it with kafka-configs.sh --alter --add-config, or, if the map of the file has all "
            "listeners, remove it with --delete-config listener.security.protocol.map",
    ),
)  # fmt: skip
