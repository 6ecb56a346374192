"""Settings in KAFKA_OPTS that a stock node obeys, and that this one names."""

from __future__ import annotations

import pytest

from migrator.config.java_options import KEYS, WITHOUT_A_KEY, java_options
from migrator.config.keys import KEYS as KNOWN
from migrator.config.load import typed_settings

CONNECT = {"zookeeper.connect": "127.0.0.1:2181"}


def warnings(opts: str, monkeypatch: pytest.MonkeyPatch, **keys: str) -> list[str]:
    monkeypatch.setenv("KAFKA_OPTS", opts)
    named = {key.replace("_", "."): text for key, text in keys.items()}
    return list(java_options(typed_settings(CONNECT | named, "the test")))


@pytest.mark.parametrize("name", KEYS)
def test_a_property_is_named_with_the_key_that_stands_for_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (warning,) = warnings(f'-Xmx1g -D{name}="hunter2 and more"', monkeypatch)
    assert warning.startswith(f"{KEYS[name]}: the key is not set")
    assert f"sets {name}, which is not read" in warning
    assert "hunter2" not in warning


@pytest.mark.parametrize("name", WITHOUT_A_KEY)
def test_a_property_that_has_no_key_is_named_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (warning,) = warnings(f"-D{name}=x", monkeypatch)
    assert WITHOUT_A_KEY[name] in warning


def test_every_key_is_one_of_ours() -> None:
    assert set(KEYS.values()) <= set(KNOWN)


def test_nothing_is_said_of_what_the_file_sets_or_of_what_does_not_concern_zookeeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert warnings("-Dzookeeper.client.secure=true", monkeypatch, zookeeper_ssl_client_enable="true") == []
    assert warnings("-Dcom.sun.management.jmxremote -Dlog4j.debug=true -ea '", monkeypatch) == []
    assert warnings("", monkeypatch) == []


def test_without_zookeeper_nothing_of_it_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", "-Dzookeeper.client.secure=true")
    assert list(java_options(typed_settings({}, "the test"))) == []
