"""Multis and their outcomes against a real server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.security import make_acl

from migrator.errors import OperatorError
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.ops import Applied, Check, Create, Delete, Failed, Op, SetData, Stat, Unknown, ZkError
from migrator.zookeeper.request_size import BYTES_MAX, op_bytes
from migrator.zookeeper.session import SessionOptions, SessionState, ZooKeeperSession, default_acl
from migrator.zookeeper.writer import ConditionalWriter, split_ops
from tests.patience import PATIENCE_SECONDS


def test_results_of_every_operation(session: ZooKeeperSession) -> None:
    outcome = ConditionalWriter(session).write(
        [
            Create("/a", None),
            Create("/a/n_", b"x", sequential=True),
            SetData("/a", b"2", 0),
            Check("/a", 1),
            Delete("/a/n_0000000000"),
        ]
    )
    assert isinstance(outcome, Applied)
    created, numbered, changed, *rest = outcome.results
    assert (created, numbered, rest) == ("/a", "/a/n_0000000000", [None, None])
    assert isinstance(changed, Stat)
    assert (changed.version, changed.data_length) == (1, 1)


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (SetData("/a", b"", 5), ZkError.BAD_VERSION),
        (Check("/missing", 0), ZkError.NO_NODE),
        (Create("/a", None), ZkError.NODE_EXISTS),
        (Create("/missing/child", None), ZkError.NO_NODE),
        (Delete("/a"), ZkError.NOT_EMPTY),
        (Create("/locked/child", None), ZkError.NO_AUTH),
    ],
)
def test_the_first_operation_that_failed_is_named_and_nothing_is_done(
    session: ZooKeeperSession, zookeeper_client: KazooClient, op: Op, error: ZkError
) -> None:
    zookeeper_client.ensure_path("/a/b")
    zookeeper_client.create("/locked", b"", acl=[make_acl("world", "anyone", read=True)])
    ops: list[Op] = [Check("/a", 0), Create("/new", None), op, Create("/later", None)]
    assert ConditionalWriter(session).write(ops) == Failed(2, error)
    assert zookeeper_client.exists("/new") is None


def test_an_error_that_no_caller_can_act_upon_is_raised_with_its_path(session: ZooKeeperSession) -> None:
    needs_identity = SessionOptions(hosts=session.options.hosts, set_acl=True)
    with ZooKeeperSession(needs_identity) as strict, pytest.raises(OperatorError, match="/mine: ZooKeeper refused"):
        ConditionalWriter(strict).write([Create("/mine", None)])


def test_multis_that_build_on_each_other_are_pipelined(session: ZooKeeperSession) -> None:
    writer = ConditionalWriter(session)
    assert isinstance(writer.write([Create("/v", b"")]), Applied)
    chain = [writer.submit([SetData("/v", b"%d" % number, number)]) for number in range(200)]
    assert all(isinstance(outcome.result(), Applied) for outcome in chain)
    broken = [
        writer.submit([SetData("/v", b"", 200)]),
        writer.submit([SetData("/v", b"", 999)]),
        writer.submit([SetData("/v", b"", 999)]),
    ]
    assert isinstance(broken[0].result(), Applied)
    assert [outcome.result() for outcome in broken[1:]] == [Failed(0, ZkError.BAD_VERSION)] * 2


def test_a_lost_connection_leaves_the_outcome_unknown(own_zookeeper: EmbeddedZooKeeper) -> None:
    states: list[SessionState] = []
    with ZooKeeperSession(SessionOptions(hosts=own_zookeeper.hosts, session_timeout_ms=20_000)) as session:
        session.add_listener(states.append)
        writer = ConditionalWriter(session)
        assert isinstance(writer.write([Create("/v", b"")]), Applied)
        own_zookeeper.pause()
        pending = [writer.submit([SetData("/v", b"%d" % number)]) for number in range(3)]
        own_zookeeper.kill()
        assert all(isinstance(future.result(timeout=PATIENCE_SECONDS), Unknown) for future in pending)
        own_zookeeper.start()
        assert session.wait_connected(PATIENCE_SECONDS)
        assert isinstance(writer.write([SetData("/v", b"after")]), Applied)
    assert SessionState.SUSPENDED in states


def test_a_closed_session_leaves_the_outcome_unknown(session: ZooKeeperSession) -> None:
    session.close()
    assert isinstance(ConditionalWriter(session).write([Create("/v", b"")]), Unknown)


@given(st.lists(st.integers(0, 400), max_size=30), st.integers(1, 7))
def test_splitting_keeps_order_and_bounds(sizes: list[int], ops_max: int) -> None:
    ops: list[Op] = [SetData(f"/p{index}", b"x" * size) for index, size in enumerate(sizes)]
    parts = list(split_ops(ops, bytes_max=700, ops_max=ops_max, reserved_bytes=100))
    assert [op for part in parts for op in part] == ops
    for part in parts:
        assert 0 < len(part) <= ops_max
        assert sum(map(op_bytes, part)) + 100 <= 700


def test_an_operation_too_big_for_a_multi_is_refused_with_its_path() -> None:
    with pytest.raises(OperatorError, match=r"/big: .*jute\.maxbuffer"):
        list(split_ops([SetData("/big", b"x" * 2_000)], jute_maxbuffer=2_000))


def test_an_operation_that_is_larger_than_several_together_may_be_travels_alone() -> None:
    ops: list[Op] = [SetData("/a", b""), SetData("/big", b"x" * BYTES_MAX), SetData("/b", b"")]
    assert list(split_ops(ops, reserved_bytes=100)) == [[op] for op in ops]


def test_who_may_read_what_is_created() -> None:
    def world(path: str, *, set_acl: bool) -> int:
        return sum(acl.perms for acl in default_acl(path, set_acl=set_acl) if acl.id.scheme == "world")

    everything, reading = 31, 1
    assert world("/config/users/alice", set_acl=False) == everything
    assert world("/config/users/alice", set_acl=True) == 0
    assert world("/config/brokers/1", set_acl=True) == 0
    assert world("/config/topics/t", set_acl=True) == reading
    assert world("/consumers", set_acl=True) == everything
