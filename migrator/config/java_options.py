"""Warns of settings of ZooKeeper's client in ``KAFKA_OPTS``: Kafka's nodes use them, this program does not.

The checks of a property file call `java_options`. A setting that a key of this program replaces gives no warning. No
value is shown, because some are passwords.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from migrator.config.settings import Settings

VARIABLE = "KAFKA_OPTS"
JAAS = "java.security.auth.login.config"
KEYS = {
    JAAS: "migrator.zookeeper.jaas.file",
    "zookeeper.sasl.clientconfig": "migrator.zookeeper.jaas.section",
    "jute.maxbuffer": "migrator.zookeeper.jute.maxbuffer",
    "zookeeper.client.secure": "zookeeper.ssl.client.enable",
    "zookeeper.clientCnxnSocket": "zookeeper.ssl.client.enable",
    "zookeeper.ssl.keyStore.location": "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keyStore.password": "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keyStore.type": "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.trustStore.location": "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.trustStore.password": "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.trustStore.type": "zookeeper.ssl.truststore.type",
    "zookeeper.ssl.protocol": "zookeeper.ssl.protocol",
    "zookeeper.ssl.enabledProtocols": "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.ciphersuites": "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.hostnameVerification": "zookeeper.ssl.endpoint.identification.algorithm",
}
"""The key that has the same meaning as a system property (``ZkConfigs.ZK_SSL_CONFIG_TO_SYSTEM_PROPERTY_MAP``)."""
WITHOUT_A_KEY = {
    "zookeeper.sasl.client": "SASL is turned off by leaving out migrator.zookeeper.jaas.file",
    "zookeeper.sasl.client.username": "servers are known as zookeeper/HOST to Kerberos here",
    "zookeeper.sasl.client.canonicalize.hostname": "the Kerberos library's own setting decides that here",
    "zookeeper.server.principal": "servers are known as zookeeper/HOST to Kerberos here",
    "zookeeper.server.realm": "the Kerberos library's own setting decides that here",
    "zookeeper.ssl.crl": "revoked certificates are not recognized here",
    "zookeeper.ssl.ocsp": "revoked certificates are not recognized here",
}


def java_options(settings: Settings) -> Iterator[str]:
    """A warning for each such setting without a key of this program in the file. Values are not shown: some are
    passwords."""
    if not settings.zookeeper_connect:
        return
    for name in _properties():
        key = KEYS.get(name)
        if key is not None and not _is_set(settings, key):
            said = f"{VARIABLE} sets {name}, which is not read"
            yield f"{key}: the key is not set, while {said}. Set the key if the brokers need it"
        elif name in WITHOUT_A_KEY:
            yield f"{VARIABLE}: the variable sets {name}, which is not read: {WITHOUT_A_KEY[name]}"


def _properties() -> Iterator[str]:
    text = os.environ.get(VARIABLE, "")
    try:
        words = shlex.split(text)
    except ValueError:  # quotes without an end
        words = text.split()
    for word in dict.fromkeys(word.partition("=")[0] for word in words if word.startswith("-D")):
        yield word.removeprefix("-D")


def _is_set(settings: Settings, key: str) -> bool:
    return key in settings.explicit
