"""The table of every key that a property file may hold: Kafka's (`kafka_keys`, generated) and ours (here).

`load` parses values after it, and docs/configuration.md is made of it. A key has one type and at most one default. A
key of ours begins with ``migrator.`` and has a description. A synonym counts only when the key itself is not set.
"""

from __future__ import annotations

from migrator.config.kafka_keys import BROKER_KEYS
from migrator.values import value


@value
class Key:
    """One configuration key. ``default`` is text as in a file; None for no default."""

    name: str
    kind: str
    default: str | None
    valid: str = ""
    doc: str = ""


# Kafka's keys that several rooms read or write.
FLAG, ROLES = "zookeeper.metadata.migration.enable", "process.roles"
"""The keys that say whether a node takes part in a migration, and its roles in KRaft mode."""
KEEP_WAY_BACK = "migrator.keep.way.back"
"""Whether controllers refuse features that close the way back from a finished migration."""
NODE_ID, BROKER_ID = "node.id", "broker.id"
CONNECT, AUTHORIZER = "zookeeper.connect", "authorizer.class.name"
VOTERS, SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
CONTROLLERS, PROTOCOLS = "controller.listener.names", "listener.security.protocol.map"
CONTROL_PLANE, BETWEEN = "control.plane.listener.name", "inter.broker.listener.name"
IBP = "inter.broker.protocol.version"
TOKEN_SECRET = "delegation.token.secret.key"  # noqa: S105 - a key
OWN_KEYS: tuple[Key, ...] = (
    Key(
        "migrator.grpc.listener",
        "string",
        "",
        doc="host:port of this node's gRPC server (quorum and operator service). Empty: the quorum speaks the "
        "Kafka protocol only.",
    ),
    Key(
        "migrator.grpc.voters",
        "list",
        "",
        doc="id@host:port of each voter's gRPC server. Empty: the quorum speaks the Kafka protocol on the "
        "controller listener, as it does to a voter that does not answer over gRPC.",
    ),
    Key(
        "migrator.grpc.tls.certificate.file",
        "string",
        "",
        doc="PEM certificate chain of this node. migrator.grpc.listener needs the three files and "
        "migrator.grpc.voter.principals: gRPC speaks mutual TLS on every address, 127.0.0.1 included. The files are "
        "read again when they change.",
    ),
    Key("migrator.grpc.tls.key.file", "string", "", doc="PEM private key of this node, without a password."),
    Key("migrator.grpc.tls.ca.file", "string", "", doc="PEM certificates that peers and operators must be signed by."),
    Key(
        "migrator.grpc.voter.principals",
        "string",
        "",
        doc="The certificate of each voter on gRPC: id@User:SUBJECT, separated by semicolons, for example "
        "3001@User:CN=controller-1,O=bank;3002@User:CN=controller-2,O=bank. SUBJECT is the whole subject of the "
        "certificate, its last part first (openssl x509 -noout -subject -nameopt RFC2253); "
        "ssl.principal.mapping.rules do not apply. A certificate that is not named here does not vote, fetch or lead. "
        "A voter may have two names while its certificate changes.",
    ),
    Key(
        "migrator.grpc.operator.principals",
        "string",
        "",
        doc="Whose certificates may give orders over gRPC (pause, resume, force, verdicts) and read the status: "
        "User:SUBJECT, separated by semicolons. Certificates of voters may read the status only. Empty: orders are "
        "given through the socket in the metadata directory only.",
    ),
    Key(
        "migrator.quorum.require.bootstrap",
        "boolean",
        "false",
        doc="true: a controller whose metadata directory was empty when it started neither votes nor stands for "
        "election before it has fetched all that is committed from a leader, however often it is restarted, so that "
        "voters with wiped disks cannot elect an empty log. It votes at once when every other voter says that its "
        "directory is empty, too: all voters of a new quorum have to run. To start one with fewer, start a majority "
        "once with 'migrator controller --bootstrap'.",
    ),
    Key("migrator.metrics.listener", "string", "", doc="host:port of the Prometheus endpoint. Empty: none."),
    Key(
        "migrator.metrics.tls.certificate.file",
        "string",
        "",
        doc="PEM certificate chain of the Prometheus endpoint; turns TLS on there. It is read again when it changes.",
    ),
    Key(
        "migrator.metrics.tls.key.file",
        "string",
        "",
        doc="PEM private key of the Prometheus endpoint, not encrypted.",
    ),
    Key(
        "migrator.metrics.tls.ca.file",
        "string",
        "",
        doc="PEM certificates of the CAs whose clients may scrape. Empty: no certificate is asked for.",
    ),
    Key(
        "migrator.metrics.basic.auth.file",
        "string",
        "",
        doc="File of the users who may scrape: user:password, one per line. Other users of the machine must not be "
        "able to read the file. Empty: no password is asked for.",
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
        "migrator.zookeeper.jaas.file",
        "string",
        "",
        doc="The JAAS file that logs us in to ZooKeeper with SASL: the very file that stock brokers and controllers "
        "get by -Djava.security.auth.login.config. DigestLoginModule means DIGEST-MD5; Krb5LoginModule means GSSAPI "
        "and needs the Python package gssapi. The file is read again at each connect. Empty: no SASL.",
    ),
    Key(
        "migrator.zookeeper.jaas.section",
        "string",
        "Client",
        doc="The section of that file, as -Dzookeeper.sasl.clientconfig names it.",
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
        "A reconcile that would delete more entities from ZooKeeper than this number stops, and waits for the "
        "operator's order.",
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
        doc="Whether the migration finishes only after a verification found both sides equal.",
    ),
    Key(
        KEEP_WAY_BACK,
        "boolean",
        "true",
        doc="Whether the controllers refuse, after the end of the migration, what ZooKeeper mode does not have. "
        "migrator close-way-back ends this for the whole quorum.",
    ),
    Key("migrator.copy.batch.records", "int", "2000", "[1,...,5000]", "Records in one batch of the copy."),
    Key(
        "migrator.journal.max.bytes",
        "int",
        "16777216",
        "[65536,...]",
        "Size at which the journal of transitions is rotated; one older file is kept.",
    ),
    Key(
        "migrator.authorizer.log.file",
        "string",
        "",
        doc="File of the log of the authorizer. Empty: authorizer-log.jsonl in the metadata directory. Full files get "
        "a number behind this name.",
    ),
    Key(
        "migrator.authorizer.log.max.bytes",
        "long",
        "268435456",
        "[1048576,...]",
        "Size of all files of the authorizer's log together: one that is being written, and nine older ones.",
    ),
    Key(
        "migrator.authorizer.log.allowed",
        "string",
        "changes",
        "[changes, all]",
        "What the log of the authorizer gets of requests that were allowed. changes: ALTER, ALTER_CONFIGS, CREATE, "
        "DELETE, delegation tokens, and the first CLUSTER_ACTION of each connection. all: everything. Denied "
        "requests are logged in both cases.",
    ),
    Key("migrator.log.format", "string", "text", "[text, json]", "Form of the process log on standard error."),
)

INTERNAL_KAFKA_KEYS: tuple[Key, ...] = (
    Key("allow.everyone.if.no.acl.found", "boolean", "false"),
    Key("config.providers", "list", ""),
    Key("log4j.configuration", "string", ""),
    Key("server.max.startup.time.ms", "long", None, "[0,...]"),
    Key("super.users", "string", None),
    Key("unstable.api.versions.enable", "boolean", "false"),
    Key("unstable.feature.versions.enable", "boolean", "false"),
    Key(
        "zookeeper.metadata.migration.min.batch.size",
        "int",
        "200",
        "[1,...]",
        "Kafka's internal key; the copy uses migrator.copy.batch.records, and this as its lower bound.",
    ),
)
"""Keys that Kafka reads but does not list in its documentation."""

KEYS: dict[str, Key] = {
    **{name: Key(name, kind, default, valid) for name, kind, default, valid, _ in BROKER_KEYS},
    **{key.name: key for key in INTERNAL_KAFKA_KEYS + OWN_KEYS},
}

SYNONYMS = {
    "node.id": "broker.id",
    "broker.id": "node.id",
    TOKEN_SECRET: "delegation.token.master.key",
}
"""A key -> its synonym, whose value counts when only the synonym is set."""


def names_of(key: str) -> tuple[str, ...]:
    """The key and its synonym. A file may have an empty key, from a line with only a backslash: it counts as no key."""
    return (key, SYNONYMS[key]) if key in SYNONYMS else (key,)


_BY_ATTRIBUTE = {name.replace(".", "_"): key for name, key in KEYS.items()}


def key_of_attribute(attribute: str) -> Key:
    """The key of an attribute of `Settings`.

    :raises KeyError: when there is none.
    """
    return _BY_ATTRIBUTE[attribute]
