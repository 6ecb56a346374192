"""Many znodes are deleted on a real server, across lost connections, and beside somebody who goes on writing."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.interfaces import IAsyncResult

from migrator.errors import OperatorError
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.jute import Multi
from migrator.zookeeper.ops import Create, Delete
from migrator.zookeeper.removal import TOGETHER_MAX, remove
from migrator.zookeeper.session import KazooRequest, SessionOptions, ZooKeeperSession, ZooKeeperUnavailableError
from migrator.zookeeper.writer import ConditionalWriter, split_ops

COUNT = 3 * TOGETHER_MAX
DELETES = [*(Delete(f"/n/{number}", 0) for number in range(COUNT)), Delete("/n", 0)]


def fill(session: ZooKeeperSession) -> None:
    for multi in split_ops([Create("/n", None), *(Create(f"/n/{number}", b"x") for number in range(COUNT))]):
        ConditionalWriter(session).write(multi)


@pytest.fixture
def filled(session: ZooKeeperSession) -> ZooKeeperSession:
    fill(session)
    return session


def test_a_removal_goes_on_after_a_restart_in_the_middle(own_zookeeper: EmbeddedZooKeeper) -> None:
    with ZooKeeperSession(SessionOptions(hosts=own_zookeeper.hosts)) as session:
        fill(session)
        heard: list[int] = []

        def told(count: int) -> None:
            heard.append(count)
            if len(heard) == 1:
                own_zookeeper.restart()

        assert remove(session, DELETES, told) == COUNT + 1
        assert heard == [TOGETHER_MAX, 2 * TOGETHER_MAX, 3 * TOGETHER_MAX, COUNT + 1]
        assert session.client.exists("/n") is None


def test_a_deletion_whose_answer_is_lost_counts_once(filled: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has done it, and the connection went."""
    send = filled.call
    lost: list[KazooRequest] = []

    def call(request: KazooRequest) -> IAsyncResult:
        result = send(request)
        if isinstance(request, Multi) and not lost:
            lost.append(request)
            result.get()
            result = filled.client.handler.async_result()
            result.set_exception(ConnectionLoss())
        return result

    monkeypatch.setattr(filled, "call", call)
    assert remove(filled, DELETES) == COUNT + 1
    assert lost
    assert filled.client.exists("/n") is None


def test_a_server_that_stays_away_is_reported_with_what_is_gone(own_zookeeper: EmbeddedZooKeeper) -> None:
    with ZooKeeperSession(SessionOptions(hosts=own_zookeeper.hosts, session_timeout_ms=2000)) as session:
        fill(session)
        heard: list[int] = []

        def told(count: int) -> None:
            heard.append(count)
            if len(heard) == 1:
                own_zookeeper.kill()

        with pytest.raises(ZooKeeperUnavailableError, match=r"could not be written: no answer for 0\.5 s"):
            remove(session, DELETES, told, retry_seconds=0.5)
        assert heard == [TOGETHER_MAX, TOGETHER_MAX]


def test_some_that_are_gone_already_are_no_error(filled: ZooKeeperSession, zookeeper_client: KazooClient) -> None:
    for number in (0, 7, COUNT - 1):
        zookeeper_client.delete(f"/n/{number}")
    assert remove(filled, DELETES) == COUNT + 1 - 3
    assert not zookeeper_client.exists("/n")


def test_what_somebody_creates_meanwhile_stays(filled: ZooKeeperSession, zookeeper_client: KazooClient) -> None:
    zookeeper_client.create("/n/new", b"{}")
    heard: list[int] = []
    with pytest.raises(OperatorError, match="/n: somebody creates znodes while they are removed"):
        remove(filled, DELETES, heard.append)
    assert zookeeper_client.get_children("/n") == ["new"]
    assert heard[-1] == COUNT


def test_what_somebody_changes_meanwhile_stays(filled: ZooKeeperSession, zookeeper_client: KazooClient) -> None:
    zookeeper_client.set("/n/7", b"new")
    with pytest.raises(OperatorError, match="/n/7: somebody changes znodes while they are removed"):
        remove(filled, DELETES)
    assert zookeeper_client.get("/n/7")[0] == b"new"
