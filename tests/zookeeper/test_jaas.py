"""Java's login configuration files, as operators have them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.parts.zookeeper_security import quoted
from migrator.zookeeper.jaas import JaasSyntaxError, parse_jaas
from migrator.zookeeper.logins import DigestLogin, JaasEntry
from tests.parts.support.jaas import client_jaas

STOCK = """
/* Logins of a broker. */
KafkaServer {
    org.apache.kafka.common.security.scram.ScramLoginModule required
    username="inter" password="other"; // inside the cluster
};
// To ZooKeeper
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule REQUIRED
    username='kafka'
    password="a \\"b\\" \\\\ \\101 // no comment { } ; ="
    debug=true;
};
"Kerberos" {
    com.sun.security.auth.module.Krb5LoginModule required
        useKeyTab=true keyTab="/etc/kafka.keytab" principal="kafka/host@EXAMPLE.COM";
    org.apache.zookeeper.server.auth.DigestLoginModule optional username="second" password="x";
};
"""


def test_sections_modules_options_quotes_and_comments() -> None:
    sections = parse_jaas(STOCK)
    assert {name: len(modules) for name, modules in sections.items()} == {"KafkaServer": 1, "Client": 1, "Kerberos": 2}
    (client,) = sections["Client"]
    assert client.name == "org.apache.zookeeper.server.auth.DigestLoginModule"
    assert client.options == {"username": "kafka", "password": 'a "b" \\ A // no comment { } ; =', "debug": "true"}
    assert sections["Kerberos"][0].options["keyTab"] == "/etc/kafka.keytab"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Client {", "a login module's class is expected at the end"),
        ("Client { A required", "an option's name, or ; is expected at the end"),
        ("Client { A always; };", "required, requisite, sufficient or optional is expected at line 1"),
        ("Client { A required\n password; };", "= is expected at line 2"),
        ('Client { A required password="secret; };', "that begins in line 1 has no end"),
        ("Client { A required; }", "; is expected at the end"),
        ("/* Client", "that begins in line 1 has no end"),
        ("Client = ;", "{ is expected at line 1"),
    ],
)
def test_what_is_no_jaas_file_is_told_by_line_and_without_its_words(text: str, expected: str) -> None:
    with pytest.raises(JaasSyntaxError) as caught:
        parse_jaas(text)
    assert expected in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_digest_login_keeps_its_password_to_itself(tmp_path: Path) -> None:
    password = 'hunter"2\\'
    (tmp_path / "jaas.conf").write_text(client_jaas("kafka", password, "Elsewhere"))
    login = JaasEntry(str(tmp_path / "jaas.conf"), "Elsewhere").read()
    assert isinstance(login, DigestLogin)
    assert (login.user, login.password.reveal(), login.who) == ("kafka", password, "kafka (DIGEST-MD5)")
    assert "hunter" not in repr(login)
    assert "hunter" not in repr(parse_jaas((tmp_path / "jaas.conf").read_text()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Other { A required; };", r"no login module in a section Client\. It has Other"),
        ("", "It has no section"),
        ("Client { a.PlainLoginModule required; };", r"a\.PlainLoginModule is a Java class"),
        ("Client { a.DigestLoginModule required username=u; };", r"jaas\.conf: Client: the option password is missing"),
        ('Client { a.DigestLoginModule required username="${u}" password=p; };', "system property"),
        ("Client {", "the file is not a JAAS file"),
    ],
)
def test_a_login_that_cannot_be_made_is_refused_with_a_remedy(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "jaas.conf").write_text(text)
    with pytest.raises(OperatorError, match=message) as caught:
        JaasEntry(str(tmp_path / "jaas.conf")).read()
    assert caught.value.remedy


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"none\.conf: the JAAS file cannot be read"):
        JaasEntry(str(tmp_path / "none.conf")).read()


@pytest.mark.skipif(importlib.util.find_spec("gssapi") is not None, reason="Kerberos could be used here")
def test_kerberos_without_its_package_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(f"Client {{ a.Krb5LoginModule required principal={quoted('kafka@X')}; }};")
    with pytest.raises(OperatorError, match=r"package gssapi.*DIGEST-MD5 or TLS"):
        JaasEntry(str(tmp_path / "jaas.conf")).read()
