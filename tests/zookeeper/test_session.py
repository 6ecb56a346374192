"""Sessions: from settings, across processes, and when nobody answers."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from migrator.config.load import settings_from
from migrator.config.settings import Settings
from migrator.config.tls import TlsChoice
from migrator.errors import OperatorError
from migrator.parts.certificates import Authority
from migrator.parts.processes import free_port
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.logins import JaasEntry
from migrator.zookeeper.session import (
    SessionOptions,
    SessionState,
    ZooKeeperSession,
    ZooKeeperUnavailableError,
    options_from,
)
from tests.parts.support.jaas import client_jaas


def settings(**more: str) -> Settings:
    keys = {
        "process.roles": "controller",
        "node.id": "3000",
        "controller.quorum.voters": "3000@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://:9093",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        **{key.replace("_", "."): text for key, text in more.items()},
    }
    return settings_from(keys, "controller.properties")[0]


def test_times_and_chroot_are_those_of_the_settings() -> None:
    options = options_from(settings(zookeeper_connect="a:2181,b:2181/kafka", zookeeper_session_timeout_ms="7000"))
    assert (options.hosts, options.session_timeout_ms, options.connection_timeout_ms) == (
        "a:2181,b:2181/kafka",
        7000,
        7000,
    )
    assert (options.in_flight, options.set_acl, options.tls, options.jaas) == (10, False, None, None)
    assert ZooKeeperSession(options).chroot == "/kafka"


def test_connect_is_required() -> None:
    with pytest.raises(OperatorError, match=r"controller\.properties: zookeeper\.connect"):
        options_from(settings())
    assert options_from(settings(), "c:2181").hosts == "c:2181", "a file after the end of a migration has none"


def test_stores_are_read_once_before_anybody_connects(tmp_path: Path) -> None:
    pem = tmp_path / "client.pem"
    pem.write_text("".join(Authority("clients").issue("controller", "hunter2")))
    keys = {"zookeeper_connect": "a:2182", "zookeeper_ssl_client_enable": "true"}
    password = {"zookeeper_ssl_keystore_password": "hunter2"}
    options = options_from(settings(**keys, **password, zookeeper_ssl_keystore_location=str(pem)))
    assert options.tls is not None
    assert (options.tls.key_file, options.tls.choice, options.tls.check_hostname) == (str(pem), TlsChoice(), True)
    assert "hunter2" not in repr(options)
    copy = pickle.loads(pickle.dumps(options))  # noqa: S301 - our own bytes
    assert copy == options
    with pytest.raises(OperatorError, match=r"zookeeper\.ssl\.keystore\.location: the key in this file cannot be used"):
        options_from(settings(**keys, zookeeper_ssl_keystore_location=str(pem)))
    old = tmp_path / "client.jks"
    old.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(OperatorError, match=r"keystore\.location: .* cannot be read as JKS: it ends too early"):
        options_from(settings(**keys, zookeeper_ssl_keystore_location=str(old)))
    with pytest.raises(OperatorError, match="names no file"):
        options_from(settings(**keys, zookeeper_ssl_truststore_location=str(tmp_path / "none.pem")))


def test_versions_and_suites_of_tls_are_those_that_the_file_names() -> None:
    keys = {"zookeeper_connect": "a:2182", "zookeeper_ssl_client_enable": "true"}

    def choice(**more: str) -> TlsChoice:
        tls = options_from(settings(**keys, **more)).tls
        assert tls is not None
        return tls.choice

    assert choice(zookeeper_ssl_protocol="TLSv1.3") == TlsChoice(("TLSv1.3",))
    assert choice(zookeeper_ssl_protocol="TLSv1.3", zookeeper_ssl_enabled_protocols="TLSv1.2") == TlsChoice(
        ("TLSv1.2",)
    )
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    assert choice(zookeeper_ssl_cipher_suites=suite) == TlsChoice(("TLSv1.2",), "ECDHE-ECDSA-AES256-GCM-SHA384")
    with pytest.raises(OperatorError, match=r"zookeeper\.ssl\.protocol: TLSv1\.1 is no longer safe"):
        choice(zookeeper_ssl_protocol="TLSv1.1")
    with pytest.raises(OperatorError, match=r"zookeeper\.ssl\.cipher\.suites: TLS_NULL is not a suite"):
        choice(zookeeper_ssl_cipher_suites="TLS_NULL")


def test_a_jaas_file_is_looked_at_before_anybody_connects(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(client_jaas("kafka", "hunter2"))
    keys = {"zookeeper_connect": "a:2181", "migrator_zookeeper_jaas_file": str(file)}
    options = options_from(settings(**keys))
    assert options.jaas == JaasEntry(str(file), "Client")
    assert settings(**keys).zookeeper_authenticated
    assert not settings(zookeeper_connect="a:2181").zookeeper_authenticated
    with pytest.raises(OperatorError, match="no login module in a section Other"):
        options_from(settings(**keys, migrator_zookeeper_jaas_section="Other"))


def test_nobody_answers() -> None:
    hosts = f"127.0.0.1:{free_port()}"
    with pytest.raises(ZooKeeperUnavailableError, match=hosts):
        ZooKeeperSession(SessionOptions(hosts=hosts, connection_timeout_ms=200)).start()


def test_who_waits_for_a_server_is_told_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("migrator.zookeeper.session.SILENT_SECONDS", 0.2)
    hosts = f"127.0.0.1:{free_port()}"
    with pytest.raises(ZooKeeperUnavailableError):
        ZooKeeperSession(SessionOptions(hosts=hosts, connection_timeout_ms=600)).start()
    (said,) = caplog.messages
    assert f"no ZooKeeper server of {hosts} answers yet" in said
    assert "Connection refused" in said


def test_a_session_that_never_began_can_be_closed() -> None:
    ZooKeeperSession(SessionOptions(hosts="127.0.0.1:1")).close()


def test_waiting_for_a_server_that_went_away_is_bounded(own_zookeeper: EmbeddedZooKeeper) -> None:
    with ZooKeeperSession(SessionOptions(hosts=own_zookeeper.hosts, session_timeout_ms=1000)) as session:
        session.sync()
        own_zookeeper.kill()
        with pytest.raises(ZooKeeperUnavailableError, match="was lost"):
            session.sync()


def test_version_and_state(session: ZooKeeperSession) -> None:
    assert session.state is SessionState.CONNECTED
    version = session.server_version()
    assert version is None or version >= (3, 4)
