"""Records as values."""

from __future__ import annotations

from migrator.records import metadata as m


def test_no_secret_is_ever_shown() -> None:
    scram = m.UserScramCredentialRecord("alice", 1, b"SALT", b"STORED", b"SERVER", 4096)
    assert repr(scram) == "UserScramCredentialRecord('alice', 1, ..., iterations=4096)"
    broker = m.ConfigRecord(m.ConfigResourceType.BROKER, "1", "ssl.key.password", "hidden")
    assert repr(broker) == "ConfigRecord(4, '1', 'ssl.key.password', ...)"
    assert "hidden" not in f"{[broker]} {broker}"
    assert repr(m.ConfigRecord(2, "t", "k", "v")) == "ConfigRecord(2, 't', 'k', 'v')"
    assert repr(m.ConfigRecord(4, "1", "k", None)) == "ConfigRecord(4, '1', 'k', None)"
