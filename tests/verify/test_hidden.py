"""A value that DescribeConfigs hides is in no row, but a difference shows."""

from __future__ import annotations

import hashlib

import pytest

from migrator.verify.canonical import config_rows

SALT, OTHER_SALT = b"1" * 32, b"2" * 32
SECRET = "hunter2"
HIDDEN = [
    ("broker:", "ssl.keystore.password"),
    ("broker:1", "listener.name.internal.ssl.key.password"),
    ("broker:1", "sasl.jaas.config"),
    ("broker:1", "delegation.token.secret.key"),
    ("broker:1", "password.encoder.secret"),
    ("broker:1", "zookeeper.ssl.keystore.password"),
    ("broker:1", "api.key.of.a.plug.in"),
    ("broker:1", "listener.name.internal.api.key"),
    ("topic:orders", "api.key.of.a.plug.in"),
]
SHOWN = [
    ("broker:1", "log.retention.ms"),
    ("broker:1", "listener.name.internal.ssl.keystore.location"),
    ("topic:orders", "retention.ms"),
]


def row_of(entity: str, key: str, text: str, salt: bytes = SALT) -> str:
    ((kind, found, field, shown),) = config_rows(entity, {key: text}, salt)
    assert (kind, found, field) == ("config", entity, key)
    return shown


@pytest.mark.parametrize(("entity", "key"), HIDDEN)
def test_a_hidden_value_shows_only_whether_it_differs(entity: str, key: str) -> None:
    shown = row_of(entity, key, SECRET)
    assert SECRET not in shown
    assert shown == row_of(entity, key, SECRET)
    assert shown != row_of(entity, key, f"{SECRET}3")
    assert shown != row_of(entity, key, SECRET, OTHER_SALT), "who does not have the run's key cannot try passwords"
    assert hashlib.sha256(SECRET.encode()).hexdigest() not in shown


@pytest.mark.parametrize(("entity", "key"), SHOWN)
def test_what_is_no_secret_is_shown(entity: str, key: str) -> None:
    assert row_of(entity, key, "text") == "text"
