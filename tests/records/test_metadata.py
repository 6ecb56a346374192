"""Records as values."""

from __future__ import annotations

import pytest

from migrator.config.sensitive import REDACTED
from migrator.records import metadata as m


def test_no_secret_is_ever_shown() -> None:
    scram = m.UserScramCredentialRecord("alice", 1, b"SALT", b"STORED", b"SERVER", 4096)
    assert repr(scram) == "UserScramCredentialRecord('alice', 1, ..., iterations=4096)"
    broker = m.ConfigRecord(m.ConfigResourceType.BROKER, "1", "ssl.key.password", "hidden")
    assert repr(broker) == f"ConfigRecord(4, '1', 'ssl.key.password', {REDACTED})"
    assert "hidden" not in f"{[broker]} {broker}"
    assert repr(m.ConfigRecord(2, "t", "k", "v")) == f"ConfigRecord(2, 't', 'k', {REDACTED})"
    assert repr(m.ConfigRecord(2, "t", "retention.ms", "1")) == "ConfigRecord(2, 't', 'retention.ms', '1')"
    target = m.ConfigRecord(0, m.QUORUM_RESOURCE, "target.voters", "4,5")
    assert repr(target) == "ConfigRecord(0, 'migrator.quorum', 'target.voters', '4,5')"
    assert repr(m.ConfigRecord(4, "1", "k", None)) == "ConfigRecord(4, '1', 'k', None)"


@pytest.mark.parametrize(
    ("resource", "key", "hidden"),
    [
        (m.ConfigResourceType.BROKER, "log.retention.ms", False),
        (m.ConfigResourceType.BROKER, "leader.replication.throttled.rate", False),
        (m.ConfigResourceType.BROKER, "ssl.keystore.password", True),
        (m.ConfigResourceType.BROKER, "listener.name.internal.ssl.keystore.password", True),
        (m.ConfigResourceType.BROKER, "listener.name.internal.scram-sha-256.sasl.jaas.config", True),
        (m.ConfigResourceType.BROKER, "listener.name.internal.ssl.keystore.location", False),
        (m.ConfigResourceType.BROKER, "listener.name.internal.plain.connections.max.reauth.ms", False),
        (m.ConfigResourceType.BROKER, "listener.name.internal.of.a.plug.in", True),
        (m.ConfigResourceType.BROKER, "of.a.plug.in", True),
        (m.ConfigResourceType.TOPIC, "cleanup.policy", False),
        (m.ConfigResourceType.TOPIC, "of.a.plug.in", True),
        (m.ConfigResourceType.CLIENT_METRICS, "interval.ms", False),
        (m.ConfigResourceType.BROKER_LOGGER, "kafka", False),
        (32, "consumer.session.timeout.ms", True),
        (m.ConfigResourceType.UNKNOWN, "target.voters", True),
    ],
)
def test_a_value_is_hidden_where_stock_hides_it(resource: int, key: str, hidden: bool) -> None:
    assert m.ConfigRecord(resource, "1", key, "v").is_sensitive is hidden
