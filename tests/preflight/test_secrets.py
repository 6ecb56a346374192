"""What preflight prints of files with a secret in every key that may hold one, and in wrong places."""

from __future__ import annotations

from pathlib import Path

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
    """Those of the brokers are others, so that they are compared and found to differ."""
    cluster.controllers[0] |= PLANTED
    for broker in cluster.brokers:
        broker |= {key: f"{text}-of-brokers" for key, text in PLANTED.items() if MARK in text}
    for arguments in ((), ("--json",)):
        result = run(cluster, *arguments)
        assert result.exit_code == 1, result.output
        assert "delegation.token.secret.key" in result.output
        assert MARK not in result.output
        assert MARK not in result.stderr


def test_a_brokers_file_reads_no_file_of_this_host(cluster: ReadyCluster, tmp_path: Path) -> None:
    """It may be a copy from another host: its provider would be asked here, and the report would show what it read."""
    (tmp_path / "key.pem").write_text(MARK)
    cluster.brokers[0] |= {
        "config.providers": "d",
        "config.providers.d.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "inter.broker.protocol.version": f"${{d:{tmp_path}:key.pem}}",
    }
    result = run(cluster)
    assert f"it is ${{d:{tmp_path}:key.pem}}: not examined here" in result.output.replace("\n", " ")
    assert MARK not in result.output
