"""Logins to a real ZooKeeper that serves nobody without one."""

from __future__ import annotations

import pickle
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

from migrator.drill.cluster import MIGRATOR
from migrator.errors import ExitCode, OperatorError
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions, ZooKeeperSasl
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.logins import JaasEntry
from migrator.zookeeper.ops import Applied, Create, Failed, SetData, ZkError
from migrator.zookeeper.session import (
    SessionOptions,
    SessionState,
    ZooKeeperLoginError,
    ZooKeeperSession,
    ZooKeeperUnavailableError,
)
from migrator.zookeeper.writer import ConditionalWriter
from tests.conftest import ZooKeeperSpace
from tests.parts.support.ensemble import ZooKeeperEnsemble
from tests.parts.support.jaas import client_jaas
from tests.patience import PATIENCE_SECONDS

USERS = {"kafka": 'br0ker "secret" \\', "müller": "pässwörd", "other": "o"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    options = ZooKeeperOptions(sasl=ZooKeeperSasl(USERS))
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), options=options) as running:
        yield running


def login(directory: Path, user: str, password: str) -> JaasEntry:
    file = directory / f"{user}.conf"
    file.write_text(client_jaas(user, password))
    return JaasEntry(str(file))


def options_of(server: EmbeddedZooKeeper, directory: Path, user: str = "kafka", password: str = "") -> SessionOptions:
    return SessionOptions(
        server.hosts,
        session_timeout_ms=10_000,
        connection_timeout_ms=60_000,
        set_acl=True,
        jaas=login(directory, user, password or USERS[user]),
    )


def acl(session: ZooKeeperSession, path: str) -> list[tuple[str, str, int]]:
    found, _ = session.wait_for(session.client.get_acls_async(path))
    return [(entry.id.scheme, entry.id.id, entry.perms) for entry in found]


@pytest.mark.parametrize("user", ["kafka", "müller"])
def test_what_a_login_creates_belongs_to_it(server: EmbeddedZooKeeper, tmp_path: Path, user: str) -> None:
    everything, reading = CREATOR_ALL_ACL[0].perms, READ_ACL_UNSAFE[0].perms
    with ZooKeeperSession(options_of(server, tmp_path, user)) as session:
        name = f"/{user[0]}-open"
        assert isinstance(ConditionalWriter(session).write([Create(name, b"x")]), Applied)
        assert acl(session, name) == [("sasl", user, everything), ("world", "anyone", reading)]
    with ZooKeeperSession(options_of(server, tmp_path, "other")) as session:
        assert [znode and znode.data for znode in BulkReader(session).read([name])] == [b"x"]
        assert ConditionalWriter(session).write([SetData(name, b"y")]) == Failed(0, ZkError.NO_AUTH)


@pytest.mark.parametrize(("user", "password"), [("kafka", "wrong-pass"), ("stranger", "wrong-pass")])
def test_a_login_that_is_refused_is_one_clear_error(
    server: EmbeddedZooKeeper, tmp_path: Path, user: str, password: str
) -> None:
    options = options_of(server, tmp_path, user, password)
    with pytest.raises(ZooKeeperLoginError, match=rf"SASL login as {user} \(DIGEST-MD5\) failed") as seen:
        ZooKeeperSession(options).start()
    assert "jaas.file" in seen.value.remedy
    assert password not in f"{seen.value} {options!r}"
    assert isinstance(pickle.loads(pickle.dumps(seen.value)), ZooKeeperLoginError)  # noqa: S301 - our own bytes


def test_a_session_without_a_login_is_refused_at_its_first_request(server: EmbeddedZooKeeper) -> None:
    refused = pytest.raises(ZooKeeperLoginError, match="only clients that have logged in with SASL")
    with ZooKeeperSession(SessionOptions(server.hosts)) as session, refused:
        list(BulkReader(session).read(["/"]))


def test_a_session_without_a_login_may_not_write_either(server: EmbeddedZooKeeper) -> None:
    with ZooKeeperSession(SessionOptions(server.hosts)) as session, pytest.raises(OperatorError, match="logged in"):
        ConditionalWriter(session).submit([Create("/anonymous", None)]).result(timeout=PATIENCE_SECONDS)


def test_a_server_that_knows_no_logins_is_named_as_such(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    jaas = login(tmp_path, "kafka", "x")
    with pytest.raises(ZooKeeperUnavailableError, match="SASL login as kafka"):
        ZooKeeperSession(SessionOptions(zookeeper.hosts, connection_timeout_ms=5_000, jaas=jaas)).start()


@pytest.mark.lane("test-all")
def test_a_login_is_made_again_after_each_loss_with_the_password_of_the_day(tmp_path: Path) -> None:
    sasl = ZooKeeperSasl({"kafka": "first"})
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", options=ZooKeeperOptions(sasl=sasl))
    renewed = EmbeddedZooKeeper(
        server.directory, port=server.port, options=ZooKeeperOptions(sasl=ZooKeeperSasl({"kafka": "second"}))
    )
    options = options_of(server, tmp_path, "kafka", "first")
    with server, ZooKeeperSession(options) as session:
        writer = ConditionalWriter(session)
        assert isinstance(writer.write([Create("/config", None), Create("/config/users", b"")]), Applied)
        server.kill()
        with renewed:
            renewed.process.wait_until(
                lambda: session.client.refused_by_all, "the old password refused", timeout_seconds=60
            )
            assert not session.wait_connected(0), "who is not logged in is not connected"
            login(tmp_path, "kafka", "second")
            assert session.wait_connected(PATIENCE_SECONDS)
            assert session.trouble == ""
            assert isinstance(writer.write([SetData("/config/users", b"second")]), Applied)
            states: list[SessionState] = []
            session.add_listener(states.append)
            session.client._session_id = 0x7FFF  # the server knows no such session: it has expired
            session.client._connection._socket.shutdown(socket.SHUT_RDWR)
            renewed.process.wait_until(
                lambda: SessionState.LOST in states, "the session lost", timeout_seconds=PATIENCE_SECONDS
            )
            assert session.wait_connected(PATIENCE_SECONDS)
            assert isinstance(writer.write([SetData("/config/users", b"third")]), Applied)


@pytest.mark.lane("test-all")
def test_a_server_that_was_set_up_without_logins_does_not_keep_us_from_the_others(tmp_path: Path) -> None:
    ensemble = ZooKeeperEnsemble(tmp_path, size=2, options=ZooKeeperOptions(sasl=ZooKeeperSasl(USERS)))
    good, bad = ensemble.servers
    bad.options = ZooKeeperOptions()
    with ensemble:
        everywhere = replace(options_of(good, tmp_path), hosts=ensemble.hosts)
        for _ in range(6):  # the client begins with either
            with ZooKeeperSession(everywhere) as session:
                assert session.client._connection._socket.getpeername()[1] == good.port
                session.sync()


@pytest.mark.lane("test-all")
@pytest.mark.parametrize(
    "command",
    [
        ("preflight", "--json"),
        ("repair", "partition-states", "--dry-run"),
        ("rehearse", "--no-spark", "--kafka", "none"),
    ],
)
def test_a_command_ends_with_the_reason_and_without_the_password(
    server: EmbeddedZooKeeper, tmp_path: Path, command: tuple[str, ...]
) -> None:
    keys = {
        "process.roles": "controller",
        "node.id": "3001",
        "controller.quorum.voters": "3001@127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:1",
        "metadata.log.dir": str(tmp_path / "metadata"),
        "zookeeper.metadata.migration.enable": "true",
        "zookeeper.connect": server.hosts,
        "zookeeper.set.acl": "true",
        "migrator.zookeeper.jaas.file": login(tmp_path, "kafka", "wrong-pass").file,
    }
    file = tmp_path / "controller.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    done = subprocess.run([MIGRATOR, *command, "-c", str(file)], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == ExitCode.REFUSED, said
    assert "the SASL login as kafka (DIGEST-MD5) failed" in " ".join(said.split())
    assert "wrong-pass" not in said
