"""The words of Kafka and its tools for the states of a migration, next to ours. Pure.

Sources: MigrationDriverState in Kafka 3.9 (org.apache.kafka.metadata.migration); the phases are those of Confluent's
kafka-migration-check. A test compares both tables with docs/kip-866.md.
"""

from __future__ import annotations

from collections.abc import Mapping

DRIVER_STATES: Mapping[str, str] = {
    "inactive": "INACTIVE",
    "nothing to migrate": "INACTIVE",
    "turned off": "",
    "examining ZooKeeper": "UNINITIALIZED",
    "refused": "",
    "releasing a claim": "",
    "awaiting a ZooKeeper controller": "",
    "waiting for controllers": "WAIT_FOR_CONTROLLER_QUORUM",
    "waiting for brokers": "WAIT_FOR_BROKERS",
    "decoding": "",
    "paused": "",
    "claiming": "BECOME_CONTROLLER",
    "copying": "ZK_MIGRATION",
    "committing the copy": "ZK_MIGRATION",
    "aborting the copy": "ZK_MIGRATION",
    "reconciling": "SYNC_KRAFT_TO_ZK",
    "holding deletes": "SYNC_KRAFT_TO_ZK",
    "comparing beside the writes": "SYNC_KRAFT_TO_ZK",
    "informing brokers": "KRAFT_CONTROLLER_TO_BROKER_COMM",
    "dual-writing": "DUAL_WRITE",
    "finishing": "DUAL_WRITE",
    "stepping down": "DUAL_WRITE",
    "completing": "",
    "finished": "INACTIVE",
    "reopening": "",
    "admitting ZooKeeper brokers": "",
}
"""Our internal state -> Kafka's; "" for a state that Kafka's driver does not have."""
PHASES: Mapping[tuple[str, bool], str] = {
    ("MigrationIneligible", True): "PREMIGRATION",
    ("MigrateZkData", True): "PREMIGRATION",
    ("DualWrite", True): "HYBRID_DUAL_WRITE",
    ("DualWrite", False): "PURE_DUAL_WRITE",
    ("Finished", False): "FINALIZED",
}
"""Our public state, and whether a broker is in ZooKeeper mode -> the phase."""


def kafkas_words(public_state: str, internal_state: str, *, in_zookeeper_mode: bool) -> str:
    """The phase and the state of Kafka's driver; "" where Kafka has no word.

    :param in_zookeeper_mode: whether a broker is in ZooKeeper mode, with the migration on or off.
    """
    words = (PHASES.get((public_state, in_zookeeper_mode), ""), DRIVER_STATES.get(internal_state, ""))
    return ", ".join(filter(None, words))
