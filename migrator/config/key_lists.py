"""Three lists of keys: those that a controller acts upon, those that it refuses, and those that it ignores.

Every key of stock Kafka 3.9.1 and of this program is in exactly one of them, which a test checks. A key is refused when
ignoring it would make this node less secure than its file says.
"""

from __future__ import annotations

from collections.abc import Mapping

from migrator.config.kafka_keys import TOPIC_KEYS
from migrator.values import value

JAVA_CLASS = "it names a Java class, which cannot run here"
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer."
OAUTHBEARER_VALIDATORS = (
    f"{_OAUTHBEARER}OAuthBearerValidatorCallbackHandler",
    f"{_OAUTHBEARER}secured.OAuthBearerValidatorCallbackHandler",
)
"""Validators of signed tokens (KIP-768)."""
OAUTHBEARER_LOGINS = (
    f"{_OAUTHBEARER}OAuthBearerLoginCallbackHandler",
    f"{_OAUTHBEARER}secured.OAuthBearerLoginCallbackHandler",
)
UNSECURED_VALIDATOR = f"{_OAUTHBEARER}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
UNSECURED_LOGIN = f"{_OAUTHBEARER}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
"""Login with unsigned tokens (KIP-255); Kafka's defaults."""
PLAIN_VALIDATOR = "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler"
"""Classes of Kafka whose function this program has, too."""
SECURITY_FAMILIES = (
    "allow.everyone.",
    "authorizer.",
    "config.provider",
    "delegation.token.",
    "listener.",
    "migrator.",
    "password.encoder.",
    "principal.",
    "sasl.",
    "security.",
    "ssl.",
    "super.",
    "zookeeper.sasl.",
    "zookeeper.set.",
    "zookeeper.ssl.",
)
"""An unknown key of these families is refused: it is misspelt, or meant for a function that this program lacks."""
MORE_SECURITY_KEYS = (
    "connection.failed.authentication.delay.ms",
    "connections.max.idle.ms",
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "zookeeper.clientCnxnSocket",
)
OF_THE_JAVA_MACHINE = ("-D", "com.sun.", "java.", "javax.", "jdk.", "org.apache.kafka.", "sun.")
"""Prefixes of Java system properties, which have no effect in a property file."""


@value
class RefusedKey:
    """The reason why a key is refused, and the remedy. A value in ``harmless`` (in any case) is not refused: it asks
    for the behaviour that this program has anyway."""

    because: str
    remedy: str
    harmless: tuple[str, ...] = ()


DYNAMIC = (
    "max.connections",
    "max.connection.creation.rate",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
)
"""Bounds of connections that change while a controller runs (``SocketServer.ReconfigurableConfigs``)."""
OF_LISTENERS: frozenset[str] = frozenset(
    {
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.server.max.receive.size",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Keys that `migrator.wire` reads, for all listeners or with the prefix of one. Acted upon."""

TOPIC_DEFAULTS: frozenset[str] = frozenset(row[4] for row in TOPIC_KEYS if row[4]) | {
    "log.flush.scheduler.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.roll.hours",
    "log.roll.jitter.hours",
    "remote.log.storage.system.enable",
}
"""Keys that the controller returns and checks as defaults of topics. Acted upon."""

REFUSED: Mapping[str, RefusedKey] = {
    "sasl.client.callback.handler.class": RefusedKey(
        JAVA_CLASS, "Remove the key, and write the login into sasl.jaas.config"
    ),
    "sasl.login.callback.handler.class": RefusedKey(
        JAVA_CLASS,
        f"Remove the key, and write the login into sasl.jaas.config, or use {OAUTHBEARER_LOGINS[0]}",
        (*OAUTHBEARER_LOGINS, UNSECURED_LOGIN),
    ),
    "sasl.login.class": RefusedKey(JAVA_CLASS, "Remove the key, and write the login into sasl.jaas.config"),
    "sasl.server.callback.handler.class": RefusedKey(
        JAVA_CLASS,
        "Remove the key, and let clients of this listener log in with certificates, SCRAM, PLAIN users in the file, or "
        f"tokens that {OAUTHBEARER_VALIDATORS[0]} checks",
        (*OAUTHBEARER_VALIDATORS, UNSECURED_VALIDATOR, PLAIN_VALIDATOR),
    ),
    "security.providers": RefusedKey(JAVA_CLASS, "Remove the key: this node's TLS library is OpenSSL"),
    "ssl.engine.factory.class": RefusedKey(
        JAVA_CLASS,
        "Remove the key, and give key and trust store as PKCS12 or PEM files",
        ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    ),
    "ssl.keymanager.algorithm": RefusedKey(
        "the value names a key manager of Java's", "Remove the key", ("SunX509", "NewSunX509", "PKIX")
    ),
    "ssl.protocol": RefusedKey(
        "that protocol is not safe, or not known", "Set TLSv1.3 or remove the key", ("TLSv1.3", "TLSv1.2", "TLS")
    ),
    "ssl.provider": RefusedKey(
        "the value names a provider of Java's", "Remove the key: this node's TLS library is OpenSSL", ("SunJSSE",)
    ),
    "ssl.trustmanager.algorithm": RefusedKey(
        "the value names a trust manager of Java's, whose checks are not made here",
        "Remove the key",
        ("PKIX", "SunX509"),
    ),
    "zookeeper.clientCnxnSocket": RefusedKey(
        JAVA_CLASS,
        "Remove the key: zookeeper.ssl.client.enable alone turns TLS on",
        ("org.apache.zookeeper.ClientCnxnSocketNetty", "org.apache.zookeeper.ClientCnxnSocketNIO"),
    ),
    "zookeeper.ssl.crl.enable": RefusedKey(
        "revoked certificates of ZooKeeper servers are not recognized here",
        "Remove the key, and take revoked certificates out of the trust store",
        ("false",),
    ),
    "zookeeper.ssl.ocsp.enable": RefusedKey(
        "revoked certificates of ZooKeeper servers are not recognized here",
        "Remove the key, and take revoked certificates out of the trust store",
        ("false",),
    ),
}

IGNORED: Mapping[str, tuple[str, ...]] = {
    "This program has no such threads, buffers and queues": (
        "background.threads",
        "controller.quorum.append.linger.ms",
        "controller.socket.timeout.ms",
        "num.io.threads",
        "num.network.threads",
        "queued.max.requests",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    ),
    "Java classes that report metrics cannot run here: see migrator.metrics.listener": (
        "auto.include.jmx.reporter",
        "kafka.metrics.polling.interval.secs",
        "kafka.metrics.reporters",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
    ),
    "Client quotas are kept by brokers": ("client.quota.callback.class",),
    "All users but super users have to try again until the access control entries are known, on every listener": (
        "early.start.listeners",
    ),
    "Only GSSAPI needs it, which is refused where it is enabled": (
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    ),
    "Tokens of OAUTHBEARER are fetched within 30 s, and anew when four fifths of their life are over": (
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
    ),
    "A request to a broker has 30 s": ("request.timeout.ms",),
    "Random numbers come from the operating system": ("ssl.secure.random.implementation",),
    "Only brokers encode passwords again": ("password.encoder.old.secret",),
    "The levels of formats are in the log: see migrator format": ("inter.broker.protocol.version",),
    "The controller elects the preferred leaders wherever others lead": ("leader.imbalance.per.broker.percentage",),
    "A preview of Kafka 3.9 that its own controllers have": ("eligible.leader.replicas.enable",),
    "Logging is set up by migrator.log.format": ("log4j.configuration",),
    "Kafka's own development uses it": (
        "server.max.startup.time.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    ),
}
"""The reason why keys have no effect here -> these keys. The start names them once."""

OF_BROKERS: tuple[str, ...] = (
    "alter.log.dirs.replication.quota.window.num",
    "alter.log.dirs.replication.quota.window.size.seconds",
    "auto.create.topics.enable",
    "broker.id.generation.enable",
    "broker.rack",
    "controlled.shutdown.enable",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "delete.records.purgatory.purge.interval.requests",
    "fetch.max.bytes",
    "fetch.purgatory.purge.interval.requests",
    "initial.broker.registration.timeout.ms",
    "max.incremental.fetch.session.cache.slots",
    "max.request.partition.size.limit",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "num.replica.fetchers",
    "offset.metadata.max.bytes",
    "producer.id.expiration.ms",
    "producer.purgatory.purge.interval.requests",
    "quota.window.num",
    "quota.window.size.seconds",
    "replication.quota.window.num",
    "replication.quota.window.size.seconds",
    "reserved.broker.max.id",
    "telemetry.max.bytes",
    "transactional.id.expiration.ms",
)
OF_BROKERS_FAMILIES: tuple[str, ...] = (
    "group.",
    "log.cleaner.",
    "log.dir.failure.",
    "log.flush.",
    "log.retention.check.",
    "offsets.",
    "remote.",
    "replica.",
    "rlmm.config.",
    "rsm.config.",
    "transaction.",
)
"""Keys of brokers, which a file for both roles may have. Ignored without a warning."""
