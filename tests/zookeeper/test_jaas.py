"""Java's login configuration files, as operators have them."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from migrator.config.jaas import JaasSyntaxError
from migrator.errors import OperatorError
from migrator.parts.zookeeper import quoted
from migrator.zookeeper.logins import DigestLogin, JaasEntry, parse_jaas
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
        ("Client { A required u=secret#x; };", "a character that needs quotes around its word stands in line 1"),
        ("Client { A required u=1; };", "a character that needs quotes around its word stands in line 1"),
        ("Client { A required\n u=/secret; };", "an option's value is expected at the end"),
        (
            "A { B required; };\nA { B required; };",
            "another name than that of an earlier section is expected at line 2",
        ),
        (
            'Client { A required\n u="${secret.not}"; };'.replace("secret", "my"),
            "the system property my.not is not known",
        ),
    ],
)
def test_what_is_no_jaas_file_is_told_by_line_and_without_its_words(text: str, expected: str) -> None:
    with pytest.raises(JaasSyntaxError) as caught:
        parse_jaas(text)
    assert expected in str(caught.value)
    assert "secret" not in str(caught.value)


SAME_IN_JAVA = [
    'keyTab="${user.home}/kafka.keytab" principal="${user.name}"',
    'u="${/}x${file.separator}y${path.separator}" v="${java.io.tmpdir}"',
    'u="${{user.home}}" v="$x {y} ${user.home" w="$${user.name}$"',
    'u=*x- v=a1.2-3 w="" "x"="a\\101\\q"',
    "u=a /u=b; };\n v=c // w\n /* x */",
    'u="${no.such}"',
    'u="${}"',
    'u="${user.home }"',
    "u=${user.home}",
    "u=1",
    "u=a#b",
    "u=/etc/x",
    "u=a:b",
]


def test_javas_own_reader_finds_the_same(tmp_path: Path) -> None:
    program = tmp_path / "JaasReader.java"
    program.write_text(READER)
    files = [tmp_path / f"{number}.conf" for number in range(len(SAME_IN_JAVA))]
    for file, options in zip(files, SAME_IN_JAVA, strict=True):
        file.write_text(f"Client {{ A required {options}; }};\n")
    command = ["java", str(program), *map(str, files)]
    said = subprocess.run(command, check=True, capture_output=True, timeout=120, text=True, cwd=tmp_path).stdout
    assert [_options(file) for file in files] == said.splitlines()


READER = """
import java.nio.file.Path;
import java.security.URIParameter;
import java.util.TreeMap;
import javax.security.auth.login.Configuration;

class JaasReader {
    public static void main(String[] files) {
        for (String file : files) {
            try {
                URIParameter place = new URIParameter(Path.of(file).toUri());
                Configuration found = Configuration.getInstance("JavaLoginConfig", place);
                System.out.println(new TreeMap<>(found.getAppConfigurationEntry("Client")[0].getOptions()));
            } catch (Exception refused) {
                System.out.println("refused");
            }
        }
    }
}
"""


def _options(file: Path) -> str:
    try:
        found = parse_jaas(file.read_text())["Client"][0].options
    except JaasSyntaxError:
        return "refused"
    return "{" + ", ".join(f"{key}={found[key]}" for key in sorted(found)) + "}"


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
        ('Client { a.DigestLoginModule required username="${u}" password=p; };', "system property u is not known here"),
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
