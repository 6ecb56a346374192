"""Sessions over TLS with a real ZooKeeper that has no other port and demands a certificate of each client."""

from __future__ import annotations

import datetime as dt
import gc
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509

from migrator.config.tls import TlsChoice
from migrator.config.types import Secret
from migrator.parts.certificates import Authority, write_private
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions, ZooKeeperSasl, ZooKeeperTls
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.logins import JaasEntry
from migrator.zookeeper.ops import Applied, Create
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, ZooKeeperUnavailableError
from migrator.zookeeper.tls import TlsOptions
from migrator.zookeeper.writer import ConditionalWriter
from tests.parts.support.jaas import client_jaas
from tests.patience import PATIENCE_SECONDS

ADDRESS_ONLY = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")),)


@dataclass(frozen=True)
class Secured:
    """A server, its authority, and options that it accepts."""

    server: EmbeddedZooKeeper
    authority: Authority
    options: SessionOptions
    directory: Path

    def over(self, *, host: str = "127.0.0.1", **tls: object) -> SessionOptions:
        assert self.options.tls is not None
        return replace(
            self.options,
            hosts=f"{host}:{self.server.port}",
            tls=replace(self.options.tls, **tls),  # type: ignore[arg-type]
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority("zookeeper")
    # ZooKeeper reads an encrypted key only in some encodings; a server's own is not what is tried here.
    key = directory / "server.pem"
    write_private(key, "".join(authority.issue("server", names=ADDRESS_ONLY)))
    trust = authority.trust(directory / "trust.pem")
    options = ZooKeeperOptions(
        tls=ZooKeeperTls(key, trust),
        sasl=ZooKeeperSasl({"kafka": "secret"}, required=False),
        properties={"ssl.enabledProtocols": "TLSv1.2"},
    )
    client = directory / "client.pem"
    write_private(client, "".join(authority.issue("controller", "hunter2")))
    with EmbeddedZooKeeper(directory / "zookeeper", options=options) as server:
        tls = TlsOptions(key_file=str(client), key_password=Secret("hunter2"), trust_file=str(trust))
        yield Secured(server, authority, SessionOptions(server.hosts, set_acl=True, tls=tls), directory)
        gc.collect()


def acl(session: ZooKeeperSession, path: str) -> list[tuple[str, str]]:
    found, _ = session.wait_for(session.client.get_acls_async(path))
    return [(entry.id.scheme, entry.id.id) for entry in found]


def reason(options: SessionOptions) -> str:
    """Why nobody answers."""
    with pytest.raises(ZooKeeperUnavailableError) as caught:
        ZooKeeperSession(replace(options, connection_timeout_ms=2_000)).start()
    return caught.value.what


def test_what_a_certificate_creates_belongs_to_it(secured: Secured) -> None:
    with ZooKeeperSession(secured.options) as session:
        writer = ConditionalWriter(session)
        assert isinstance(writer.write([Create("/config", None), Create("/config/users", None)]), Applied)
        assert acl(session, "/config") == [("x509", "CN=controller"), ("world", "anyone")]
        assert acl(session, "/config/users") == [("x509", "CN=controller")]
        assert session.server_version() is not None, "four letter words are asked over TLS, too"


def test_with_a_certificate_and_a_login_both_own_it(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(client_jaas("kafka", "secret"))
    options = replace(secured.options, jaas=JaasEntry(str(tmp_path / "jaas.conf")))
    with ZooKeeperSession(options) as session:
        assert isinstance(ConditionalWriter(session).write([Create("/both", None)]), Applied)
        assert sorted(acl(session, "/both")) == [("sasl", "kafka"), ("world", "anyone"), ("x509", "CN=controller")]


def test_the_configured_trust_store_is_the_only_one(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority("stranger").trust(tmp_path / "stranger.pem")
    assert "CERTIFICATE_VERIFY_FAILED" in reason(secured.over(trust_file=str(stranger)))


@pytest.mark.parametrize("wrong", ["no certificate", "of a stranger"])
def test_a_client_that_the_server_does_not_know_gets_no_session(secured: Secured, tmp_path: Path, wrong: str) -> None:
    key = None if wrong == "no certificate" else str(Authority("stranger").store(tmp_path / "key.pem", "controller"))
    assert "no ZooKeeper server answered" in reason(secured.over(key_file=key, key_password=None))


def test_a_certificate_of_ours_that_has_expired_is_named(secured: Secured, tmp_path: Path) -> None:
    """The server says nothing but that it closes the connection."""
    key = tmp_path / "expired.pem"
    write_private(key, "".join(secured.authority.issue("controller", valid_for=-dt.timedelta(hours=1))))
    said = reason(secured.over(key_file=str(key), key_password=None))
    assert f"our certificate in {key} has expired at " in said


def test_the_certificate_is_good_for_the_address_where_it_does_not_name_the_host(secured: Secured) -> None:
    """As ZooKeeper's own client has it."""
    with ZooKeeperSession(secured.over(host="localhost")) as session:
        session.sync()


@pytest.mark.lane("test-all")
def test_a_certificate_for_another_host_is_refused_unless_names_are_not_checked(tmp_path: Path) -> None:
    authority = Authority("zookeeper")
    key, trust = tmp_path / "server.pem", authority.trust(tmp_path / "trust.pem")
    write_private(key, "".join(authority.issue("server", names=(x509.DNSName("elsewhere.example"),))))
    tls = ZooKeeperTls(key, trust)
    with EmbeddedZooKeeper(tmp_path / "zookeeper", options=ZooKeeperOptions(tls=tls)) as server:
        client = TlsOptions(key_file=str(authority.store(tmp_path / "client.pem", "c")), trust_file=str(trust))
        assert "certificate is not valid for '127.0.0.1'" in reason(SessionOptions(server.hosts, tls=client))
        with ZooKeeperSession(SessionOptions(server.hosts, tls=replace(client, check_hostname=False))) as session:
            session.sync()


def test_only_the_chosen_versions_are_spoken(secured: Secured) -> None:
    assert reason(secured.over(choice=TlsChoice(("TLSv1.3",))))
    with ZooKeeperSession(secured.over(choice=TlsChoice(("TLSv1.2",), "ECDHE-ECDSA-AES256-GCM-SHA384"))) as session:
        session.sync()


def test_a_certificate_that_is_replaced_is_the_next_connections(secured: Secured, tmp_path: Path) -> None:
    key = secured.authority.store(tmp_path / "key.pem", "before")
    with ZooKeeperSession(secured.over(key_file=str(key), key_password=None)) as session:
        assert isinstance(ConditionalWriter(session).write([Create("/before", None)]), Applied)
        key.unlink()
        session.client._connection._socket.shutdown(2)
        secured.server.process.wait_until(
            lambda: "cannot be read" in session.trouble, "the file missed", timeout_seconds=60
        )
        secured.authority.store(tmp_path / "key.pem", "after")
        assert session.wait_connected(PATIENCE_SECONDS)
        assert isinstance(ConditionalWriter(session).write([Create("/after", None)]), Applied)
        assert acl(session, "/before")[0] == ("x509", "CN=before")
        assert acl(session, "/after")[0] == ("x509", "CN=after")
        assert [found and found.data for found in BulkReader(session).read(["/after"])] == [None]
