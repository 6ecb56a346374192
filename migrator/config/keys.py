"""The table of every key that a property file may hold: Kafka's (generated) and ours (here)."""

from __future__ import annotations

import difflib
import re

from migrator.config.kafka_keys import BROKER_KEYS
from migrator.values import value


@value
class Key:
    """One configuration key. ``default`` is text as it would stand in a file; None means none."""

    name: str
    kind: str
    default: str | None
    valid: str = ""
    doc: str = ""


OWN_KEYS: tuple[Key, ...] = (
    Key(
        "migrator.grpc.listener",
        "string",
        "",
        "",
        "host:port of this node's gRPC server (quorum and operator service). Empty: the quorum speaks the "
        "Kafka protocol only.",
    ),
    Key(
        "migrator.grpc.voters",
        "list",
        "",
        "",
        "id@host:port of each voter's gRPC server. Empty: the quorum speaks the Kafka protocol on the "
        "controller listener, as it does to a voter that does not answer over gRPC.",
    ),
    Key(
        "migrator.grpc.tls.certificate.file",
        "string",
        "",
        "",
        "PEM certificate chain of this node; with the next two it turns mutual TLS on, which any address "
        "off loopback demands.",
    ),
    Key(
        "migrator.grpc.tls.key.file",
        "string",
        "",
        "",
        "PEM private key of this node.",
    ),
    Key(
        "migrator.grpc.tls.ca.file",
        "string",
        "",
        "",
        "PEM certificates that peers and operators must be signed by.",
    ),
    Key(
        "migrator.metrics.listener",
        "string",
        "",
        "",
        "host:port of the Prometheus endpoint. Empty: none.",
    ),
    Key(
        "migrator.write.behind.max.records",
        "int",
        "20000",
        "[1,...]",
        "How far ZooKeeper may fall behind the log, in records, before administrative writes wait.",
    ),
    Key(
        "migrator.write.behind.max.age.ms",
        "long",
        "600000",
        "[1000,...]",
        "How long the oldest change may be missing in ZooKeeper before administrative writes wait. A new leader that "
        "does not know yet what is missing counts from its election. The time in which a comparison of all of "
        "ZooKeeper makes progress does not count.",
    ),
    Key(
        "migrator.write.behind.max.block.ms",
        "int",
        "15000",
        "[0,...]",
        "How long an administrative write waits for ZooKeeper to catch up before it fails with a retriable error.",
    ),
    Key(
        "migrator.write.behind.drain.ms",
        "int",
        "10000",
        "[0,...]",
        "How long a stopping leader goes on writing to ZooKeeper before it hands leadership over. If ZooKeeper does "
        "not hold everything by then, the process ends with exit code 3.",
    ),
    Key(
        "migrator.zookeeper.jute.maxbuffer",
        "int",
        "1048575",
        "[65536,...]",
        "The jute.maxbuffer of the ZooKeeper servers, in bytes: they close the connection at a larger request. A "
        "change that would make a znode larger than this is refused while ZooKeeper is written. Set the servers' value "
        "if they have another one.",
    ),
    Key(
        "migrator.reconcile.max.deletes",
        "int",
        "100",
        "[0,...]",
        "A reconcile that would delete more entities from ZooKeeper than this holds and asks.",
    ),
    Key(
        "migrator.audit.interval.ms",
        "int",
        "30000",
        "[1000,...]",
        "How often ZooKeeper is read in DualWrite to find writes of others.",
    ),
    Key(
        "migrator.finish.require.verify",
        "boolean",
        "false",
        "",
        "Whether the migration finishes only after a verification found both sides equal.",
    ),
    Key(
        "migrator.copy.batch.records",
        "int",
        "2000",
        "[1,...,5000]",
        "Records in one batch of the copy.",
    ),
    Key(
        "migrator.journal.max.bytes",
        "int",
        "16777216",
        "[65536,...]",
        "Size at which the journal of transitions is rotated; one older file is kept.",
    ),
    Key(
        "migrator.log.format",
        "string",
        "text",
        "[text, json]",
        "Form of the process log on standard error.",
    ),
)

INTERNAL_KAFKA_KEYS: tuple[Key, ...] = (
    Key(
        "zookeeper.metadata.migration.min.batch.size",
        "int",
        "200",
        "[1,...]",
        "Kafka's internal key; the copy uses migrator.copy.batch.records, and this as its lower bound.",
    ),
    Key("log4j.configuration", "string", ""),
)

KEYS: dict[str, Key] = {
    **{name: Key(name, kind, default, valid) for name, kind, default, valid, _ in BROKER_KEYS},
    **{key.name: key for key in INTERNAL_KAFKA_KEYS + OWN_KEYS},
}

LISTENER_KEY = re.compile(r"^listener\.name\.([^.]+)\.(?:[^.]+\.)?(.+)$")
"""``listener.name.<listener>.[<mechanism>.]<key>``: a Kafka key for one listener."""

FREE_PREFIXES = ("config.providers", "rlmm.config.", "rsm.config.", "listener.name.", "ssl.", "sasl.", "zookeeper.ssl.")
"""What Kafka hands to plug-ins or resolves itself: not checked against the table."""


def unknown_key_hint(name: str) -> str | None:
    """None for a key that Kafka or we know, else a sentence fragment for the warning."""
    if name in KEYS or name.startswith(FREE_PREFIXES):
        return None
    close = difflib.get_close_matches(name, KEYS, n=1, cutoff=0.85)
    return f"did you mean {close[0]}?" if close else "neither Kafka 3.9 nor migrator has it"
