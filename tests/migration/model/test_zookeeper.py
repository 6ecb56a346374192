"""The model ZooKeeper keeps the server's rules; the other tests of this room rest on it."""

from __future__ import annotations

import pytest

from migrator.zookeeper.ops import Applied, Check, Create, Delete, Failed, SetData, ZkError
from tests.migration.model.zookeeper import ModelZooKeeper, RefusedError


def test_a_multi_is_applied_as_a_whole_or_not_at_all() -> None:
    zookeeper = ModelZooKeeper()
    zookeeper.create("/a", b"1")
    before = zookeeper.dump()
    outcome = zookeeper.multi([SetData("/a", b"2"), Create("/b", None), Delete("/missing")])
    assert outcome == Failed(2, ZkError.NO_NODE)
    assert zookeeper.dump() == before
    assert zookeeper.dump_versions()["/a"] == 0


def test_versions_count_sets_and_guard_them() -> None:
    zookeeper = ModelZooKeeper()
    zookeeper.create("/a", b"1")
    outcome = zookeeper.multi([Check("/a", 0), SetData("/a", b"2", 0), SetData("/a", b"3", 1)])
    assert isinstance(outcome, Applied)
    node = zookeeper.get("/a")
    assert node is not None
    assert (node.data, node.stat.version) == (b"3", 2)
    assert zookeeper.multi([SetData("/a", b"4", 1)]) == Failed(0, ZkError.BAD_VERSION)


def test_a_recreated_node_starts_at_version_zero_and_a_new_czxid() -> None:
    zookeeper = ModelZooKeeper()
    zookeeper.create("/a", b"1")
    zookeeper.set("/a", b"2")
    first = zookeeper.get("/a")
    zookeeper.multi([Delete("/a"), Create("/a", b"1")])
    second = zookeeper.get("/a")
    assert first is not None
    assert second is not None
    assert second.stat.version == 0
    assert second.stat.czxid > first.stat.czxid


def test_sequence_numbers_go_on_after_deletions() -> None:
    zookeeper = ModelZooKeeper()
    zookeeper.create("/changes")
    first = zookeeper.multi([Create("/changes/n_", b"", sequential=True)])
    zookeeper.delete("/changes/n_0000000000")
    second = zookeeper.multi([Create("/changes/n_", b"", sequential=True)])
    assert first == Applied(("/changes/n_0000000000",))
    assert second == Applied(("/changes/n_0000000001",))


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (Create("/a", None), ZkError.NODE_EXISTS),
        (Create("/x/y", None), ZkError.NO_NODE),
        (Delete("/a"), ZkError.NOT_EMPTY),
        (Delete("/a/b", 7), ZkError.BAD_VERSION),
        (Check("/x", 0), ZkError.NO_NODE),
    ],
)
def test_refusals(op: Create | Delete | Check, error: ZkError) -> None:
    zookeeper = ModelZooKeeper()
    zookeeper.create("/a/b", parents=True)
    assert zookeeper.multi([op]) == Failed(0, error)


def test_a_closed_session_takes_its_ephemerals_along_and_they_have_no_children() -> None:
    zookeeper = ModelZooKeeper()
    session = zookeeper.open_session()
    zookeeper.create("/controller", b"", session=session)
    with pytest.raises(RefusedError):
        zookeeper.create("/controller/child")
    zookeeper.close_session(session)
    assert zookeeper.get("/controller") is None


def test_a_fork_goes_its_own_way() -> None:
    zookeeper = ModelZooKeeper()
    zookeeper.create("/a", b"1")
    fork = zookeeper.fork()
    fork.set("/a", b"2")
    original = zookeeper.get("/a")
    assert original is not None
    assert original.data == b"1"
    assert list(zookeeper.children(["/", "/none"])) == [("a",), None]
