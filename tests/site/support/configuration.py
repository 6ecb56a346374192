"""The configuration reference, docs/configuration.md, made from the same tables that the loader uses.

It has the meaning of each of Kafka's keys that a controller uses, in one or two sentences. Many keys are the default of
a topic configuration; their sentences are made from the table of topic configurations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from migrator.config.kafka_keys import TOPIC_KEYS
from migrator.config.key_lists import (
    DYNAMIC,
    IGNORED,
    OF_BROKERS,
    OF_BROKERS_FAMILIES,
    OF_LISTENERS,
    REFUSED,
    SECURITY_FAMILIES,
)
from migrator.config.key_uses import ACTED_UPON
from migrator.config.keys import KEYS, OWN_KEYS, Key

_OF_TOPICS: Mapping[str, str] = {
    broker_key: f"The default of `{name}` of topics." for name, *_, broker_key in TOPIC_KEYS if broker_key is not None
}  # fmt: skip
_QUORUM: Mapping[str, str] = {
    "controller.listener.names": "The listeners of this controller; the first one is for the other controllers.",
    "controller.quorum.bootstrap.servers": "Where to find the quorum when its log names the voters: host:port of some "
    "controllers. Not needed with controller.quorum.voters.",
    "controller.quorum.election.backoff.max.ms": "The longest pause after an election that nobody has won.",
    "controller.quorum.election.timeout.ms": "How long a candidate waits for votes before the next attempt.",
    "controller.quorum.fetch.timeout.ms": "A follower that reaches no leader for so long stands for election. A leader "
    "that no majority asks for so long resigns.",
    "controller.quorum.request.timeout.ms": "How long a controller waits for the answer of another one.",
    "controller.quorum.retry.backoff.ms": "The pause before a failed request to another controller is repeated.",
    "controller.quorum.voters": "Who votes: id@host:port of every controller. The same on all controllers and brokers.",
    "node.id": "The id of this controller. No other controller, and no broker, may have it.",
    "broker.id": "An old name of node.id. If both are set, they must be equal.",
    "process.roles": "Must be `controller`.",
    "advertised.listeners": "Where brokers and other controllers reach this controller, if that is not what listeners "
    "says.",
    "listeners": "The addresses at which this controller listens.",
    "listener.security.protocol.map": "The protocol of each listener. It must name the listener of the brokers too, "
    "because the controllers connect to it.",
    "inter.broker.listener.name": "The listener of the brokers to which this controller connects during a "
    "migration. As the brokers have it.",
    "control.plane.listener.name": "As the brokers have it: then the controllers connect to this listener instead of "
    "inter.broker.listener.name.",
    "security.inter.broker.protocol": "An old way to name the listener of the brokers, by its protocol.",
    "config.providers": "The providers that resolve placeholders in this file.",
}
_LOG: Mapping[str, str] = {
    "log.dir": "The directory of the metadata, if log.dirs is not set.",
    "log.dirs": "The directories of this node; the metadata is in the first one, unless metadata.log.dir is set.",
    "metadata.log.dir": "The directory of the metadata log, its snapshots and the journal.",
    "metadata.log.max.record.bytes.between.snapshots": "After so many bytes of records, a snapshot is written.",
    "metadata.log.max.snapshot.interval.ms": "After so much time with new records, a snapshot is written. 0: only "
    "after bytes.",
    "metadata.log.segment.bytes": "The size at which a new file of the log is begun.",
    "metadata.log.segment.ms": "The age at which a new file of the log is begun.",
    "metadata.max.idle.interval.ms": "How often an idle leader appends a record, so that lag can be seen. 0: never.",
    "metadata.max.retention.bytes": "Log and snapshots above this size are deleted, the oldest first, if a newer "
    "snapshot covers them.",
    "metadata.max.retention.ms": "Log and snapshots above this age are deleted, if a newer snapshot covers them.",
}
_CLUSTER: Mapping[str, str] = {
    "alter.config.policy.class.name": "Java code that cannot run here: a controller with it refuses to start.",
    "create.topic.policy.class.name": "Java code that cannot run here: a controller with it refuses to start.",
    "auto.leader.rebalance.enable": "Whether preferred leaders are elected from time to time.",
    "leader.imbalance.check.interval.seconds": "How often preferred leaders are elected.",
    "broker.heartbeat.interval.ms": "How often brokers send heartbeats, if their files say the same. A warning "
    "says if broker.session.timeout.ms is less than two of them.",
    "broker.session.timeout.ms": "A broker that sends no heartbeat for so long is fenced: others lead its partitions.",
    "controller.quota.window.num": "How many samples a quota on mutations looks back over.",
    "controller.quota.window.size.seconds": "How long one such sample is.",
    "default.replication.factor": "Replicas of a topic that is created without a number. As the brokers have it.",
    "num.partitions": "Partitions of a topic that is created without a number. As the brokers have it.",
    "delete.topic.enable": "Whether topics may be deleted.",
    "remote.log.storage.system.enable": "Whether topics may set remote.storage.enable. As the brokers have it.",
    "delegation.token.expiry.check.interval.ms": "How often expired delegation tokens are removed.",
    "delegation.token.expiry.time.ms": "How long a delegation token lives without a renewal.",
    "delegation.token.max.lifetime.ms": "How long a delegation token lives at most.",
    "delegation.token.master.key": "An old name of delegation.token.secret.key.",
    "delegation.token.secret.key": "Signs delegation tokens. As the brokers have it.",
    "log.flush.scheduler.interval.ms": "The default of `flush.ms`, if log.flush.interval.ms is not set.",
    "log.retention.hours": "The default of `retention.ms`, in hours, if neither minutes nor ms are set.",
    "log.retention.minutes": "The default of `retention.ms`, in minutes, if log.retention.ms is not set.",
    "log.roll.hours": "The default of `segment.ms`, in hours, if log.roll.ms is not set.",
    "log.roll.jitter.hours": "The default of `segment.jitter.ms`, in hours, if log.roll.jitter.ms is not set.",
}
_ACCESS: Mapping[str, str] = {
    "allow.everyone.if.no.acl.found": "Whether everybody may use a resource that no access control entry names.",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer: access control entries decide. "
    "Empty: every client that gets in may do everything.",
    "super.users": "Who may do everything: User:NAME, separated by semicolons.",
    "principal.builder.class": "Only Kafka's own: a principal is named by its certificate or its login.",
    "connection.failed.authentication.delay.ms": "The pause before a failed login is answered.",
    "connections.max.idle.ms": "A connection that is idle for so long is closed.",
    "connections.max.reauth.ms": "After so long a client must log in again. 0: never.",
    "max.connection.creation.rate": "New connections a second.",
    "max.connections": "Connections at the same time.",
    "max.connections.per.ip": "Connections at the same time from one address.",
    "max.connections.per.ip.overrides": "The same for certain addresses: host:number, with commas between.",
    "queued.max.request.bytes": "The memory for requests that are not answered yet. -1: a bound of this program.",
    "socket.listen.backlog.size": "How many new connections wait for their turn.",
    "socket.request.max.bytes": "The largest request.",
}
_SASL: Mapping[str, str] = {
    "sasl.enabled.mechanisms": "The logins that a listener takes.",
    "sasl.jaas.config": "The login that this controller uses, or the users that a listener knows.",
    "sasl.mechanism.controller.protocol": "How this controller logs in to other controllers.",
    "sasl.mechanism.inter.broker.protocol": "How this controller logs in to brokers.",
    "sasl.oauthbearer.clock.skew.seconds": "By how much the clocks of who signs and who checks tokens may differ.",
    "sasl.oauthbearer.expected.audience": "The audiences that a token may be for.",
    "sasl.oauthbearer.expected.issuer": "Who must have issued a token.",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "How often the keys for tokens are fetched.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "The longest pause before the keys are asked for again.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "The first pause before the keys are asked for again.",
    "sasl.oauthbearer.jwks.endpoint.url": "Where the keys are that tokens are checked with.",
    "sasl.oauthbearer.scope.claim.name": "The name of a token's scope.",
    "sasl.oauthbearer.sub.claim.name": "The part of a token that holds the name of the user.",
    "sasl.oauthbearer.token.endpoint.url": "Where this controller gets its own token.",
    "sasl.server.max.receive.size": "The largest message of a login.",
}
_TLS: Mapping[str, str] = {
    "ssl.allow.dn.changes": "Whether a new certificate may have another subject.",
    "ssl.allow.san.changes": "Whether a new certificate may name other hosts.",
    "ssl.cipher.suites": "The ciphers. Empty: those of OpenSSL.",
    "ssl.client.auth": "Whether callers must show a certificate.",
    "ssl.enabled.protocols": "The versions of TLS.",
    "ssl.endpoint.identification.algorithm": "https: the certificate of the other side must name its host. Empty: "
    "nobody looks.",
    "ssl.key.password": "Opens the private key.",
    "ssl.keystore.certificate.chain": "The certificates of this controller, as PEM in this file.",
    "ssl.keystore.key": "The private key of this controller, as PEM in this file.",
    "ssl.keystore.location": "The file with key and certificates of this controller.",
    "ssl.keystore.password": "Opens that file.",
    "ssl.keystore.type": "What that file is: JKS, PKCS12 or PEM.",
    "ssl.principal.mapping.rules": "Make the name of a user from the subject of a certificate.",
    "ssl.truststore.certificates": "The authorities that this controller trusts, as PEM in this file.",
    "ssl.truststore.location": "The file with the authorities that this controller trusts.",
    "ssl.truststore.password": "Opens that file.",
    "ssl.truststore.type": "What that file is: JKS, PKCS12 or PEM.",
}
_ZOOKEEPER: Mapping[str, str] = {
    "password.encoder.cipher.algorithm": "The cipher of passwords that are written to ZooKeeper. As on the brokers.",
    "password.encoder.iterations": "The rounds that make a key of password.encoder.secret.",
    "password.encoder.key.length": "The length of that key.",
    "password.encoder.keyfactory.algorithm": "How that key is made.",
    "password.encoder.secret": "Decodes and encodes the passwords in ZooKeeper. As the brokers have it.",
    "zookeeper.connect": "The ZooKeeper of the brokers, chroot included: host:port[,host:port...][/chroot].",
    "zookeeper.connection.timeout.ms": "How long the first connection may take.",
    "zookeeper.max.in.flight.requests": "Requests to ZooKeeper that are not answered yet.",
    "zookeeper.metadata.migration.enable": "Whether to migrate. The migration ends when all controllers have it off.",
    "zookeeper.metadata.migration.min.batch.size": "Records in one batch of the copy, if "
    "migrator.copy.batch.records is smaller.",
    "zookeeper.session.timeout.ms": "After so long without this controller, ZooKeeper ends its session.",
    "zookeeper.set.acl": "Whether znodes are made with access control lists. As the brokers have it.",
    "zookeeper.ssl.cipher.suites": "The ciphers for ZooKeeper.",
    "zookeeper.ssl.client.enable": "Whether to speak TLS with ZooKeeper.",
    "zookeeper.ssl.enabled.protocols": "The versions of TLS for ZooKeeper.",
    "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS: a server's certificate must name its host.",
    "zookeeper.ssl.keystore.location": "The file with key and certificates for ZooKeeper.",
    "zookeeper.ssl.keystore.password": "Opens that file.",
    "zookeeper.ssl.keystore.type": "What that file is: JKS, PKCS12 or PEM. Default: as its name ends.",
    "zookeeper.ssl.protocol": "The version of TLS for ZooKeeper, if zookeeper.ssl.enabled.protocols is not set.",
    "zookeeper.ssl.truststore.location": "The file with the authorities that ZooKeeper's certificates are signed by.",
    "zookeeper.ssl.truststore.password": "Opens that file.",
    "zookeeper.ssl.truststore.type": "What that file is: JKS, PKCS12 or PEM. Default: as its name ends.",
}
MEANINGS: Mapping[str, str] = {**_OF_TOPICS, **_QUORUM, **_LOG, **_CLUSTER, **_ACCESS, **_SASL, **_TLS, **_ZOOKEEPER}


INTRODUCTION = """\
# Configuration

`migrator` reads the property file of a stock Kafka controller, with Kafka's key names, defaults and units. If a value
cannot be used, `migrator` ends with exit code 2, and its message names file, key, value and remedy. Placeholders of
`FileConfigProvider`, `DirectoryConfigProvider` and `EnvVarConfigProvider` are resolved, within `allowed.paths` and
`allowlist.pattern` if those are set; messages and logs show the placeholder instead of the value,
except values of up to three characters, numbers of up to five digits, and words of this file or of Kafka's own keys.
Keys for one listener (`listener.name.<listener>.[<mechanism>.]<key>`) work as in Kafka; a key for a listener
that `listener.security.protocol.map` does not name is refused.

The file is read as Kafka reads it, as ISO 8859-1: in a file that was saved as UTF-8, each byte of a character beyond
ASCII is a character of its own, also in a password. Write such characters as `\\uXXXX`. The file of a
`FileConfigProvider` is read as UTF-8.

`migrator` uses, refuses or ignores each key of Kafka 3.9: the lists follow. An unknown key is refused if its name is
close to the name of a security key, or begins like one ({families}). For any other unknown key there is a warning.

This page is generated: `python -m tests.site.support.reference`.
"""


def configuration() -> str:
    """The whole page, Markdown."""
    return "\n".join(
        [INTRODUCTION.format(families=_names(SECURITY_FAMILIES)), *_own(), *_kafka(), *_refused(), *_ignored()]
    )


def _own() -> Iterator[str]:
    yield "## Keys of migrator\n\nEach key has a default. With the defaults, no network address is opened.\n"
    yield "| key | type | default | valid | what it does |"
    yield "|---|---|---|---|---|"
    for key in OWN_KEYS:
        yield f"{_row(key)} {key.doc} |"


def _kafka() -> Iterator[str]:
    yield "\n## Kafka's keys that a controller uses\n"
    yield "They mean what they mean in Kafka; the last column says what a controller of this program does with them."
    yield "*Listener*: the key may also be set for one listener. *Dynamic*: a limit of connections that `kafka-configs"
    yield "--entity-type brokers` changes while the controller runs, for its id or as the default of all nodes.\n"
    yield "| key | type | default | valid | | what it does |"
    yield "|---|---|---|---|---|---|"
    own = {key.name for key in OWN_KEYS}
    for name in sorted(ACTED_UPON - own):
        notes = [note for note, names in (("listener", OF_LISTENERS), ("dynamic", DYNAMIC)) if name in names]
        yield f"{_row(KEYS[name])} {', '.join(notes)} | {MEANINGS[name]} |"


def _refused() -> Iterator[str]:
    yield "\n## Kafka's keys that are refused\n\nWithout them this node would be less secure than its file says.\n"
    yield "| key | why | what to do | accepted values |"
    yield "|---|---|---|---|"
    for name, refusal in sorted(REFUSED.items()):
        harmless = ", ".join(f"`{text}`" if text else "(empty)" for text in refusal.harmless)
        yield f"| `{name}` | {refusal.because} | {refusal.remedy} | {harmless} |"


def _ignored() -> Iterator[str]:
    yield "\n## Kafka's keys that are ignored\n"
    yield "If a file sets such keys, one line at the start of the process names them.\n"
    yield "| why | keys |"
    yield "|---|---|"
    for why, names in IGNORED.items():
        yield f"| {why} | {_names(names)} |"
    yield "\nKeys for the work of brokers are ignored without a message, because one file may serve both. These are "
    yield f"all keys that begin with {_names(OF_BROKERS_FAMILIES)}, and these:\n"
    yield _names(OF_BROKERS)
    yield ""


def _row(key: Key) -> str:
    default = "" if key.default is None else f"`{key.default}`" if key.default else "(empty)"
    return f"| `{key.name}` | {key.kind} | {default} | {key.valid} |"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
