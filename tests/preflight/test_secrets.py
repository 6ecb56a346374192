"""Preflight's output for files with a secret in every key that may hold one, and in wrong places."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preflight.support.ready_cluster import ReadyCluster
from tests.preflight.test_command import run

MARK = "Pl4nted-Secret"
PLAIN = f'x.PlainLoginModule required username="u" password="{MARK}" user_u="{MARK}";'
PLANTED = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
    "listener.name.controller.ssl.key.password": MARK,
    "password.encoder.secret": MARK,
    "password.encoder.old.secret": MARK,
    "delegation.token.secret.key": MARK,
    "ssl.keystore.password": MARK,
    "zookeeper.ssl.keystore.password": MARK,
    "ssl.key.pasword": MARK,
    "com.example.password": MARK,
    "sasl.jaas.config": MARK,
}


def test_neither_text_nor_json_shows_a_secret(cluster: ReadyCluster) -> None:
    """The brokers have other values, so that the comparison finds differences."""
    cluster.controllers[0] |= PLANTED
    for broker in cluster.brokers:
        broker |= {key: f"{text}-of-brokers" for key, text in PLANTED.items() if MARK in text}
    for arguments in ((), ("--json",)):
        result = run(cluster, *arguments)
        assert result.exit_code == 1, result.output
        assert "delegation.token.secret.key" in result.output
        assert MARK not in result.output
        assert MARK not in result.stderr


def with_provider(directory: Path, *keys: str) -> dict[str, str]:
    (directory / "key.pem").write_text(MARK)
    return {
        "config.providers": "d",
        "config.providers.d.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        **dict.fromkeys(keys, f"${{d:{directory}:key.pem}}"),
    }


def test_a_brokers_file_reads_no_file_of_this_host(cluster: ReadyCluster, tmp_path: Path) -> None:
    """It may be a copy from another host: its provider would be asked here, and the report would show what it read."""
    cluster.brokers[0] |= with_provider(tmp_path, "inter.broker.protocol.version")
    result = run(cluster)
    assert f"it is ${{d:{tmp_path}:key.pem}}: not examined here" in result.output.replace("\n", " ")
    assert MARK not in result.output


@pytest.mark.parametrize("key", ["inter.broker.listener.name", "super.users", "node.id", "zookeeper.connect", "a.b"])
def test_nor_does_the_file_of_another_controller(cluster: ReadyCluster, tmp_path: Path, key: str) -> None:
    second = cluster.second_controller()
    second |= with_provider(tmp_path, key)
    for arguments in ((), ("--json",)):
        result = run(cluster, *arguments)
        assert f"it is ${{d:{tmp_path}:key.pem}}: not examined here" in result.output.replace("\n", " ")
        assert MARK not in result.output
        assert MARK not in result.stderr


def test_of_what_is_not_examined_no_check_says_anything(cluster: ReadyCluster, tmp_path: Path) -> None:
    """Only M316 does. Each key of the file is tried in turn."""
    second = cluster.second_controller()
    as_it_is = dict(second)
    before = {finding.what for finding in cluster.report().findings}
    for key in (
        *as_it_is,
        "super.users",
        "listener.name.controller.ssl.key.password",
        "log.dir",
        "create.topic.policy.class.name",
    ):
        second.clear()
        second.update(as_it_is | with_provider(tmp_path, key))
        report = cluster.report()
        found = [(it.check.code, it.where[0].rpartition(" ")[2]) for it in report.findings if it.what not in before]
        unknown = [it.where.rpartition(" ")[2] for it in report.unknown]
        if key == "node.id":  # without which nobody knows which controller this is
            assert (found, unknown) == ([("M209", "controller.quorum.voters")], [key])
        else:
            assert (found, unknown) == ([("M316", key)], []), key


def test_a_providers_java_class_is_refused_in_each_controllers_file(cluster: ReadyCluster) -> None:
    second = cluster.second_controller()
    second |= {
        "config.providers": "vault",
        "config.providers.vault.class": "com.example.Vault",
        "password.encoder.secret": "${vault:kafka:secret}",
    }
    (found,) = (it for it in cluster.report().findings if it.check.code == "M314")
    assert "com.example.Vault" in found.what
    assert found.where[0].endswith("controller-1.properties: password.encoder.secret")


def test_the_file_of_this_hosts_controller_comes_first(cluster: ReadyCluster, tmp_path: Path) -> None:
    """Its placeholders are looked up: the user of preflight is that of this host."""
    (tmp_path / "secrets").write_text("key=secret-of-this-host\n")
    cluster.controllers[0] |= {
        "config.providers": "f",
        "config.providers.f.class": "FileConfigProvider",
        "delegation.token.secret.key": f"${{f:{tmp_path}/secrets:key}}",
    }
    assert not [it for it in cluster.report().findings if it.check.code in ("M314", "M316")]


@pytest.mark.parametrize(
    "key", ["inter.broker.listener.name", "super.users", "listeners", "log.dir", "zookeeper.connect"]
)
def test_nor_does_a_file_that_is_looked_up_show_it(cluster: ReadyCluster, tmp_path: Path, key: str) -> None:
    """A value that is wrong for its key is shown as it stands in the file."""
    cluster.controllers[0] |= with_provider(tmp_path, key)
    for arguments in ((), ("--json",)):
        result = run(cluster, *arguments)
        assert f"${{d:{tmp_path}:key.pem}}" in result.output
        assert MARK.lower() not in f"{result.output}{result.stderr}".lower()
