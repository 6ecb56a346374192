"""The bulk reader against a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import UnimplementedError
from kazoo.security import make_acl

from migrator.errors import OperatorError
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper import bulk
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.jute import MultiRead
from migrator.zookeeper.ops import Applied, Create, Delete, Op, SetData
from migrator.zookeeper.session import KazooRequest, SessionOptions, ZooKeeperSession, ZooKeeperUnavailableError
from migrator.zookeeper.writer import ConditionalWriter, split_ops
from tests.patience import PATIENCE_SECONDS

both_ways = pytest.mark.parametrize("multi_read", [True, False], ids=["multi-read", "single-reads"])


def write(session: ZooKeeperSession, ops: list[Op]) -> None:
    writer = ConditionalWriter(session)
    for multi in split_ops(ops):
        assert isinstance(writer.write(multi), Applied)


def test_twenty_thousand_znodes_in_order(session: ZooKeeperSession) -> None:
    write(session, [Create("/n", None), *(Create(f"/n/{number}", b"%d" % number) for number in range(20_000))])
    paths = [f"/n/{number}" for number in range(0, 40_000, 2)]
    found = list(BulkReader(session).read(paths))
    assert [znode and (znode.path, znode.data) for znode in found[:10_000]] == [
        (f"/n/{number}", b"%d" % number) for number in range(0, 20_000, 2)
    ]
    assert found[10_000:] == [None] * 10_000
    write(session, [Delete(f"/n/{number}") for number in range(20_000)])  # faster than the fixture can


@both_ways
def test_data_stat_children_and_missing_znodes(
    session: ZooKeeperSession, zookeeper_client: KazooClient, multi_read: bool
) -> None:
    write(session, [Create("/a", None), Create("/a/empty", b""), Create("/a/full", b"1"), SetData("/a/full", b"22")])
    reader = BulkReader(session, multi_read=multi_read)
    null, empty, full, missing = reader.read(["/a", "/a/empty", "/a/full", "/missing"])
    assert null is not None
    assert empty is not None
    assert full is not None
    assert missing is None
    assert (null.data, empty.data, full.data) == (None, b"", b"22")
    _, stat = zookeeper_client.get("/a/full")
    assert (full.stat.czxid, full.stat.mzxid, full.stat.version) == (stat.czxid, stat.mzxid, 1)
    assert (full.stat.data_length, null.stat.children_count, null.stat.pzxid) == (
        2,
        2,
        zookeeper_client.exists("/a").pzxid,
    )
    names, none, gone = reader.children(["/a", "/a/full", "/missing"])
    assert names is not None
    assert set(names) == {"empty", "full"}
    assert none == ()
    assert gone is None


@both_ways
def test_the_root_is_the_chroot(session: ZooKeeperSession, multi_read: bool) -> None:
    write(session, [Create("/inside", None)])
    assert session.chroot
    assert list(BulkReader(session, multi_read=multi_read).children(["/"])) == [("inside",)]


def test_replies_far_beyond_a_request_are_cut_into_pieces(
    session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Counted(MultiRead):
        def deserialize(self, reply: bytes, offset: int) -> list[object]:  # type: ignore[override]
            asked.append(len(reply))
            return super().deserialize(reply, offset)  # type: ignore[return-value]

    monkeypatch.setattr(bulk, "MultiRead", Counted)
    write(session, [Create("/big", None), *(Create(f"/big/{number}", b"x" * 60_000) for number in range(200))])
    found = list(BulkReader(session).read(f"/big/{number}" for number in range(200)))
    assert all(znode is not None and znode.data == b"x" * 60_000 for znode in found)
    assert max(asked[bulk.PATHS_AT_FIRST :], default=0) <= bulk.BYTES_MAX + 60_000


def test_paths_are_taken_as_results_are_consumed(session: ZooKeeperSession) -> None:
    taken = 0

    def endless() -> str:
        nonlocal taken
        taken += 1
        return "/"

    results = BulkReader(session).read(iter(endless, None))
    assert len(list(islice(results, 100))) == 100
    assert taken < 20_000


def test_an_unreadable_znode_is_named(session: ZooKeeperSession, zookeeper_client: KazooClient) -> None:
    acl = [make_acl("digest", "someone:else", all=True)]
    zookeeper_client.create("/secret", b"", acl=acl)
    with pytest.raises(OperatorError, match=r"^/secret: "):
        list(BulkReader(session).read(["/", "/secret"]))
    with pytest.raises(OperatorError, match=r"^/secret: "):
        list(BulkReader(session, multi_read=False).read(["/", "/secret"]))
    zookeeper_client.delete("/secret")


def test_a_server_without_multi_read_gets_single_reads(
    session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers before 3.6 answer operation 22 with UNIMPLEMENTED."""
    sent: list[int] = []
    send = session.call

    def call(request: KazooRequest) -> object:
        sent.append(request.type)
        if request.type != MultiRead.type:
            return send(request)
        refused = session.client.handler.async_result()
        refused.set_exception(UnimplementedError())
        return refused

    monkeypatch.setattr(session, "call", call)
    reader = BulkReader(session)
    assert list(reader.children(["/", "/missing"])) == [(), None]
    assert list(reader.children(["/"])) == [()]
    assert sent.count(MultiRead.type) == 1


@both_ways
def test_reading_goes_on_after_a_restart_in_the_middle(own_zookeeper: EmbeddedZooKeeper, multi_read: bool) -> None:
    with ZooKeeperSession(SessionOptions(hosts=own_zookeeper.hosts)) as session:
        write(session, [Create("/n", None), *(Create(f"/n/{number}", b"%d" % number) for number in range(5_000))])
        results = BulkReader(session, multi_read=multi_read).read(f"/n/{number}" for number in range(5_000))
        found = [znode and znode.data for znode in islice(results, 100)]
        own_zookeeper.restart()
        found += [znode and znode.data for znode in results]
    assert found == [b"%d" % number for number in range(5_000)]


def test_a_server_that_stays_away_is_reported(own_zookeeper: EmbeddedZooKeeper) -> None:
    with ZooKeeperSession(SessionOptions(hosts=own_zookeeper.hosts, session_timeout_ms=2000)) as session:
        reader = BulkReader(session, retry_seconds=0.5)
        assert list(reader.read(["/missing"])) == [None]
        own_zookeeper.kill()
        with pytest.raises(ZooKeeperUnavailableError, match=own_zookeeper.hosts):
            list(reader.read(["/missing"]))


def test_nobody_reads_on_when_the_session_is_closed(own_zookeeper: EmbeddedZooKeeper) -> None:
    """A thread that waits for a connection would keep the process from ending."""
    sessions = [ZooKeeperSession(SessionOptions(hosts=own_zookeeper.hosts)).start() for _ in range(2)]
    own_zookeeper.kill()
    before, meanwhile = sessions
    before.close()
    with ThreadPoolExecutor(2) as threads:
        readers = [BulkReader(session, retry_seconds=120.0) for session in sessions]
        reading = [threads.submit(list, reader.read(["/"])) for reader in readers]
        with pytest.raises(ZooKeeperUnavailableError, match="closed"):
            reading[0].result(PATIENCE_SECONDS)
        assert not reading[1].done()
        meanwhile.close()
        with pytest.raises(ZooKeeperUnavailableError, match="closed"):
            reading[1].result(PATIENCE_SECONDS)
