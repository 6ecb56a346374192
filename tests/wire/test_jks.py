"""JKS of Java 8 and before: stores of Java's keytool are read, and each fault of a store is named."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import OperatorError
from migrator.parts.certificates import Authority
from migrator.wire.jks import ENTRIES_MAX, MAGIC, JksError, WrongPasswordError, open_key, parse_jks
from migrator.wire.listener_keys import ListenerKeys
from migrator.wire.stores import read_store
from migrator.wire.tls import CHECK_SECONDS, TlsStores
from tests.wire.support.keytool import keytool as run_keytool

STORE, OWN = "store-pencil", "key-Bücher"
KEY, TRUST = "ssl.keystore.location", "ssl.truststore.location"


def keytool(path: Path, *arguments: str) -> None:
    """With the password in the environment, as it may hold more than ASCII."""
    environment = {**os.environ, "STORE": STORE, "OWN": OWN, "LC_ALL": "C.UTF-8"}
    at = ("-storetype", "JKS", "-keystore", str(path), "-storepass:env", "STORE")
    run_keytool(*arguments, *at, environment=environment)


def new_key(path: Path, alias: str = "own", *, name: str = "controller-1", variable: str = "OWN") -> None:
    """A private key; ``variable`` names the one with its own one. Java's default, 3,072 bits, takes seconds to find."""
    subject = ("-dname", f"CN={name}", "-ext", "san=dns:localhost")
    keytool(
        path, "-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-alias", alias, *subject, "-keypass:env", variable
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """own.jks with a key that has a password of its own; trust.jks with two certificates; both.jks with all of it."""
    directory = tmp_path_factory.mktemp("jks")
    own, trust, both = directory / "own.jks", directory / "trust.jks", directory / "both.jks"
    new_key(own)
    both.write_bytes(own.read_bytes())
    for name in ("one", "two"):
        pem = directory / f"{name}.pem"
        pem.write_text(Authority(name).pem)
        for store in (trust, both):
            keytool(store, "-importcert", "-noprompt", "-alias", name, "-file", str(pem))
    return directory


def subjects(pem: str) -> list[str]:
    return sorted(it.subject.rfc4514_string() for it in x509.load_pem_x509_certificates(pem.encode()))


@pytest.mark.parametrize("kind", ["JKS", "jks", ""])
def test_a_key_with_a_password_of_its_own_is_read(files: Path, kind: str) -> None:
    for name in ("own.jks", "both.jks"):
        store = read_store(str(files / name), KEY, kind, STORE, OWN)
        assert isinstance(load_pem_private_key(store.private_key.encode(), None), rsa.RSAPrivateKey)
        assert subjects(store.certificates) == ["CN=controller-1"], "what is trusted is no part of the chain"


@pytest.mark.lane("test-all")
def test_a_key_without_a_password_of_its_own_has_that_of_the_store(tmp_path: Path) -> None:
    new_key(tmp_path / "own.jks", variable="STORE")
    assert read_store(str(tmp_path / "own.jks"), KEY, "JKS", STORE).private_key


def test_a_trust_store_holds_what_java_trusts(files: Path) -> None:
    for password in (STORE, None):
        store = read_store(str(files / "trust.jks"), TRUST, "JKS", password)
        assert subjects(store.certificates) == ["CN=one", "CN=two"]
    both = read_store(str(files / "both.jks"), TRUST, "JKS", STORE)
    assert subjects(both.certificates) == ["CN=controller-1", "CN=one", "CN=two"]
    assert not both.private_key


@pytest.mark.parametrize(
    ("key", "store", "own", "said"),
    [
        (KEY, "hunter2", OWN, "the password of the store is wrong, or the file is damaged"),
        (TRUST, "hunter2", None, "the password of the store is wrong, or the file is damaged"),
        (KEY, STORE, "hunter2", "the password of the private key is wrong"),
        (KEY, STORE, None, "the password of the private key is wrong"),
        (KEY, None, None, "the password of the private key is wrong"),
    ],
)
def test_a_wrong_password_is_named_by_its_key_and_not_shown(
    files: Path, key: str, store: str | None, own: str | None, said: str
) -> None:
    path = files / "own.jks"
    with pytest.raises(OperatorError) as caught:
        read_store(str(path), key, "JKS", store, own)
    assert str(caught.value).startswith(f"{key}: {path} cannot be read as JKS: {said}. Set {key[:-8]}password")
    assert ("ssl.key.password" in caught.value.remedy) is (key == KEY)
    for secret in ("hunter2", STORE, OWN):
        assert secret not in str(caught.value)


@pytest.mark.lane("test-all")
def test_two_private_keys_are_refused(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.jks"
    path.write_bytes((files / "own.jks").read_bytes())
    new_key(path, "another", name="controller-2")
    with pytest.raises(OperatorError, match="holds 2 private keys"):
        read_store(str(path), KEY, "JKS", STORE, OWN)


def jceks(path: Path) -> None:
    path.write_bytes(b"\xce\xce\xce\xce" + bytes(40))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def of_a_later_version(path: Path) -> None:
    path.write_bytes(MAGIC + b"\0\0\0\x03" + bytes(24))


def with_millions_of_entries(path: Path) -> None:
    path.write_bytes(MAGIC + b"\0\0\0\x02" + (ENTRIES_MAX + 1).to_bytes(4, "big") + bytes(24))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "it ends too early"),
        (of_a_later_version, "its version is 3"),
        (with_millions_of_entries, "10,001 entries"),
        (jceks, "JCEKS, which only Java can read"),
    ],
)
def test_a_broken_file_is_refused_by_name(
    files: Path, damage: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.jks"
    path.write_bytes((files / "own.jks").read_bytes())
    damage(path)
    with pytest.raises(OperatorError) as caught:
        read_store(str(path), KEY, "JKS", STORE, OWN)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.remedy


@given(st.data())
def test_any_damage_is_an_error_of_the_store(files: Path, data: st.DataObject) -> None:
    content = bytearray((files / "own.jks").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    if bytes(content) == (files / "own.jks").read_bytes():
        return
    with pytest.raises(JksError):
        parse_jks(bytes(content), STORE)
    with suppress(JksError):  # without the store's password nobody proves the digest; a key has one of its own
        for key in parse_jks(bytes(content), None).keys:
            load_der_private_key(open_key(key, OWN), None)
    with pytest.raises(WrongPasswordError):
        parse_jks((files / "own.jks").read_bytes(), STORE + "x")


@pytest.mark.lane("test-all")
def test_a_store_that_changes_under_a_listener_is_read_again(
    files: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same subject comes, and another one does not (ADR 17); the passwords are in no line of the log."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "own.jks"
    path.write_bytes((files / "own.jks").read_bytes())
    keys = {
        KEY: str(path), "ssl.keystore.password": STORE, "ssl.key.password": OWN,
        TRUST: str(files / "trust.jks"), "ssl.truststore.password": STORE, "ssl.client.auth": "required",
    }  # fmt: skip
    now = [time.monotonic()]
    stores = TlsStores(ListenerKeys(keys, "CONTROLLER"), "SSL", clock=lambda: now[0])
    first = stores.current()
    assert isinstance(first.server, ssl.SSLContext)
    assert len(first.server.get_ca_certs()) == 2

    def changed(name: str) -> None:
        other = tmp_path / f"{name}.new"
        new_key(other, name=name)
        other.replace(path)
        now[0] += 2 * CHECK_SECONDS

    changed("controller-9")
    assert stores.current() is first
    assert "the changed certificates are not used" in caplog.text
    changed("controller-1")
    second = stores.current()
    assert second is not first
    assert second.own is not None
    assert first.own is not None
    assert second.own.certificates != first.own.certificates
    assert STORE not in caplog.text
    assert OWN not in caplog.text
