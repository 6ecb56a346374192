"""Stores of keys and certificates as Java's own keytool writes them, and as OpenSSL does."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from migrator.config.load import load_settings, read_properties
from migrator.errors import OperatorError
from migrator.parts.certificates import Authority
from migrator.wire.pkcs12_marks import MarksError, marked_certificates
from migrator.wire.security import listener_security
from migrator.wire.stores import read_store
from migrator.zookeeper.session import options_from
from tests.wire.support.keytool import keytool as run_keytool
from tests.zookeeper.test_session import settings

PASSWORD = "pencil"
KEY, TRUST = "listener.name.controller.ssl.keystore.location", "ssl.truststore.location"


class JavaStores(NamedTuple):
    key: Path
    trust: Path


def keytool(*arguments: str) -> str:
    return run_keytool(*arguments, "-storepass", PASSWORD)


@pytest.fixture(scope="module", params=["PKCS12", "JKS"])
def java_stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> JavaStores:
    """A key, and a trust store with that and one more certificate."""
    directory, kind = tmp_path_factory.mktemp("stores"), str(request.param)
    own, trust, exported = directory / "own.jks", directory / "trust.jks", directory / "own.der"
    names = ("-alias", "own", "-dname", "CN=controller-1,O=bank", "-ext", "san=dns:localhost")
    keytool("-genkeypair", "-keyalg", "EC", *names, "-keypass", PASSWORD, "-storetype", kind, "-keystore", str(own))
    keytool("-exportcert", "-alias", "own", "-keystore", str(own), "-file", str(exported))
    another = directory / "another.pem"
    another.write_text(Authority("another").pem)
    for alias, file in (("own", exported), ("another", another)):
        import_ = ("-importcert", "-noprompt", "-alias", alias, "-file", str(file))
        keytool(*import_, "-storetype", kind, "-keystore", str(trust))
    return JavaStores(own, trust)


def subjects(pem: str) -> set[str]:
    return {it.subject.rfc4514_string() for it in x509.load_pem_x509_certificates(pem.encode())}


def test_what_keytool_writes_is_read(java_stores: JavaStores) -> None:
    """The type JKS is Kafka's default, and what a file set in the days of Java 8 still says."""
    for kind in ("PKCS12", "pkcs12", "JKS", ""):
        own = read_store(str(java_stores.key), KEY, kind, PASSWORD)
        assert subjects(own.certificates) == {"O=bank,CN=controller-1"} or subjects(own.certificates) == {
            "CN=controller-1,O=bank"
        }
        assert isinstance(load_pem_private_key(own.private_key.encode(), None), ec.EllipticCurvePrivateKey)
        trust = read_store(str(java_stores.trust), TRUST, kind, PASSWORD)
        assert len(subjects(trust.certificates)) == 2
        assert not trust.private_key
        assert PASSWORD not in repr(own)


def test_the_file_of_a_stock_controller_runs_with_its_java_stores(java_stores: JavaStores, tmp_path: Path) -> None:
    """Types are not set: Kafka's default is JKS."""
    keys = {
        "ssl.keystore.location": str(java_stores.key),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.location": str(java_stores.trust),
        "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "required",
    }
    zookeeper = settings(
        zookeeper_connect="a:2182",
        zookeeper_ssl_client_enable="true",
        zookeeper_ssl_keystore_location=str(java_stores.key),
        zookeeper_ssl_keystore_password=PASSWORD,
        zookeeper_ssl_truststore_location=str(java_stores.trust),
        zookeeper_ssl_truststore_password=PASSWORD,
    )
    context = listener_security(keys, "CONTROLLER", "SSL").server_context
    assert context is not None
    assert len(context.get_ca_certs()) == 1, "our own is trusted, too, but it is no authority"
    options = options_from(zookeeper)
    assert PASSWORD not in repr(options)
    file = tmp_path / "controller.properties"
    lines = {"process.roles": "controller", "node.id": "1", "controller.quorum.voters": "1@localhost:9093"} | keys
    lines |= {"controller.listener.names": "CONTROLLER", "listeners": "CONTROLLER://localhost:9093"}
    file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))
    assert not [warning for warning in load_settings(file)[1] if "password" in warning]


def old_store(tmp_path: Path, *, key: bool = True, password: str = PASSWORD) -> Path:
    """As OpenSSL and other tools make them, with a chain."""
    private, chain = Authority("below", Authority("above")).issue("broker-1")
    certificates = x509.load_pem_x509_certificates(chain.encode())
    own = load_pem_private_key(private.encode(), None)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    encryption = BestAvailableEncryption(password.encode())
    data = pkcs12.serialize_key_and_certificates(
        b"own", own if key else None, certificates[0] if key else None, certificates[1 if key else 0 :], encryption
    )
    path = tmp_path / "store.p12"
    path.write_bytes(data)
    return path


def test_the_certificate_that_is_shown_comes_first_and_its_chain_behind_it(tmp_path: Path) -> None:
    store = read_store(str(old_store(tmp_path)), KEY, "PKCS12", PASSWORD)
    shown = x509.load_pem_x509_certificates(store.certificates.encode())
    assert [it.subject.rfc4514_string() for it in shown] == ["CN=broker-1", "CN=below"]


@pytest.mark.parametrize("password", [None, "", "hunter2"])
def test_a_wrong_password_is_named_by_its_key_and_not_shown(password: str | None, tmp_path: Path) -> None:
    with pytest.raises(OperatorError) as caught:
        read_store(str(old_store(tmp_path)), KEY, "JKS", password)
    assert "listener.name.controller.ssl.keystore.password" in caught.value.remedy
    assert "hunter2" not in str(caught.value)


def test_the_password_in_a_property_file_is_the_one_that_kafka_sees(tmp_path: Path) -> None:
    """Kafka takes each byte of the file for a character."""
    typed = "ä-pencil"
    seen = typed.encode().decode("latin-1")
    file = tmp_path / "some.properties"
    file.write_text(f"ssl.keystore.password={typed}\n", encoding="utf-8")
    found = read_properties(file)["ssl.keystore.password"]
    assert read_store(str(old_store(tmp_path, password=seen)), KEY, "PKCS12", found).private_key
    with pytest.raises(OperatorError, match="password is wrong"):
        read_store(str(old_store(tmp_path, password=typed)), KEY, "PKCS12", found)


OLD_JAVA = "-J-Dkeystore.pkcs12.legacy"
"""Stores of Java 8: certificates below 40 bits of RC2."""


def imported(store: Path, alias: str, name: str, *options: str) -> None:
    certificate = store.with_name(f"{alias}.pem")
    certificate.write_text(Authority(name).pem)
    arguments = ("-importcert", "-noprompt", "-alias", alias, "-file", str(certificate), "-storetype", "PKCS12")
    keytool(*options, *arguments, "-keystore", str(store))


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("options", [(), (OLD_JAVA,)])
def test_a_trust_store_of_keytool_holds_what_was_imported_and_its_own(options: Sequence[str], tmp_path: Path) -> None:
    store = tmp_path / "trust.p12"
    for alias, name in (("one", "first"), ("two", "second")):
        imported(store, alias, name, *options)
    trusted = ["CN=first", "CN=second"]
    assert sorted(subjects(read_store(str(store), TRUST, "PKCS12", PASSWORD).certificates)) == trusted
    own = ("-genkeypair", "-keyalg", "EC", "-alias", "own", "-dname", "CN=controller-1", "-storetype", "PKCS12")
    keytool(*options, *own, "-keystore", str(store))
    assert java_trusts(store) == 3
    found = read_store(str(store), TRUST, "JKS", PASSWORD)
    assert sorted(subjects(found.certificates)) == ["CN=controller-1", *trusted]
    assert not found.private_key


@pytest.mark.lane("test-all")
@pytest.mark.parametrize(
    "protection",
    [
        ("-certpbe", "AES-128-CBC", "-macalg", "sha384"),
        ("-certpbe", "NONE"),
        ("-legacy",),
        ("-legacy", "-certpbe", "PBE-SHA1-3DES"),
        ("-legacy", "-certpbe", "PBE-SHA1-RC2-128"),
    ],
)
def test_what_openssl_exports_is_trusted_by_java_only_with_its_mark(protection: Sequence[str], tmp_path: Path) -> None:
    """Without it there is nothing to trust; keytool, which marks, keeps the protection of an old store."""
    store, certificate = tmp_path / "trust.p12", tmp_path / "one.pem"
    certificate.write_text(Authority("first").pem)
    export = ("openssl", "pkcs12", "-export", "-nokeys", "-in", str(certificate), "-out", str(store))
    subprocess.run([*export, *protection, "-passout", f"pass:{PASSWORD}"], check=True, capture_output=True)
    with pytest.raises(OperatorError, match="marks none of its 1 certificate as trusted") as caught:
        read_store(str(store), TRUST, "PKCS12", PASSWORD)
    assert "keytool -importcert" in caught.value.remedy
    assert read_store(str(store), KEY, "PKCS12", PASSWORD).certificates, "of a key store it is the chain"
    imported(store, "two", "second")
    assert subjects(read_store(str(store), TRUST, "PKCS12", PASSWORD).certificates) == {"CN=second"}
    assert java_trusts(store) == 1


def java_trusts(store: Path) -> int:
    """How many certificates the real Java trusts in a store: entries of either kind."""
    said = keytool("-list", "-storetype", "PKCS12", "-keystore", str(store))
    return said.count("trustedCertEntry") + said.count("PrivateKeyEntry")


def test_a_store_of_which_the_marks_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"\x30\x80" * 1000, b"\x30\x03\x02\x01\x03", b"\x30\x84\xff\xff\xff\xff"):
        with pytest.raises(MarksError):
            marked_certificates(content, PASSWORD)
    whole = old_store(tmp_path, key=False).read_bytes()
    for at in range(0, len(whole), 7):
        with contextlib.suppress(MarksError):
            marked_certificates(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :], PASSWORD)


def test_the_type_has_to_fit_and_what_is_neither_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_text(Authority("a CA").pem)
    assert read_store(str(file), TRUST, "PEM").certificates == read_store(str(file), TRUST).certificates
    with pytest.raises(OperatorError, match="is a PEM file, and its type is JKS") as caught:
        read_store(str(file), TRUST, "JKS")
    assert caught.value.remedy == "Set ssl.truststore.type=PEM"
    file.write_bytes(b"\x30\x82" + bytes(1000))
    with pytest.raises(OperatorError, match="cannot be read"):
        read_store(str(file), TRUST, "PKCS12", PASSWORD)
    with pytest.raises(OperatorError, match="cannot be read"):
        read_store(str(tmp_path), TRUST, "PKCS12", PASSWORD)
