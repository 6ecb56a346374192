"""Passwords: every algorithm that Kafka's own tests use, damage, and a value that Kafka's encoder made."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.passwords import PasswordEncoder, is_password_config
from tests.lanes import examples

SECRET = "secret"
PASSWORD = "hunter2 \u00fc\U0001f600"
random_bytes = random.Random(1).randbytes


def encoder(secret: str | None = SECRET, **options: object) -> PasswordEncoder:
    return PasswordEncoder(secret, random_bytes, **{"iterations": 10, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cipher", "bits"),
    [
        ("AES/CBC/PKCS5Padding", 128),
        ("AES/CBC/PKCS5Padding", 256),
        ("AES/CFB/PKCS5Padding", 128),
        ("AES/OFB/PKCS5Padding", 128),
        ("AES/CTR/NoPadding", 192),
        ("AES/GCM/NoPadding", 128),
        ("DES/CBC/PKCS5Padding", 64),
        ("DESede/CBC/PKCS5Padding", 192),
    ],
)
@pytest.mark.parametrize("key_factory", [None, "PBKDF2WithHmacSHA1", "PBKDF2WithHmacSHA256"])
def test_every_algorithm(cipher: str, bits: int, key_factory: str | None) -> None:
    text = encoder(cipher=cipher, key_bits=bits, key_factory=key_factory).encode(PASSWORD)
    assert PASSWORD not in text
    assert encoder().decode("/c", "k", text) == PASSWORD  # with the stored parameters, not the configured ones


@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"])
def test_a_wrong_secret_is_noticed_and_named_without_secrets(cipher: str) -> None:
    text = encoder(cipher=cipher).encode(PASSWORD)
    with pytest.raises(ZnodeError, match=r"/config/brokers/1.*ssl\.key\.password.*password\.encoder\.secret") as caught:
        encoder("another").decode("/config/brokers/1", "ssl.key.password", text)
    assert "another" not in str(caught.value)


def test_no_secret() -> None:
    assert not encoder(None).has_secret
    with pytest.raises(ZnodeError, match=r"password\.encoder\.secret"):
        encoder(None).decode("/c", "k", "anything")
    with pytest.raises(ZnodeError, match=r"password\.encoder\.secret"):
        encoder(None).encode(PASSWORD)


@settings(max_examples=examples(150))
@given(st.data())
def test_damage_raises_nothing_but_znode_errors(data: st.DataObject) -> None:
    text = encoder(cipher=data.draw(st.sampled_from(["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"]))).encode("p")
    parts = text.split(",")
    index = data.draw(st.integers(0, len(parts) - 1))
    name = parts[index].partition(":")[0]
    parts[index] = data.draw(
        st.sampled_from(["", name, f"{name}:", f"{name}:x", f"{name}:-1", f"{name}:{'9' * 5000}", f"{name}:AAAA"])
        | st.text(max_size=5)
    )
    try:
        assert encoder().decode("/c", "k", ",".join(parts)) == "p"
    except ZnodeError as error:
        assert error.remedy  # noqa: PT017 - a part that is not needed may be missing


@pytest.mark.parametrize(
    "options",
    [
        {"cipher": "AES/ECB/PKCS5Padding"},
        {"cipher": "AES/CBC/NoPadding"},
        {"key_bits": 100},
        {"iterations": 0},
        {"key_factory": "MD5"},
    ],
)
def test_unknown_algorithms_are_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(ZnodeError, match=r"password\.encoder"):
        encoder(SECRET, **options)


def test_which_keys_hold_passwords() -> None:
    assert is_password_config("listener.name.internal.ssl.keystore.password")
    assert is_password_config("listener.name.internal.scram-sha-512.sasl.jaas.config")
    assert not is_password_config("ssl.keystore.location")
